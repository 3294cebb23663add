"""A loss of power at any step of the journal's upkeep keeps what was committed."""

import os
from pathlib import Path

import pytest

from controller.store.compaction import compact
from controller.store.journal import Journal
from controller.store.segments import closed_segments
from controller.store.snapshots import restore, snapshots_of
from tests.fakes.recorded_worlds import eventful_world
from tests.fakes.synced_disk import SyncedDisk

_STEPS = [
    (Path, "mkdir"),
    (os, "link"),
    (Path, "replace"),
    (os, "fsync"),
    (os, "fdatasync"),
    (Path, "unlink"),
]


def test_a_loss_of_power_before_each_step_keeps_what_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments begin and are compressed, snapshots are made, old files are deleted."""
    root = tmp_path / "run"
    root.mkdir()
    disk = SyncedDisk(root, monkeypatch)
    path, events = root / "journal.jsonl", eventful_world().events[:90]
    num_committed, steps = 0, list[str]()

    def look(step: str) -> None:
        if num_committed:
            steps.append(step)
            for left in disk.survivors(tmp_path):
                _machine, run = restore(left / path.name)
                assert run.num_events >= num_committed, (step, len(steps))

    for owner, name in _STEPS:
        real = getattr(owner, name)

        def watched(
            *arguments: object, _real: object = real, _name: str = name, **options: object
        ) -> object:
            if not isinstance(arguments[0], Path) or arguments[0].is_relative_to(root):
                look(_name)
            return _real(*arguments, **options)  # type: ignore[operator]

        monkeypatch.setattr(owner, name, watched)
    journal = Journal(path, segment_events=20)
    for event in events:
        journal.append(event)
        if event.number % 10 == 0:
            journal.commit_at_once()
            num_committed = event.number
        if journal.is_long:
            look("begin")
            journal.begin_segment()
            look("compact")
            compact(path, keep_bytes=0, keep_s=1e9, now_s=0.0)
    journal.close()
    look("end")
    disk.close()
    assert {name for _owner, name in _STEPS} <= set(steps)
    assert len(snapshots_of(path)) == 2
    assert len(closed_segments(path)) == 1, "older ones are deleted"
