"""The watch of the kernel log: what its reader loses is told."""

import threading
from pathlib import Path

from nodeagent.health.kernel_watch import KernelWatch
from nodeagent.probes.kernel_log import KernelLog
from nodeagent.probes.log_file import MAX_BEHIND_BYTES
from nodeagent.process_tools.node_clock import SystemNodeClock
from nodeagent.protocol.findings import NodeFinding
from profiles.faults.catalogue import Catalogue, default_catalogue


def test_log_that_grows_faster_than_it_is_read_is_one_finding(tmp_path: Path) -> None:
    path = tmp_path / "kernel.log"
    path.touch()
    found: list[NodeFinding] = []
    watch = KernelWatch(KernelLog(path), SystemNodeClock(), found.append)
    for _ in range(3):
        with path.open("ab") as log:
            log.write(b"usb 1-1: reset high-speed USB device\n" * (MAX_BEHIND_BYTES // 16))
        watch.read()
    (told,) = found
    assert (told.sign, told.is_over) == ("lines_lost", False)
    assert "bytes of the log were lost" in told.text


def test_lines_that_wait_for_the_catalogue_are_bounded_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "kernel.log"
    path.touch()
    found: list[NodeFinding] = []
    watch = KernelWatch(KernelLog(path), SystemNodeClock(), found.append)
    for _ in range(2):
        with path.open("ab") as log:
            log.write(b"line\n" * 9_000)
        watch.read()
    assert [told.value for told in found] == [8_000]


async def test_catalogue_that_takes_long_is_waited_for_and_not_loaded_beside_itself(
    tmp_path: Path,
) -> None:
    go_on = threading.Event()
    begun: list[int] = []

    def load() -> Catalogue | None:
        begun.append(1)
        go_on.wait(30)
        return default_catalogue()

    log, found = KernelLog(tmp_path / "kernel.log"), list[NodeFinding]()
    hasty = KernelWatch(log, SystemNodeClock(), found.append, load, load_limit_s=0.02)
    for _ in range(2):
        assert await hasty._load_detector() is None
    go_on.set()
    hasty._load_limit_s = 30.0
    assert await hasty._load_detector() is not None
    assert begun == [1]
