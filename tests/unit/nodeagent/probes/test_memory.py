"""Memory of a node, read from files."""

import os
from pathlib import Path

from nodeagent.detect.memory_shortage import GroupReading
from nodeagent.probes.memory import read_memory


def test_node_pressure_and_groups_are_read(tmp_path: Path) -> None:
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "pressure").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal:  1000 kB\nMemAvailable:  250 kB\nHugePages: 0\n")
    (proc / "pressure/memory").write_text(
        "some avg10=9.00 avg60=1.00 avg300=0.00 total=7\nfull avg10=4.50 avg60=0 avg300=0 total=3\n"
    )
    (proc / "42").mkdir()
    (proc / "42/cgroup").write_text("0::/job\n")
    (cgroup / "job").mkdir(parents=True)
    for name, text in (("events", "oom_kill 0"), ("max", "500"), ("current", "400")):
        (cgroup / "job" / f"memory.{name}").write_text(text)
    reading = read_memory([42, 43], proc, cgroup)
    assert (reading.total_bytes, reading.available_bytes) == (1000 * 1024, 250 * 1024)
    assert reading.stalled_percent == 4.5
    assert reading.groups == (GroupReading(str(cgroup / "job"), 400, 500),)


def test_machine_without_these_files_reads_as_nothing(tmp_path: Path) -> None:
    reading = read_memory([42], tmp_path, tmp_path)
    assert (reading.total_bytes, reading.stalled_percent, reading.groups) == (0, None, ())


def test_this_machine_has_memory() -> None:
    reading = read_memory([os.getpid()])
    assert 0 < reading.available_bytes < reading.total_bytes
