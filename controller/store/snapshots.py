"""Snapshots: the whole state after an event, so that the events before it need not be replayed.

A snapshot is made by replay, so it is what a replay gives (``controller.store.compaction``). It is
one file of JSON, compressed, with a checksum. It has its final name only once it is complete on the
disk. One that can't be read, because it is damaged or of a version that differs too much, is passed
over: the one before it serves, or the journal from its first event.
"""

import json
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from controller.core.events import Event
from controller.core.instructions import Instruction
from controller.core.machine import Machine
from controller.store.journal import JournalError, read_journal
from controller.store.line_files import sync_directory
from controller.store.replay import ReplayedRun, replay
from controller.store.segments import SegmentError, compressed, decompressed, segments_directory
from controller.store.state_codec import StateError, Takeover, decode_state, encode_state

_LOG: Final = logging.getLogger(__name__)
_NAME: Final = re.compile(r"(\d{12})\.snapshot\.zst")
_FORMAT: Final = "unicron-snapshot"
_VERSION: Final = 1


class SnapshotError(Exception):
    """A snapshot can't be read. The text names the file and the reason."""


class SnapshotFile(NamedTuple):
    """A snapshot: the number of the newest event in it, and its file."""

    number: int
    path: Path


def snapshots_of(journal: Path) -> list[SnapshotFile]:
    """Return the snapshots of a journal, the newest first."""
    directory = segments_directory(journal)
    names = directory.iterdir() if directory.is_dir() else ()
    found = [
        SnapshotFile(int(match[1]), file) for file in names if (match := _NAME.fullmatch(file.name))
    ]
    return sorted(found, reverse=True)


def write_snapshot(journal: Path, saved: Takeover) -> SnapshotFile:
    """Write the snapshot of a state; it is on the disk when this returns.

    Raises:
        OSError: The disk is full, or broken. Nothing is left of the file then.
    """
    directory, number = segments_directory(journal), saved.run.num_events
    directory.mkdir(mode=0o700, exist_ok=True)
    content = {"format": _FORMAT, "version": _VERSION, "state": encode_state(saved)}
    data = compressed(json.dumps(content, separators=(",", ":")).encode())
    path = directory / f"{number:012}.snapshot.zst"
    unfinished = path.with_suffix(".new")
    try:
        unfinished.touch(mode=0o600)
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    sync_directory(directory)
    _LOG.info("snapshot written: path=%s events=%d bytes=%d", path, number, len(data))
    return SnapshotFile(number, path)


def read_snapshot(path: Path) -> Takeover:
    """Return the state in a snapshot.

    Raises:
        SnapshotError: It is damaged, or of another version.
    """
    try:
        content = json.loads(decompressed(path.read_bytes()))
        if content.get("format") != _FORMAT or content.get("version") != _VERSION:
            raise SnapshotError(f"{path}: it is no snapshot of format version {_VERSION}")
        return decode_state(content["state"])
    except (SegmentError, StateError, OSError, ValueError, KeyError, AttributeError) as error:
        raise SnapshotError(f"{path}: {error}") from error


def restore(
    journal: Path,
    until: int | None = None,
    followed: Callable[[Event, list[Instruction]], None] | None = None,
) -> tuple[Machine, ReplayedRun]:
    """Return the machine after a run's newest event, and the facts beside its state.

    Args:
        journal: The journal's segment in use.
        until: Number of the event after which to stop; None for the newest.
        followed: Called with each event that is replayed, and its instructions.

    Raises:
        JournalError: The journal is damaged, or its beginning is needed and was deleted.
        OSError: A file can't be read.
    """
    failures: list[str] = []
    for number, path in snapshots_of(journal):
        if until is not None and number > until:
            continue
        try:
            saved = read_snapshot(path)
        except SnapshotError as error:
            _LOG.warning("snapshot passed over: reason=%s", error)
            failures.append(str(error))
            continue
        return _continued(journal, saved.machine(), saved.run, until, followed)
    try:
        return _continued(journal, Machine(), ReplayedRun(), until, followed)
    except JournalError as error:
        text = "; ".join([str(error), *failures])
        raise JournalError(text) from error


def _continued(
    journal: Path,
    machine: Machine,
    before: ReplayedRun,
    until: int | None,
    followed: Callable[[Event, list[Instruction]], None] | None,
) -> tuple[Machine, ReplayedRun]:
    events = read_journal(journal, before.num_events)
    if until is not None:
        events = (event for event in events if event.number <= until)
    return machine, replay(machine, events, before, followed)


def saved_state(machine: Machine, run: ReplayedRun) -> Takeover:
    """Return what a snapshot holds."""
    return Takeover(run, machine.marks, machine.policy, machine.state)
