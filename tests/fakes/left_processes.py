"""A plugin of pytest: processes that a failed test has left are ended.

They would hold ports, memory and cores, and a later test would fail because of them.
"""

import contextlib
import gc
import subprocess
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

_CHILDREN = Path("/proc/self/task")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Run a test; if it does not pass, kill the children that it has started, with theirs."""
    before = _children()
    try:
        return (yield)
    except BaseException:
        _end(_children() - before)
        raise


def _children() -> set[int]:
    found = set()
    for thread in _CHILDREN.iterdir():
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            found |= {int(pid) for pid in (thread / "children").read_text().split()}
    return found


def _end(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            child = psutil.Process(pid)
            for process in [*child.children(recursive=True), child]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
    # What nobody waits for would warn in a later test.
    for each in gc.get_objects() if pids else []:
        if isinstance(each, subprocess.Popen) and each.pid in pids:
            each.wait()
