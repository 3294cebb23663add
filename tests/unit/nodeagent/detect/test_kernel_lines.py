"""Which lines of the kernel log are reported, how often, and with which words."""

import pytest

from nodeagent.detect.kernel_lines import (
    MAX_REPORTS,
    MAX_TEXT_BYTES,
    REPEAT_S,
    WINDOW_S,
    KernelLogDetector,
)
from profiles.faults.catalogue import default_catalogue
from profiles.faults.excerpt import classify_excerpt

XID_79 = b"[ 812.4] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
LINK_DOWN = b"[ 900.1] mlx5_core 0000:5e:00.0 eth2: Link down"
LINK_UP = b"[ 902.1] mlx5_core 0000:5e:00.0 eth2: Link up"
OOM = b"[ 910.0] Out of memory: Killed process 4242 (python) total-vm:1kB, anon-rss:1kB"


@pytest.fixture
def detector() -> KernelLogDetector:
    return KernelLogDetector(default_catalogue())


def status_of(text: str) -> str:
    """What the controller makes of a report's text."""
    return classify_excerpt(text).status


@pytest.mark.parametrize(
    ("line", "status", "subject"),
    [
        (XID_79, "gpu_driver_error", "PCI 0000:3b:00"),
        (LINK_DOWN, "link_flapping", "eth2"),
        (OOM, "exited_abnormally", "process 4242"),
        (b"EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0", "ecc_error", ""),
        (b"nvme nvme0: I/O 12 QID 3 timeout, aborting", "other_software_error", ""),
        (b"EXT4-fs error (device sda1): bad header", "other_software_error", ""),
    ],
)
def test_fault_is_reported_in_words_that_name_it(
    detector: KernelLogDetector, line: bytes, status: str, subject: str
) -> None:
    (found,) = detector.take([line], 0.0)
    assert (found.probe, found.sign, found.subject) == ("kernel log", "message", subject)
    assert line.decode() in found.text
    assert status_of(found.text) == status


def test_harmless_lines_are_not_reported(detector: KernelLogDetector) -> None:
    lines = [
        b"[ 0.1] Linux version 6.1",
        b"[ 3.1] eth0: Link is Up - 25Gbps",
        b"[ 9.1] EDAC MC0: 1 CE memory read error on CPU",
        b"[ 9.2] EXT4-fs (sda1): mounted filesystem",
        b"",
        b"\xff\xfe\x00 rubbish",
    ]
    assert detector.take(lines, 0.0) == []


def test_repeats_are_counted_and_told_with_the_next_report(detector: KernelLogDetector) -> None:
    assert len(detector.take([XID_79], 0.0)) == 1
    for second in range(1, 6):
        assert detector.take([XID_79], float(second)) == []
    (again,) = detector.take([XID_79], REPEAT_S + 1.0)
    assert again.num_dropped == 5


def test_same_fault_of_another_device_is_no_repeat(detector: KernelLogDetector) -> None:
    detector.take([XID_79], 0.0)
    (found,) = detector.take([XID_79.replace(b"3b:00", b"86:00")], 1.0)
    assert found.subject == "PCI 0000:86:00"


def test_lesser_fault_is_not_hidden_by_a_graver_one_before_it(
    detector: KernelLogDetector,
) -> None:
    detector.take([XID_79], 0.0)
    (found,) = detector.take([OOM], 25.0)
    assert found.subject == "process 4242"
    # ... and the graver one, which nobody repeated, is not told again either.
    assert detector.take([b"[ 911.0] usb 1-1: new device"], 30.0) == []


def test_lines_that_mean_something_together_may_come_apart(detector: KernelLogDetector) -> None:
    first = detector.take([b"INFO: task python:77 blocked for more than 120 seconds."], 0.0)
    assert [status_of(found.text) for found in first] == ["task_hang"]
    (found,) = detector.take([b" nvidia_ioctl+0x1b0/0x2f0 [nvidia]"], 0.5)
    assert status_of(found.text) == "gpu_driver_error"


def test_link_that_goes_down_again_is_told_again(detector: KernelLogDetector) -> None:
    times = [detector.take([line], now_s) for line, now_s in _flaps()]
    assert [len(found) for found in times] == [1, 0, 1, 0]


def _flaps() -> list[tuple[bytes, float]]:
    return [(LINK_DOWN, 0.0), (LINK_UP, 2.0), (LINK_DOWN, 30.0), (LINK_UP, 31.0)]


def test_storm_is_bounded_and_does_not_silence_a_graver_fault(
    detector: KernelLogDetector,
) -> None:
    num_reports = 0
    for number in range(200):
        line = b"[ 900.0] mlx5_core 0000:5e:00.0 eth%d: Link down" % number
        num_reports += len(detector.take([line], number * 0.1))
    assert num_reports <= MAX_REPORTS
    (found,) = detector.take([XID_79], 20.1)
    assert status_of(found.text) == "gpu_driver_error"
    assert found.num_dropped == 200 - num_reports
    assert detector.take([LINK_DOWN], 20.2 + WINDOW_S)


def test_storm_in_one_call_is_one_short_report(detector: KernelLogDetector) -> None:
    (found,) = detector.take([OOM.replace(b"4242", b"%d" % pid) for pid in range(3000)], 0.0)
    assert len(found.text.encode()) <= MAX_TEXT_BYTES
    assert status_of(found.text) == "exited_abnormally"


def test_neighbours_come_along(detector: KernelLogDetector) -> None:
    lines = [b"pcieport 0000:3a:00.0: something", XID_79, b"CPU: 3 PID: 12", b"Call Trace:"]
    (found,) = detector.take([b"long before", *lines, b"a", b"b"], 0.0)
    assert found.text == "\n".join(line.decode() for line in [*lines, b"a"])


def oom_killer(pid: int) -> list[bytes]:
    return [
        b"[38658.1] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0",
        b"[38658.1] CPU: 0 UID: 0 PID: %d Comm: python Not tainted" % pid,
        b"[38658.2] oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=%d,uid=0" % pid,
        b"[38658.3] Memory cgroup out of memory: Killed process %d (python) total-vm:1kB" % pid,
    ]


def test_every_process_that_was_killed_for_memory_is_told(detector: KernelLogDetector) -> None:
    for number, pid in enumerate((71, 72)):
        (found,) = detector.take(oom_killer(pid), float(number))
        assert found.subject == f"process {pid}"
        assert found.text == "\n".join(line.decode() for line in oom_killer(pid))


def test_long_and_broken_lines_are_cut_and_still_named(detector: KernelLogDetector) -> None:
    (found,) = detector.take([XID_79 + b" \xff\xfe\x1b[31m" + b"x" * 90_000], 0.0)
    assert len(found.text.encode()) <= MAX_TEXT_BYTES
    assert status_of(found.text) == "gpu_driver_error"
