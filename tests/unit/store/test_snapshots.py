"""Snapshots: the state comes back equal after every kind of event; a crash loses nothing."""

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from controller.core.events import EventBody
from controller.core.machine import Machine
from controller.store import state_codec
from controller.store.compaction import compact, delete_old
from controller.store.journal import Journal, JournalError, read_journal
from controller.store.replay import ReplayedRun, replay
from controller.store.segments import (
    SegmentError,
    closed_segments,
    compressed,
    decompressed,
    segments_directory,
    segments_of,
)
from controller.store.snapshots import (
    SnapshotError,
    read_snapshot,
    restore,
    saved_state,
    snapshots_of,
    write_snapshot,
)
from controller.store.state_codec import decode_state, encode_state
from tests.fakes.recorded_worlds import eventful_world
from tests.fakes.world import World

DAY_S = 86_400.0


@pytest.fixture(scope="module")
def world() -> World:
    return eventful_world()


def copied(machine: Machine, run: ReplayedRun) -> tuple[Machine, ReplayedRun]:
    """Return what a snapshot makes of a machine and its run."""
    text = json.dumps(encode_state(saved_state(machine, run)))
    saved = decode_state(json.loads(text))
    return saved.machine(), saved.run


def test_the_state_comes_back_equal_after_every_kind_of_event_and_goes_on_equally(
    world: World,
) -> None:
    seen = {type(event.body) for event in world.events}
    assert seen == set(get_args(EventBody)), "each kind of event happens"
    machine, run, last = Machine(), ReplayedRun(), dict[type, int]()
    for event in world.events:
        kind = type(event.body)
        # Every kind several times, and all events now and then.
        is_tried = last.get(kind, 0) < 6 or event.number % 20 == 0
        last[kind] = last.get(kind, 0) + 1
        if not is_tried:
            run = replay(machine, [event], run)
            continue
        other, other_run = copied(machine, run)
        assert other.state == machine.state
        assert (other.marks, other.policy, other_run) == (machine.marks, machine.policy, run)
        other_run = replay(other, [event], other_run)
        run = replay(machine, [event], run)
        assert other.state == machine.state, event
        assert other_run == run
    assert machine.state == world.machine.state


def journal_of(world: World, directory: Path, segment_events: int = 50) -> Path:
    """Write the journal of a run in short segments; return the one in use."""
    path = directory / "journal.jsonl"
    journal = Journal(path, segment_events=segment_events)
    for event in world.events:
        journal.append(event)
        if journal.is_long:
            journal.commit_at_once()
            journal.begin_segment()
    journal.close()
    return path


def assert_restored(path: Path, world: World) -> None:
    machine, run = restore(path)
    assert machine.state == world.machine.state
    assert run.num_events == len(world.events)
    whole = Machine()
    assert run == replay(whole, world.events)


def test_a_journal_in_segments_is_read_like_one_file(world: World, tmp_path: Path) -> None:
    path = journal_of(world, tmp_path)
    assert len(segments_of(path)) == len(world.events) // 50 + 1
    assert list(read_journal(path)) == world.events
    assert_restored(path, world)
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in segments_directory(path).iterdir())


def test_a_snapshot_with_its_tail_gives_what_the_whole_journal_gives(
    world: World, tmp_path: Path
) -> None:
    path = journal_of(world, tmp_path)
    size = sum(segment.num_bytes for segment in closed_segments(path))
    compact(path, keep_bytes=10**9, keep_s=DAY_S, now_s=0.0)
    [snapshot] = snapshots_of(path)
    assert snapshot.number == len(world.events) // 50 * 50
    assert all(segment.is_compressed for segment in closed_segments(path))
    assert sum(segment.num_bytes for segment in closed_segments(path)) < 0.4 * size
    assert list(read_journal(path)) == world.events
    assert_restored(path, world)
    for segment in closed_segments(path):
        segment.path.unlink()
    assert_restored(path, world)


def test_from_every_snapshot_the_same_state_is_reached(world: World, tmp_path: Path) -> None:
    path = journal_of(world, tmp_path, segment_events=10**6)
    for number in range(0, len(world.events), 97):
        machine, run = restore(path, until=number)
        assert machine.marks.num_events == run.num_events == number
        if number:
            write_snapshot(path, saved_state(machine, run))
        assert_restored(path, world)


# --- damage ----------------------------------------------------------------------------------


