"""Where the kernel log is read, and that nothing which is wrong with that ends the reading."""

import logging
import os
from pathlib import Path

import pytest

from nodeagent.detect.lost_lines import Lost
from nodeagent.probes.kernel_log import RETRY_S, KernelLog
from nodeagent.probes.kmsg import KernelMessages, SequenceGaps, as_dmesg
from nodeagent.probes.systemd_journal import SystemdJournal
from tests.fakes.polling import wait_until


class Source:
    """Reads what it was given; breaks where that is an exception."""

    name = "a source"

    def __init__(self, *answers: list[bytes] | OSError) -> None:
        self.answers = list(answers)
        self.is_closed = False

    def read(self) -> list[bytes]:
        answer = self.answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    def take_lost(self) -> Lost:
        return Lost()

    def close(self) -> None:
        self.is_closed = True


def refuse() -> Source:
    raise PermissionError(13, "Permission denied", "/dev/kmsg")


def test_first_place_that_can_be_read_is_read() -> None:
    source = Source([b"one"])
    log = KernelLog(openings=[refuse, lambda: source])
    assert log.read(0.0) == [b"one"]
    assert log.state == "follows a source"


def test_refusal_is_said_once_and_tried_again_later(caplog: pytest.LogCaptureFixture) -> None:
    tries: list[float] = []

    def opening() -> Source:
        tries.append(now_s)
        return refuse()

    log = KernelLog(openings=[opening])
    for now_s in (0.0, 1.0, RETRY_S, RETRY_S + 1):
        assert log.read(now_s) == []
    assert tries == [0.0, RETRY_S]
    assert "Permission denied" in log.state
    warnings = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert [one.getMessage().count("Permission denied") for one in warnings] == [1]


def test_source_that_breaks_is_closed_and_another_one_opened() -> None:
    broken, whole = Source([b"one"], OSError("journalctl ended")), Source([b"two"])
    sources = [broken, whole]
    log = KernelLog(openings=[lambda: sources.pop(0)])
    assert [log.read(now_s) for now_s in (0.0, 1.0, 2.0)] == [[b"one"], [], []]
    assert broken.is_closed
    assert log.read(1.0 + RETRY_S) == [b"two"]
    assert log.state == "follows a source"


def test_named_file_is_the_only_place_and_may_come_late(tmp_path: Path) -> None:
    path = tmp_path / "kernel.log"
    log = KernelLog(path)
    assert log.read(0.0) == []
    assert "No such file" in log.state
    path.write_text("one\n")
    assert log.read(0.5) == [b"one"]
    assert log.state == f"follows {path}"
    log.close()


def test_record_of_the_kernel_becomes_a_line_of_dmesg() -> None:
    record = b"3,1234,98765432,-;NVRM: Xid (PCI:0000:3b:00): 79\n SUBSYSTEM=pci\n DEVICE=+pci\n"
    assert as_dmesg(record) == b"[   98.765432] NVRM: Xid (PCI:0000:3b:00): 79"
    assert as_dmesg(b"rubbish") == b""


def test_overwritten_records_are_counted_by_the_numbers_around_them() -> None:
    gaps = SequenceGaps()
    gaps.note_overrun()
    gaps.take(b"6,500,1,-;the oldest that is left, and nobody knows how many were before it")
    assert gaps.take_lost() == 1
    gaps.take(b"6,501,1,-;next")
    gaps.take(b"6,505,1,-;nobody said that any is missing")
    assert gaps.take_lost() == 0
    gaps.note_overrun()
    gaps.note_overrun()
    gaps.take(b"6,600,1,-;after 94 that are gone")
    assert gaps.take_lost() == 94
    assert gaps.take_lost() == 0


def test_device_of_the_kernel_is_read_from_its_end_where_that_is_allowed() -> None:
    try:
        kernel = KernelMessages()
    except OSError as error:
        pytest.skip(f"/dev/kmsg: {error}")
    kernel.read()
    try:
        with Path("/dev/kmsg").open("wb", buffering=0) as device:
            device.write(b"<6>unicron: a line written by its tests\n")
    except OSError as error:
        pytest.skip(f"/dev/kmsg: {error}")
    assert kernel.read()[-1].endswith(b"unicron: a line written by its tests")
    kernel.close()
    kernel.close()


@pytest.fixture
def journalctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``journalctl`` of our own, first in the path."""
    program = tmp_path / "journalctl"
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return program


def test_journal_is_followed_line_by_line(journalctl: Path) -> None:
    journalctl.write_text('#!/bin/sh\necho "$@"\nexec sleep 60\n')
    journalctl.chmod(0o755)
    journal = SystemdJournal()
    lines: list[bytes] = []

    def has_line() -> bool:
        lines.extend(journal.read())
        return bool(lines)

    wait_until(has_line, limit_s=5)
    assert lines[0].startswith(b"-b -f -n 0 -o short-iso --no-pager _TRANSPORT=kernel + ")
    assert journal.take_lost() == Lost(), "journald's own words tell"
    journal.close()
    journal.close()


def test_journal_that_ends_says_why(journalctl: Path) -> None:
    journalctl.write_text("#!/bin/sh\necho No journal files were opened >&2\nexit 1\n")
    journalctl.chmod(0o755)
    log = KernelLog(openings=[SystemdJournal])
    wait_until(lambda: log.read(0.0) or "No journal files" in log.state, limit_s=5)
