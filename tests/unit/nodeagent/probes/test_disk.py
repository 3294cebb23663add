"""Free space, looked at where training writes."""

from pathlib import Path

from nodeagent.probes.disk import read_disks


def test_one_file_system_is_read_once_under_its_first_name(tmp_path: Path) -> None:
    (reading,) = read_disks([tmp_path / "not made yet" / "checkpoints", tmp_path])
    assert reading.path == str(tmp_path / "not made yet" / "checkpoints")
    assert 0 <= reading.free_bytes < reading.total_bytes


def test_other_file_system_is_read_too(tmp_path: Path) -> None:
    readings = read_disks([tmp_path, Path("/proc"), tmp_path])
    assert [reading.path for reading in readings] == [str(tmp_path), "/proc"]
