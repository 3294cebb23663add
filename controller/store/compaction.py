"""Makes a snapshot at the end of the closed segments, compresses them, and deletes old ones.

    python -m controller.store.compaction JOURNAL [--keep-mb N] [--keep-days N]

The controller runs this in a process of its own when it has closed a segment: replay and JSON of a
large state take longer than its loop may stand still. It reads closed segments only, so it needs
nothing of the controller. It survives a kill of the controller, and the next one starts another: so
there is a lock, and they work one after the other. It may be killed at any moment: each file gets
its name once it is complete, and the next one continues.

The newest two snapshots are kept, and all events after the older one. Older events serve people
only, who play a run back. They are kept up to a size and an age, each segment with the snapshot
before it: a playback begins there (``controller.playback``).
"""

import argparse
import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from controller.store.journal import JournalError
from controller.store.line_files import sync_directory
from controller.store.segments import (
    JournalSegment,
    SegmentError,
    closed_segments,
    compressed,
    segments_directory,
)
from controller.store.snapshots import restore, saved_state, snapshots_of, write_snapshot

_DAY_S: Final = 86_400.0
_NUM_SNAPSHOTS: Final = 2
_NICENESS: Final = 10


def compact(journal: Path, keep_bytes: int, keep_s: float, now_s: float) -> None:
    """Make a snapshot after the newest closed segment, compress, and delete what is too old.

    Args:
        journal: The journal's segment in use.
        keep_bytes: How large the closed segments may be together.
        keep_s: How old they may be, in seconds.
        now_s: The wall clock, seconds since the epoch.

    Raises:
        JournalError: A closed segment is damaged.
        OSError: The disk is full, or broken.
    """
    closed = closed_segments(journal)
    newest = snapshots_of(journal)
    last = closed[-1].last if closed else None
    if last is not None and (not newest or newest[0].number < last):
        machine, run = restore(journal, until=last)
        write_snapshot(journal, saved_state(machine, run))
    for segment in closed:
        if not segment.is_compressed:
            _compress(segment)
        else:  # a crash may have come before this
            segment.path.with_suffix("").unlink(missing_ok=True)
    delete_old(journal, keep_bytes, keep_s, now_s)


def _compress(segment: JournalSegment) -> None:
    """Replace a closed segment by its compressed form."""
    target = segment.path.with_name(f"{segment.path.name}.zst")
    unfinished = target.with_suffix(".new")
    unfinished.touch(mode=0o600)
    with unfinished.open("wb") as file:
        file.write(compressed(segment.content()))
        file.flush()
        os.fsync(file.fileno())
    age = segment.path.stat()
    os.utime(unfinished, ns=(age.st_atime_ns, age.st_mtime_ns))
    unfinished.replace(target)
    sync_directory(target.parent)
    segment.path.unlink()


def delete_old(journal: Path, keep_bytes: int, keep_s: float, now_s: float) -> None:
    """Delete segments that the next controller does not need, and that are too old or too many.

    So are the snapshots before them.
    """
    snapshots = snapshots_of(journal)
    needed_after = snapshots[:_NUM_SNAPSHOTS][-1].number if snapshots else 0
    old = snapshots[_NUM_SNAPSHOTS:]
    closed = closed_segments(journal)
    paths = [*(each.path for each in closed), *(each.path for each in snapshots)]
    total = sum(path.stat().st_size for path in paths)
    for segment in closed:
        assert segment.last is not None, "it is closed"
        is_old = now_s - segment.path.stat().st_mtime > keep_s
        if segment.last > needed_after or not (is_old or total > keep_bytes):
            break  # no gap: later ones are newer
        total -= segment.path.stat().st_size
        segment.path.unlink()
        while old and old[-1].number < segment.last:
            snapshot = old.pop()
            total -= snapshot.path.stat().st_size
            snapshot.path.unlink()


@contextmanager
def _lock_of(journal: Path) -> Iterator[None]:
    """Wait until no other process compacts this journal, and hold that up until the block ends."""
    path = segments_directory(journal) / "compaction.lock"
    path.touch(mode=0o600)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Compact a journal; return 0 if that was done."""
    parser = argparse.ArgumentParser(prog="python -m controller.store.compaction")
    parser.add_argument("journal", type=Path, help="the segment in use: journal.jsonl")
    parser.add_argument("--keep-mb", type=float, default=500.0)
    parser.add_argument("--keep-days", type=float, default=30.0)
    options = parser.parse_args()
    os.nice(_NICENESS)
    try:
        with _lock_of(options.journal):
            now_s = time.time()  # noqa: TID251 - a process of its own
            compact(options.journal, int(options.keep_mb * 1e6), options.keep_days * _DAY_S, now_s)
    except (JournalError, SegmentError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
