"""``attach()`` in a program that no agent has started: nothing changes."""

import os
import subprocess
import sys

PROGRAM = """
import sys, threading
before = sys.excepthook, threading.excepthook
from nodeagent.public import attach
monitor = attach()
monitor.iteration(1, loss=0.5)
assert not monitor.is_attached
assert (sys.excepthook, threading.excepthook) == before
assert threading.active_count() == 1
assert "torch" not in sys.modules
"""


def run(program: str = PROGRAM, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {k: v for k, v in os.environ.items() if not k.startswith("UNICRON_")}
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_without_an_agent_it_does_nothing_and_needs_no_torch() -> None:
    finished = run()
    assert finished.returncode == 0, finished.stderr


def test_half_an_environment_is_one_clear_error() -> None:
    finished = run(UNICRON_RANKS_SOCKET="/nowhere/ranks.sock", UNICRON_TASK="mine")
    assert finished.returncode == 1
    assert "UNICRON_RANKS_SOCKET is set, but UNICRON_GENERATION is not" in finished.stderr


NAMES = """
import sys
import nodeagent.public
assert "torch" not in sys.modules
assert set(nodeagent.public.__all__) <= set(dir(nodeagent.public))
for module in ("nodeagent.public.attach", "nodeagent.public.no_such_name"):
    try:
        __import__(module)
    except ImportError:
        continue
    raise AssertionError(module)
assert not hasattr(nodeagent.public, "no_such_name")
from nodeagent.public import Context, Loop
from nodeagent.rank.program import loop
assert (Context, Loop) == (loop.Context, loop.Loop)
"""


def test_torch_is_imported_only_where_a_training_loop_is_named() -> None:
    finished = run(NAMES)
    assert finished.returncode == 0, finished.stderr
