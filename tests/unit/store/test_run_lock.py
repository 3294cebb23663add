"""The lock of a run's directory: one holder, named to whoever comes second."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from controller.store.run_lock import RunLock, RunLockedError

NOON_S = 1_800_000_000.0
HOLD = """
import sys, time
from pathlib import Path
from controller.store.run_lock import RunLock
lock = RunLock(Path(sys.argv[1]), 1_800_000_000.0)
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_holder_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    lock = RunLock(tmp_path, NOON_S)
    with pytest.raises(RunLockedError) as caught:
        RunLock(tmp_path, NOON_S + 1)
    text = str(caught.value)
    assert text.startswith(
        f"{tmp_path}: a controller acts on this run already: process {os.getpid()}"
    )
    assert (
        f"instance {lock.holder.instance}, since 2027-01-15T08:00:00+00:00; stop it first" in text
    )
    assert json.loads((tmp_path / "lock").read_text()) == lock.holder.model_dump()
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o600
    lock.close()
    lock.close()
    again = RunLock(tmp_path, NOON_S)
    assert again.holder.instance != lock.holder.instance
    again.close()


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(RunLockedError, match=f"process {process.pid} on "):
            RunLock(tmp_path, NOON_S)
        process.kill()
        process.wait()
        RunLock(tmp_path, NOON_S).close()


@pytest.mark.parametrize("text", [b"", b"{", b'{"host": 1}', b"\xff" * 9000])
def test_an_unreadable_name_is_no_obstacle(tmp_path: Path, text: bytes) -> None:
    lock = RunLock(tmp_path, NOON_S)
    (tmp_path / "lock").write_bytes(text)
    with pytest.raises(RunLockedError, match="another controller acts on this run; stop it first"):
        RunLock(tmp_path, NOON_S)
    lock.close()
    RunLock(tmp_path, NOON_S).close()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("precious")
    (tmp_path / "lock").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        RunLock(tmp_path, NOON_S)
    assert target.read_text() == "precious"
