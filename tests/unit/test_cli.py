"""``unicron`` imports only what a command needs, and reports errors of standard output."""

import errno
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from pydantic_core import SchemaError

from console.cli import main as run_console
from controller.cli import main
from controller.entry_point import run_quietly
from tests.fakes.directories import short_directory

LISTED = "import sys; from controller.cli import main; code = main(['policy', 'explain', '--json']); print(*sys.modules)"


def test_a_command_imports_what_it_needs() -> None:
    words = [sys.executable, "-c", LISTED]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    modules = done.stdout.splitlines()[-1].split()
    assert "controller.settings.policy_cli" in modules
    assert not {"controller.demo.demo_cli", "controller.simulation.simulate_cli"} & set(modules)


IMPORTS = "import sys, importlib; importlib.import_module(sys.argv[1]); print(*sys.modules)"
SLOW = {"asyncssh", "numpy", "cryptography", "matplotlib", "textual", "apprise", "cattrs"}


@pytest.mark.parametrize("verb", ["decision_cli", "events_cli", "node_cli", "tables_cli"])
def test_verbs_import_nothing_slow(verb: str) -> None:
    words = [sys.executable, "-c", IMPORTS, f"controller.operate.{verb}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert SLOW & set(done.stdout.split()) == set()


def test_commands_of_a_node_import_neither_the_protocol_nor_the_agent() -> None:
    words = [sys.executable, "-c", IMPORTS, "nodeagent.cli"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    slow = {"asyncio", "nodeagent.protocol.messages", "nodeagent.agent"}
    assert slow & set(done.stdout.split()) == set()


AGENT = """
import gc
gc.disable()
from nodeagent.agent import Agent
async def run(self): print(gc.isenabled(), gc.get_freeze_count() > 0)
Agent.run = run
from nodeagent.cli import main
main(["run", "--state-dir", "node", "--node", "n1", "--num-workers", "1"])
"""


def test_an_agent_looks_for_garbage_but_not_in_what_it_imports() -> None:
    words = [sys.executable, "-c", AGENT]
    with short_directory() as directory:
        done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=directory)
    assert done.stdout == "True True\n"


def test_nobody_looks_for_garbage_while_a_command_is_loaded() -> None:
    seen = list[bool]()

    def load() -> Callable[[], int]:
        seen.append(gc.isenabled())
        return lambda: int(gc.isenabled())

    assert run_quietly(load) == 1
    assert seen == [False]


WITH_A_PLUGIN = """
import gc, os
from controller.python_settings import quick_imports
with quick_imports():
    import controller.api.views
    print("made", gc.isenabled())
print(os.environ.get("PYDANTIC_DISABLE_PLUGINS"), gc.isenabled(), gc.get_freeze_count() > 0)
from pydantic import create_model
create_model("Later")
"""


PLUGIN = """
print("looked for")
class plugin:
    new_schema_validator = lambda *words, **options: (None, None, None)
"""


@pytest.mark.parametrize("wish", [{}, {"PYDANTIC_DISABLE_PLUGINS": ""}])
def test_plugins_of_pydantic_are_not_looked_for_in_imports_but_for_what_comes_later(
    wish: dict[str, str], tmp_path: Path
) -> None:
    info = tmp_path / "telling-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: telling\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pydantic]\ntelling = telling:plugin\n")
    (tmp_path / "telling.py").write_text(PLUGIN)
    found = os.environ | {"PYTHONPATH": str(tmp_path)} | wish
    words = [sys.executable, "-W", "ignore", "-c", WITH_A_PLUGIN]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=found)
    looked, kept = ["looked for"], wish.get("PYDANTIC_DISABLE_PLUGINS")
    expected = ["made False", f"{kept} True True"]
    lines = done.stdout.splitlines()
    assert lines == (expected + looked if kept is None else looked + expected), done.stderr


SEEN_AT_THE_END = """
import atexit, gc, runpy, sys
atexit.register(lambda: print(gc.get_threshold()[0] > 10_000, gc.get_freeze_count() > 0))
sys.argv = ["unicron", "policy", "explain"]
runpy.run_module("controller.cli", run_name="__main__", alter_sys=True)
"""


def test_a_controller_that_is_started_as_a_module_looks_for_garbage_as_seldom() -> None:
    """As its systemd unit and the console's demo start it."""
    words = [sys.executable, "-c", SEEN_AT_THE_END]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True True"


NUMPY_AFTERWARDS = """
import os
from controller.cli import main
main(["policy", "explain"])
import numpy
print(os.environ["OPENBLAS_NUM_THREADS"], len(os.listdir("/proc/self/task")))
"""


@pytest.mark.parametrize(("wish", "found"), [({}, "1 1"), ({"OPENBLAS_NUM_THREADS": "2"}, "2 2")])
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core has one thread")
def test_a_command_imports_numpy_without_more_threads(wish: dict[str, str], found: str) -> None:
    own = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    words = [sys.executable, "-c", NUMPY_AFTERWARDS]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=own | wish)
    assert done.stdout.splitlines()[-1] == found


def test_the_version_is_read_when_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"unicron {version('unicron')}\n"
    with pytest.raises(SystemExit) as caught:
        run_console(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"unicron-console {version('unicron')}\n"


def test_a_version_that_nobody_knows_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == "unicron (not installed)\n"


def test_a_demo_that_can_not_write_is_no_error_of_standard_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr("controller.demo.demo_cli.run", run)
    with pytest.raises(OSError, match="no space left"):
        main(["demo", "--headless"])


def test_an_unknown_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["bogus"])
    assert caught.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("unicron: argument COMMAND: invalid choice: 'bogus' (choose from ")


BEGUN = """
from controller.entry_point import run_quietly
def load():
    print("begun", flush=True)
    from controller.cli import main
    return lambda: main(["simulate", "trace-a"])
raise SystemExit(run_quietly(load))
"""


def test_an_interrupt_that_a_library_wraps_prints_no_traceback() -> None:
    def interrupted() -> int:
        raise SchemaError('Error building "model" validator:\n  KeyboardInterrupt: ')

    def broken() -> int:
        raise SchemaError('Error building "model" validator:\n  KeyError: ')

    assert run_quietly(lambda: interrupted) == 128 + signal.SIGINT
    with pytest.raises(SchemaError):
        run_quietly(lambda: broken)


@pytest.mark.parametrize("delay_s", [0.0, 0.1, 0.3])
def test_an_early_interrupt_prints_no_traceback(delay_s: float) -> None:
    begun = subprocess.Popen(
        [sys.executable, "-c", BEGUN], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert begun.stdout is not None
    assert begun.stdout.readline() == "begun\n"
    time.sleep(delay_s)
    begun.send_signal(signal.SIGINT)
    _, errors = begun.communicate(timeout=60)
    assert "Traceback" not in errors
    assert begun.returncode in {-signal.SIGINT, 128 + signal.SIGINT}


WITHOUT_TORCH = """
import importlib, pkgutil, sys
sys.modules.update(torch=None, megatron=None)
import console, controller
for package in (console, controller):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
from controller.cli import main
sys.exit(main(["demo", "--headless"]))
"""


def test_a_machine_without_torch_runs_all_but_ranks() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "this machine, which has no torch and no megatron: pip install" in done.stderr
