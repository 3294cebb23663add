"""Client and view model know nothing of Textual, and starting the console is cheap."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PROGRAM = """
import importlib, pkgutil, sys
import {package}
for module in pkgutil.walk_packages({package}.__path__, "{package}."):
    importlib.import_module(module.name)
print(" ".join(name for name in {banned!r} if name in sys.modules))
"""


def imported(program: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return ended.stdout.strip()


@pytest.mark.parametrize("package", ["console.viewmodel", "console.client"])
def test_package_does_not_import_textual(package: str) -> None:
    banned = ("textual", "torch", "asyncssh", "controller.fleet", "controller.server.runtime")
    assert imported(PROGRAM.format(package=package, banned=banned)) == ""


def test_the_command_line_imports_neither_textual_nor_pydantic() -> None:
    program = "import sys, console.cli; print('textual' in sys.modules, 'pydantic' in sys.modules)"
    assert imported(program) == "False False"


def test_commands_do_not_import_textual() -> None:
    assert (
        imported("import sys, console.command_registry; print('textual' in sys.modules)") == "False"
    )


FRAMES = """
import asyncio
from console.cli import main
asyncio.run = lambda app: app.close()
main(["--connect", "nowhere", "--in-browser"])
import textual.constants
print(textual.constants.MAX_FPS)
"""


@pytest.mark.parametrize(("wish", "found"), [(None, "120"), ("30", "30")])
def test_a_frame_follows_soon_after_another(
    monkeypatch: pytest.MonkeyPatch, wish: str | None, found: str
) -> None:
    monkeypatch.delenv("TEXTUAL_FPS", raising=False)
    if wish is not None:
        monkeypatch.setenv("TEXTUAL_FPS", wish)
    assert imported(FRAMES) == found