def test_a_snapshot_that_cannot_be_read_is_passed_over(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = journal_of(world, tmp_path)
    compact(path, keep_bytes=10**9, keep_s=DAY_S, now_s=0.0)
    [snapshot] = snapshots_of(path)
    whole = snapshot.path.read_bytes()
    content = json.loads(decompressed(whole))
    del content["state"]["state"]["tasks"]
    for damaged in (
        whole[: len(whole) // 2],
        b"",
        b"?" * 100,
        compressed(b"[1]"),
        compressed(json.dumps({**content, "version": 99}).encode()),
        compressed(json.dumps(content).encode()),
        whole[:200] + bytes([whole[200] ^ 1]) + whole[201:],
    ):
        snapshot.path.write_bytes(damaged)
        with pytest.raises(SnapshotError, match=snapshot.path.name):
            read_snapshot(snapshot.path)
        assert_restored(path, world)
    assert "snapshot passed over" in caplog.text


def test_without_a_readable_snapshot_deleted_events_are_missed_in_words(
    world: World, tmp_path: Path
) -> None:
    path = journal_of(world, tmp_path)
    compact(path, keep_bytes=10**9, keep_s=DAY_S, now_s=0.0)
    first, *_ = closed_segments(path)
    first.path.unlink()
    assert_restored(path, world)
    [snapshot] = snapshots_of(path)
    snapshot.path.write_bytes(b"?")
    with pytest.raises(JournalError) as caught:
        restore(path)
    assert "its first event 51 follows event 0: some are missing" in str(caught.value)
    assert f"{snapshot.path}: the file is damaged" in str(caught.value)


def test_damage_before_the_newest_snapshot_does_not_matter(world: World, tmp_path: Path) -> None:
    path = journal_of(world, tmp_path)
    compact(path, keep_bytes=10**9, keep_s=DAY_S, now_s=0.0)
    first, *_ = closed_segments(path)
    first.path.write_bytes(b"?")
    assert_restored(path, world)
    with pytest.raises(JournalError, match=f"{first.path.name}: the file is damaged"):
        list(read_journal(path))


def test_fields_that_a_newer_version_adds_or_drops_are_no_obstacle(world: World) -> None:
    machine = world.machine
    data = encode_state(saved_state(machine, ReplayedRun()))
    for task in data["state"]["tasks"].values():
        task["progress"]["of_another_version"] = 7
        del task["progress"]["num_memory_uses"]  # has a default
    again = decode_state(json.loads(json.dumps(data)))
    assert again.state.tasks.keys() == machine.state.tasks.keys()


# --- crashes ---------------------------------------------------------------------------------


class CrashError(Exception):
    """The process is gone at this point."""


@pytest.mark.parametrize("call", ["link", "replace", "fsync"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_crash_while_a_segment_is_closed_loses_nothing(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    path, events = tmp_path / "journal.jsonl", world.events[:60]
    journal = Journal(path, segment_events=50)
    for event in events[:50]:
        journal.append(event)
    journal.commit_at_once()
    with monkeypatch.context() as patch:
        _crash_at(patch, call, number)
        with contextlib.suppress(CrashError):
            journal.begin_segment()
    journal.close()
    assert list(read_journal(path)) == events[:50]
    following = Journal(path, 50, segment_events=50)
    assert list(read_journal(path)) == events[:50]
    for event in events[50:]:
        following.append(event)
    following.close()
    assert list(read_journal(path)) == events
    assert len(closed_segments(path)) in {0, 1}


def _crash_at(patch: pytest.MonkeyPatch, call: str, number: int) -> None:
    """Have the ``number``-th call raise, before it does anything."""
    owner: object = Path if call in {"replace", "unlink"} else os
    real, left = getattr(owner, call), [number]

    def crash(*arguments: object, **options: object) -> object:
        left[0] -= 1
        if left[0] == 0:
            raise CrashError
        return real(*arguments, **options)

    patch.setattr(owner, call, crash)


@pytest.mark.parametrize("call", ["replace", "fsync", "unlink"])
@pytest.mark.parametrize("number", range(1, 7))
def test_a_crash_during_compaction_loses_nothing(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    path = journal_of(world, tmp_path, segment_events=200)
    with monkeypatch.context() as patch:
        _crash_at(patch, call, number)
        with contextlib.suppress(CrashError):
            compact(path, keep_bytes=10**9, keep_s=DAY_S, now_s=0.0)
    assert list(read_journal(path)) == world.events
    assert_restored(path, world)
    compact(path, keep_bytes=10**9, keep_s=DAY_S, now_s=0.0)
    assert list(read_journal(path)) == world.events
    assert_restored(path, world)
    assert len(snapshots_of(path)) == 1
    assert {file.suffix for file in segments_directory(path).iterdir()} == {".zst"}


def test_a_full_disk_leaves_no_half_written_snapshot(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = journal_of(world, tmp_path)
    machine, run = restore(path)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            write_snapshot(path, saved_state(machine, run))
    assert snapshots_of(path) == []
    assert not list(segments_directory(path).glob("*.new"))


# --- retention -------------------------------------------------------------------------------


def test_old_segments_are_deleted_but_those_after_the_second_newest_snapshot(
    world: World, tmp_path: Path
) -> None:
    path = journal_of(world, tmp_path)
    for number in (100, 200, 300):
        machine, run = restore(path, until=number)
        write_snapshot(path, saved_state(machine, run))
    delete_old(path, keep_bytes=0, keep_s=DAY_S, now_s=0.0)
    assert [each.number for each in snapshots_of(path)] == [300, 200]
    assert min(segment.first or 0 for segment in closed_segments(path)) == 201
    assert_restored(path, world)
    snapshots_of(path)[0].path.write_bytes(b"?")
    assert_restored(path, world)


def test_a_segment_is_kept_with_the_snapshot_before_it(world: World, tmp_path: Path) -> None:
    path = journal_of(world, tmp_path)
    for number in (50, 100, 150, 200, 250, 300):
        machine, run = restore(path, until=number)
        write_snapshot(path, saved_state(machine, run))
    for segment in closed_segments(path):
        os.utime(segment.path, (0, -3 * DAY_S if (segment.last or 0) <= 100 else 0))
    delete_old(path, keep_bytes=10**9, keep_s=2 * DAY_S, now_s=0.0)
    assert segments_of(path)[0].first_event() == 101
    assert [each.number for each in snapshots_of(path)] == [300, 250, 200, 150, 100]


def test_segments_are_kept_up_to_a_size_and_an_age(world: World, tmp_path: Path) -> None:
    path = journal_of(world, tmp_path)
    compact(path, keep_bytes=10**9, keep_s=DAY_S, now_s=0.0)
    segments = closed_segments(path)
    for days, segment in enumerate(reversed(segments)):
        os.utime(segment.path, (0, -DAY_S * days))
    delete_old(path, keep_bytes=10**9, keep_s=2.5 * DAY_S, now_s=0.0)
    assert closed_segments(path) == segments[-3:]
    kept = [each.path for each in segments[-2:]] + [each.path for each in snapshots_of(path)]
    last_two = sum(each.stat().st_size for each in kept)
    delete_old(path, keep_bytes=last_two, keep_s=10 * DAY_S, now_s=0.0)
    assert closed_segments(path) == segments[-2:]
    assert_restored(path, world)


def test_a_state_of_another_shape_is_refused_in_words(world: World) -> None:
    data = encode_state(saved_state(world.machine, ReplayedRun()))
    data["state"]["nodes"]["n1"]["contact"]["condition"] = "melted"
    with pytest.raises(state_codec.StateError, match="melted"):
        decode_state(data)


def test_a_saved_state_shares_nothing_with_the_machine(world: World) -> None:
    machine, _ = copied(world.machine, ReplayedRun())
    before = replace(machine.marks)
    node = machine.state.nodes[next(iter(machine.state.nodes))]
    assert node.contact.index is machine.state.index is node.membership.index
    assert machine.state.index is not world.machine.state.index
    assert machine.marks == before


def test_a_segment_that_is_compressed_while_it_is_read_is_read(
    world: World, tmp_path: Path
) -> None:
    path = journal_of(world, tmp_path)
    listed = segments_of(path)
    compact(path, keep_bytes=10**9, keep_s=DAY_S, now_s=0.0)
    lines = [line for segment in listed for line in segment.lines()]
    assert len(lines) == len(world.events) + len(listed)
    assert sum(segment.num_bytes for segment in listed) > 0
    deleted = listed[0].now().path
    deleted.unlink()
    assert listed[0].num_bytes == 0
    with pytest.raises(SegmentError, match="deleted meanwhile"):
        listed[0].lines()


def test_two_compactions_work_one_after_the_other(world: World, tmp_path: Path) -> None:
    """The second is that of the next controller; the first has outlived the former one."""
    path = journal_of(world, tmp_path, segment_events=20)
    command = [sys.executable, "-m", "controller.store.compaction", str(path)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert {file.suffix for file in segments_directory(path).iterdir()} == {".zst", ".lock"}
    assert_restored(path, world)
