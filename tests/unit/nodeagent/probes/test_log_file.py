"""A log file is followed through whatever is done to it."""

import os
from pathlib import Path

import pytest

from nodeagent.probes.log_file import MAX_BEHIND_BYTES, MAX_READ_BYTES, LogFile
from tests.fakes.text_files import append


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kern.log"


def test_what_stands_there_at_first_is_history(path: Path) -> None:
    append(path, "old\n")
    log = LogFile(path)
    assert log.read() == []
    append(path, "new\nha")
    assert log.read() == [b"new"]
    append(path, "lf\n")
    assert log.read() == [b"half"]
    assert log.read() == []


def test_file_that_appears_later_is_read_from_its_beginning(path: Path) -> None:
    log = LogFile(path)
    with pytest.raises(FileNotFoundError):
        log.read()
    append(path, "first\n")
    assert log.read() == [b"first"]


def test_renamed_file_is_read_to_its_end_and_then_the_new_one(path: Path) -> None:
    append(path, "old\n")
    log = LogFile(path)
    append(path, "one\n")
    assert log.read() == [b"one"]
    path.rename(path.with_suffix(".1"))
    append(path.with_suffix(".1"), "two\nlast")
    assert log.read() == [b"two"]  # the next file is not there yet
    append(path, "three\n")
    assert log.read() == [b"last", b"three"]


def test_file_that_was_replaced_before_the_first_look_is_read_whole(path: Path) -> None:
    append(path, "a long line of history\n")
    log = LogFile(path)
    path.rename(path.with_suffix(".1"))
    append(path, "new\n")
    assert log.read() == [b"new"]


@pytest.mark.parametrize("after", ["short\n", "a line that is longer than all before it\n"])
def test_truncated_file_is_read_from_its_beginning(path: Path, after: str) -> None:
    path.touch()
    log = LogFile(path)
    append(path, "one line here\n")
    assert log.read() == [b"one line here"]
    os.truncate(path, 0)
    append(path, after)
    assert log.read() == [after.encode().rstrip()]


def test_file_that_can_not_be_read_is_tried_again(path: Path) -> None:
    path.symlink_to(path.name)  # leads to itself: refused for root too
    log = LogFile(path)
    with pytest.raises(OSError, match="symbolic links"):
        log.read()
    path.unlink()
    append(path, "new\n")
    assert log.read() == [b"new"]


def test_directory_in_the_place_of_the_file_is_survived(path: Path) -> None:
    path.mkdir()
    log = LogFile(path)
    with pytest.raises(OSError, match="no regular file"):
        log.read()
    path.rmdir()
    append(path, "new\n")
    assert log.read() == [b"new"]


def test_bytes_that_are_no_text_and_lines_without_end_are_survived(path: Path) -> None:
    path.touch()
    log = LogFile(path)
    append(path, b"\xff\xfe\n" + b"x" * 90_000 + b"\nnext\n")
    broken, long, following = log.read()
    assert (broken, long[:3], following) == (b"\xff\xfe", b"xxx", b"next")
    assert len(long) < 90_000


def test_reader_that_is_far_behind_goes_on_near_the_end(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.touch()
    log = LogFile(path)
    line = b"0123456789abcde\n"
    append(path, line * (2 * MAX_BEHIND_BYTES // len(line)) + b"newest\n")
    lines = log.read()
    while more := log.read():
        lines += more
    assert lines[-1] == b"newest"
    assert sum(map(len, lines)) < MAX_BEHIND_BYTES
    assert caplog.text.count("bytes skipped") == 1
    num_skipped = path.stat().st_size - MAX_READ_BYTES
    assert num_skipped > 0
    assert log.take_lost().num_bytes == num_skipped
    assert log.take_lost().num_bytes == 0
