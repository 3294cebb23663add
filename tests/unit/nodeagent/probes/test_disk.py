"""Free space, looked at where training writes."""

import threading
from pathlib import Path

from nodeagent.probes.disk import Disks, FileSystem, file_system_of
from nodeagent.process_tools.node_clock import SystemNodeClock


def test_one_file_system_is_read_once_under_its_first_name(tmp_path: Path) -> None:
    look = Disks(SystemNodeClock()).read([tmp_path / "not made yet" / "checkpoints", tmp_path])
    (reading,) = look.readings
    assert reading.path == str(tmp_path / "not made yet" / "checkpoints")
    assert 0 <= reading.free_bytes < reading.total_bytes


def test_other_file_system_is_read_too(tmp_path: Path) -> None:
    look = Disks(SystemNodeClock()).read([tmp_path, Path("/proc"), tmp_path])
    assert [reading.path for reading in look.readings] == [str(tmp_path), "/proc"]


def test_path_that_can_not_be_looked_at_has_its_reason_and_hides_no_other(tmp_path: Path) -> None:
    too_long = tmp_path / (300 * "x")
    look = Disks(SystemNodeClock()).read([too_long, tmp_path])
    assert look.reason_by_path == {str(too_long): "File name too long"}
    assert [reading.path for reading in look.readings] == [str(tmp_path)]


def test_path_that_hangs_hides_no_other_and_is_asked_once(tmp_path: Path) -> None:
    hung, go_on = Path("/dead/nfs"), threading.Event()
    asked: list[Path] = []

    def ask(path: Path) -> FileSystem:
        asked.append(path)
        if path == hung:
            go_on.wait(10)
        return file_system_of(tmp_path)

    disks = Disks(SystemNodeClock(), limit_s=1.0, ask=ask)
    for _ in range(2):
        look = disks.read([hung, tmp_path])
        assert look.reason_by_path == {str(hung): "no answer after 1 s"}
        assert [reading.path for reading in look.readings] == [str(tmp_path)]
    assert asked.count(hung) == 1
    go_on.set()
    look = Disks(SystemNodeClock(), ask=ask).read([hung, tmp_path])
    assert [reading.path for reading in look.readings] == [str(hung)]
