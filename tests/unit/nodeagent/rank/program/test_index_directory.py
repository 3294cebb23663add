"""One process builds the indices of a directory; the others wait for its done-mark."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.process_tools.node_clock import SystemNodeClock
from nodeagent.rank.program.index_directory import IndexDirectory, IndexDirectoryError
from tests.fakes.polling import wait_until

FORK = multiprocessing.get_context("fork")
WHOLE = b"whole" * 1000


def indices(path: Path, limit_s: float = 30.0) -> IndexDirectory:
    return IndexDirectory(path, "key", limit_s, SystemNodeClock().monotonic_s)


def build(staging: Path) -> None:
    (staging / "a.npy").write_bytes(WHOLE)


def not_needed(_: Path) -> None:
    raise AssertionError("the indices are built already")


def build_and_count(path: Path, counts: Path) -> None:
    def build_slowly(staging: Path) -> None:
        (counts / str(os.getpid())).touch()
        (staging / "a.npy").write_bytes(WHOLE[:7])
        time.sleep(0.2)
        build(staging)

    indices(path).ensure(build_slowly)
    assert (path / "a.npy").read_bytes() == WHOLE


def hang(path: Path, has_begun: Path) -> None:
    def never(staging: Path) -> None:
        (staging / "a.npy").write_bytes(WHOLE[:7])
        has_begun.touch()
        time.sleep(600)

    indices(path).ensure(never)


@pytest.fixture
def builder(tmp_path: Path) -> multiprocessing.process.BaseProcess:
    """A process that holds the lock, has written half a file, and does not end."""
    process = FORK.Process(target=hang, args=(tmp_path / "index", tmp_path / "begun"), daemon=True)
    process.start()
    wait_until((tmp_path / "begun").exists, limit_s=30)
    return process


def test_of_many_processes_one_builds_and_all_find_whole_files(tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    counts.mkdir()
    processes = [
        FORK.Process(target=build_and_count, args=(tmp_path / "index", counts)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert len(list(counts.iterdir())) == 1


def test_a_process_that_comes_later_reads_only(tmp_path: Path) -> None:
    indices(tmp_path).ensure(build)
    indices(tmp_path).ensure(not_needed)


def test_files_without_a_mark_are_built_again(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(WHOLE[:7])
    indices(tmp_path).ensure(build)
    assert (tmp_path / "a.npy").read_bytes() == WHOLE


@pytest.mark.parametrize(
    "damage",
    [Path.unlink, lambda path: path.write_bytes(WHOLE[:7])],
    ids=["removed", "cut"],
)
def test_files_that_are_not_those_of_the_mark_are_built_again(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    indices(tmp_path).ensure(build)
    damage(tmp_path / "a.npy")
    indices(tmp_path).ensure(build)
    assert (tmp_path / "a.npy").read_bytes() == WHOLE


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"files": 3}', '{"files": {"a.npy": '])
def test_a_damaged_mark_counts_as_none(tmp_path: Path, text: str) -> None:
    indices(tmp_path).ensure(build)
    (tmp_path / "unicron-key.done").write_text(text)
    assert not indices(tmp_path).is_done()


def test_a_killed_builder_frees_the_lock_and_the_next_one_builds(
    tmp_path: Path, builder: multiprocessing.process.BaseProcess
) -> None:
    assert builder.pid is not None
    os.kill(builder.pid, signal.SIGKILL)
    indices(tmp_path / "index").ensure(build)
    assert (tmp_path / "index" / "a.npy").read_bytes() == WHOLE
    assert not (tmp_path / "index" / ".unicron-building").exists()


def test_a_builder_that_takes_too_long_is_named_with_the_mend(
    tmp_path: Path, builder: multiprocessing.process.BaseProcess
) -> None:
    with pytest.raises(IndexDirectoryError) as caught:
        indices(tmp_path / "index", limit_s=0.2).ensure(not_needed)
    assert str(caught.value).startswith(f"{tmp_path / 'index'}: the indices were not whole after")
    assert f"process {builder.pid} on {os.uname().nodename} holds the lock" in str(caught.value)
    assert "raise index_limit_s of the program, else kill it" in str(caught.value)
    builder.kill()


def test_a_builder_that_fails_leaves_no_mark_and_the_next_one_builds(tmp_path: Path) -> None:
    def fail(staging: Path) -> None:
        (staging / "a.npy").write_bytes(WHOLE)
        raise FileNotFoundError("no such corpus")

    with pytest.raises(FileNotFoundError, match="no such corpus"):
        indices(tmp_path).ensure(fail)
    assert not indices(tmp_path).is_done()
    indices(tmp_path).ensure(build)


def test_a_directory_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(IndexDirectoryError, match=r"file/index: the indices can't be written"):
        indices(tmp_path / "file" / "index").ensure(build)
