"""A month of journal of two tasks on four nodes, made up, and how a controller begins after it.

    python -m tests.campaigns.month --days 30 --seed 1

The last day is simulated: an iteration a second of each task, and a killed rank each hour. Its
events go into a journal as a controller's do, with compaction after each segment. The days before
it hold the same events with other numbers and times: the state at the end is that of the last day,
and the files are as many and as large as after a month. History gets the same rows.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from typing_extensions import override

from controller.core.events import Event
from controller.core.instructions import Instruction
from controller.core.machine import Machine
from controller.store.compaction import compact
from controller.store.history import HISTORY_NAME, History, HistoryEntry, entries_of
from controller.store.journal import SEGMENT_EVENTS, Journal
from controller.store.replay import ReplayedRun
from controller.store.segments import segments_directory
from controller.store.snapshots import saved_state, snapshots_of, write_snapshot
from tests.fakes.world import World
from tests.property.test_machine import machine

_DAY_S: Final = 86_400.0
_HOUR_S: Final = 3600.0
_KEEP_BYTES: Final = 500 * 10**6
"""The default of ``[cluster]``."""
_RESTART: Final = """
import json, sys, time
from pathlib import Path
begin_s = time.perf_counter()
from controller.store.snapshots import restore
machine, run = restore(Path(sys.argv[1]))
took_s = time.perf_counter() - begin_s
status = Path("/proc/self/status").read_text()  # the peak since exec, not that of the parent
memory_mb = int(status.partition("VmHWM:")[2].split()[0]) / 1024
print(json.dumps({"events": run.num_events, "took_s": took_s, "memory_mb": memory_mb}))
"""


class _Day(World):
    """A world that keeps what the history needs of each event."""

    def __init__(self, seed: int) -> None:
        self.entries: list[HistoryEntry] = []
        super().__init__(machine(is_auto_heal=True, is_sharded=False), seed, num_iterations=10**9)

    @override
    def note_handled(self, event: Event, instructions: list[Instruction]) -> None:
        self.entries += entries_of(event, instructions)


def _simulated(seed: int, hours: float) -> _Day:
    world, source = _Day(seed), random.Random(seed)
    for hour in range(1, int(hours) + 1):
        at = hour * _HOUR_S - source.uniform(60.0, _HOUR_S - 60.0)
        world.run(at)
        world.kill_rank(source.choice(("gpt-a", "gpt-b")), 0)
        world.run(hour * _HOUR_S)
        _progress(f"simulated {hour} of {hours:.0f} hours, {len(world.events)} events")
    return world


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text}\x1b[K")


def _shifted(events: Iterable[Event], num: int, seconds: float) -> Iterator[Event]:
    for event in events:
        yield replace(event, number=event.number + num, at=event.at + seconds)


def _journaled(path: Path, events: Iterator[Event], before: int, *, is_compacted: bool) -> int:
    """Append events as a controller does; return the bytes that were written."""
    journal = Journal(path, before)
    while batch := list(islice(events, SEGMENT_EVENTS)):
        for event in batch:
            journal.append(event)
            if journal.is_long:
                journal.commit_at_once()
                journal.begin_segment()
                if is_compacted:
                    compact(path, _KEEP_BYTES, 30 * _DAY_S, 0.0)
    journal.commit_at_once()
    journal.close()
    return journal.num_written


def _size_of(*paths: Path) -> float:
    return sum(each.stat().st_size for each in paths) / 1e6


def measured(directory: Path, days: int, hours: float, seed: int) -> dict[str, float | int]:
    """Make the month up in a directory, and begin after it in a process of its own."""
    path, world = directory / "journal.jsonl", _simulated(seed, hours)
    per_day, length_s = len(world.events), hours * _HOUR_S
    history = History(directory / HISTORY_NAME)
    for day in range(days - 1):
        _progress(f"made up {day} of {days} days")
        num, late_s = day * per_day, day * length_s
        _journaled(path, _shifted(world.events, num, late_s), num, is_compacted=False)
        history.write([_moved(each, num, late_s) for each in world.entries])
    before = (days - 1) * per_day
    if before:
        empty = saved_state(Machine(), ReplayedRun(num_events=before))
        write_snapshot(path, replace(empty, marks=replace(empty.marks, num_events=before)))
        compact(path, _KEEP_BYTES, 30 * _DAY_S, 0.0)
    last = _shifted(world.events, before, (days - 1) * length_s)
    written = _journaled(path, last, before, is_compacted=True)
    history.write([_moved(each, before, (days - 1) * length_s) for each in world.entries])
    history.close()
    _progress("")
    answer = subprocess.run(
        [sys.executable, "-c", _RESTART, str(path)], check=True, stdout=subprocess.PIPE
    )
    restart = json.loads(answer.stdout)
    assert restart["events"] == days * per_day
    closed = list(segments_directory(path).iterdir())
    return {
        "events a day": round(per_day * 24 / hours),
        "written a day, MB": written * 24 / hours / 1e6,
        "journal after it, MB": _size_of(path, *closed),
        "segments": len(closed) - len(snapshots_of(path)),
        "history after it, MB": _size_of(directory / HISTORY_NAME),
        "until the next controller has the state, s": restart["took_s"],
        "memory of that process, MB": restart["memory_mb"],
    }


def _moved(entry: HistoryEntry, num: int, late_s: float) -> HistoryEntry:
    return entry._replace(event=entry.event + num, at=entry.at + late_s)


def main() -> int:
    """Print the files of a month, and the time of a restart after it."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.month", description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--hours", type=float, default=24.0, help="that are simulated, and a day")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begin_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        found = measured(Path(name), options.days, options.hours, options.seed)
    for what, value in found.items():
        sys.stdout.write(f"{what:44} {value:>12,.2f}\n")
    took_s, num_cores = time.perf_counter() - begin_s, os.cpu_count()
    sys.stdout.write(f"seed {options.seed}, {took_s:.0f} s on {num_cores} cores\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
