"""The outbox's file: half lines, damaged lines, full disks, rewriting."""

import logging
import os
from pathlib import Path

import pytest

from nodeagent.outbox.outbox_file import OutboxFile
from nodeagent.outbox.outbox_records import MarkScope
from tests.fakes.observations import committed


def seqs(file: OutboxFile) -> list[int]:
    return [held.seq for held in file.outbox.after(0)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outbox.jsonl"


def test_report_is_on_disk_before_anybody_is_told(path: Path) -> None:
    file = OutboxFile(path)
    sizes: list[int] = []
    size_before = path.stat().st_size
    file.on_report = lambda: sizes.append(path.stat().st_size)
    file.store(committed(1), 0.0)
    assert sizes[0] > size_before
    file.close()


def test_half_written_last_line_is_dropped_and_numbers_go_on(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = OutboxFile(path)
    for iteration in (1, 2):
        file.store(committed(iteration), 0.0)
    file.close()
    os.truncate(path, path.stat().st_size - 20)
    with caplog.at_level(logging.WARNING):
        again = OutboxFile(path)
    assert "half-written" in caplog.text
    assert seqs(again) == [1]
    again.store(committed(2), 0.0)
    again.close()
    last = OutboxFile(path)
    assert seqs(last) == [1, 2]
    last.close()


def test_damaged_line_costs_itself_only(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = OutboxFile(path)
    for iteration in (1, 2, 3):
        file.store(committed(iteration), 0.0)
    file.close()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"{]\n", *lines[3:]]))
    again = OutboxFile(path)
    assert f"path={path} line=3" in caplog.text
    assert seqs(again) == [1, 3]
    again.close()


def test_file_is_rewritten_when_most_of_it_is_acknowledged(path: Path) -> None:
    file = OutboxFile(path, compact_bytes=2000)
    for iteration in range(1, 101):
        file.store(committed(iteration), 0.0)
        file.acknowledge(iteration - 1)
    assert path.stat().st_size < 4000
    assert seqs(file) == [100]
    file.close()
    again = OutboxFile(path)
    assert (seqs(again), again.outbox.next_seq) == ([100], 101)
    again.close()


def test_marks_are_read_back(path: Path) -> None:
    file = OutboxFile(path)
    file.advance(MarkScope.FENCE, "gpt-a", 4)
    file.attach("run-1", 3, 0, [])
    file.advance(MarkScope.FENCE, "gpt-a", 2)
    file.close()
    again = OutboxFile(path)
    assert (again.outbox.run_id, again.outbox.term) == ("run-1", 3)
    assert again.outbox.mark(MarkScope.FENCE, "gpt-a") == 2  # the run cleared the 4
    again.close()


def test_failed_write_changes_nothing(path: Path) -> None:
    file = OutboxFile(path)
    file.store(committed(1), 0.0)
    content = path.read_bytes()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.store(committed(2), 0.0)
    assert seqs(file) == [1]
    assert path.read_bytes() == content


def test_full_disk_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "outbox.jsonl"
    file = OutboxFile(path)
    os.close(file._file)
    file._file = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OSError, match=r"No space|Invalid argument"):
        file.store(committed(1), 0.0)
    assert seqs(file) == []
    file.close()
