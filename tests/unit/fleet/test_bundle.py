"""The code that is copied to nodes, and the one place that quotes for a shell."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from controller.fleet.bundle import build_bundle
from controller.fleet.node_commands import shell_line

REPOSITORY = Path(__file__).parents[3]
PROGRAM = "from controller.fleet.bundle import build_bundle as b; print(b().version, *b().files)"


@pytest.fixture
def installation(tmp_path: Path) -> Path:
    """Another installation of the agent's packages."""
    for package in ("nodeagent", "profiles"):
        shutil.copytree(
            REPOSITORY / package,
            tmp_path / package,
            ignore=shutil.ignore_patterns("__pycache__", "rank"),
        )
    (tmp_path / "controller").symlink_to(REPOSITORY / "controller")
    return tmp_path


def version_and_files(installation: Path) -> tuple[str, set[str]]:
    """Return what ``build_bundle`` collects in a fresh interpreter."""
    result = subprocess.run(
        [sys.executable, "-B", "-c", PROGRAM],
        cwd=installation,
        capture_output=True,
        text=True,
        check=True,
    )
    version, *files = result.stdout.split()
    return version, set(files)


def test_it_holds_the_agent_its_profiles_and_an_entry_point() -> None:
    files = build_bundle().files
    assert {"__main__.py", "nodeagent/cli.py", "nodeagent/protocol/messages.py"} <= files.keys()
    assert {"nodeagent/rank/process/template.py", "profiles/layout.py"} <= files.keys()
    assert {"profiles/__init__.py", "profiles/data/demo.toml"} <= files.keys()
    assert files["__main__.py"] == (REPOSITORY / "nodeagent" / "__main__.py").read_bytes()
    assert {path.partition("/")[0] for path in files} == {"__main__.py", "nodeagent", "profiles"}


def test_it_holds_no_compiled_code_and_nothing_of_the_controller() -> None:
    for path, content in build_bundle().files.items():
        assert "__pycache__" not in path
        assert not path.startswith("/")
        assert b"import controller" not in content
        assert b"from controller" not in content


def test_equal_files_make_equal_versions() -> None:
    first, second = build_bundle(), build_bundle()
    assert first == second
    assert len(first.version) == 12
    assert first.version.isalnum()


def test_its_version_is_that_of_its_content(installation: Path) -> None:
    original, files = version_and_files(installation)
    assert version_and_files(installation)[0] == original

    cache = installation / "nodeagent" / "__pycache__"
    cache.mkdir()
    (cache / "cli.py").write_text("x")
    (installation / "profiles" / "notes.txt").write_text("not code")
    assert version_and_files(installation) == (original, files)

    module = installation / "profiles" / "layout.py"
    module.write_bytes(module.read_bytes() + b"#\n")
    changed, _ = version_and_files(installation)
    assert changed != original

    module.rename(installation / "profiles" / "layouts.py")
    renamed, _ = version_and_files(installation)
    assert renamed not in {original, changed}


@pytest.mark.parametrize(
    "arguments",
    [
        ["python", "/state dir/agent", "start"],
        ["echo", "$HOME `id` $(id)", "a'b\"c", "*", "~", "", "\\", "; rm -rf /", "ü"],
        ["echo", "two\nlines", "#", "-n", "&&", "!"],
    ],
)
def test_a_shell_sees_exactly_the_arguments(arguments: list[str]) -> None:
    line = shell_line(arguments)
    assert shlex.split(line) == arguments
    echo = [sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))"]
    result = subprocess.run(
        ["/bin/sh", "-c", shell_line([*echo, *arguments])],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == f"{arguments!a}\n"
