"""``unicron journal``: check a controller's journal, count it, export it, and cut damage off.

``verify``, ``stats`` and ``export`` only read, also beside a living controller. ``repair`` takes
the lock of the run.
"""

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from controller.arguments import HelpText
from controller.core.events import ControllerStarted
from controller.printing import plain_console, print_table, refuse
from controller.store.journal import JournalError, cut_journal, read_records
from controller.store.journal_lines import encode_readable
from controller.store.run_file import JOURNAL_NAME
from controller.store.run_lock import RunLock, RunLockedError
from controller.store.segments import segments_of
from controller.store.snapshots import SnapshotError, read_snapshot, snapshots_of

_EPILOG: Final = """\
DIR is the directory of a controller's run, or a directory that `unicron demo --keep` has filled.

exit codes:
  0  done; with verify: every line is whole
  1  the journal is damaged; the message names the file and the line
  2  wrong arguments, or there is no journal in DIR

examples:
  unicron journal verify /var/lib/unicron/run
  unicron journal stats /var/lib/unicron/run --json
  unicron journal export /var/lib/unicron/run | jq 'select(.type == "ContactLost")'
  unicron journal repair /var/lib/unicron/run          # says what it would cut off
  unicron journal repair /var/lib/unicron/run --yes
"""


@dataclass(slots=True)
class _Account:
    """What a journal holds."""

    num_events: int = 0
    num_deleted: int = 0
    num_segments: int = 0
    num_bytes: int = 0
    snapshots: dict[int, str] = field(default_factory=dict)
    """By the number of its newest event, why a snapshot can't be read; empty if it can."""
    at_s: float = 0.0
    starts: list[ControllerStarted] = field(default_factory=list)
    events_by_type: Counter[str] = field(default_factory=Counter)
    bytes_by_type: Counter[str] = field(default_factory=Counter)

    def summary(self) -> dict[str, object]:
        """Return the figures of ``verify``, as JSON."""
        last = self.starts[-1] if self.starts else None
        return {
            "events": self.num_events,
            "deleted": self.num_deleted,
            "segments": self.num_segments,
            "snapshots": [
                {"events": number, "error": error or None}
                for number, error in self.snapshots.items()
            ],
            "bytes": self.num_bytes,
            "seconds": self.at_s,
            "run_id": last.run_id if last else None,
            "controllers": len(self.starts),
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron journal``."""
    parser.formatter_class, parser.epilog = HelpText, _EPILOG
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("verify", "check every line: its checksum, its event, and that none is missing"),
        ("stats", "events and bytes by type"),
        ("export", "print the events as JSON, one a line, without checksums"),
        ("repair", "cut a damaged end off, and keep what was cut off in a file beside it"),
    ):
        action = actions.add_parser(
            name, help=text, description=text[:1].upper() + text[1:] + ".", formatter_class=HelpText
        )
        action.add_argument("directory", metavar="DIR", type=Path, help="the directory of the run")
        if name in {"verify", "stats"}:
            action.add_argument("--json", action="store_true", help="print one JSON object")
        if name == "repair":
            action.add_argument(
                "--yes", action="store_true", help="do it; without it nothing is changed"
            )


def run(arguments: argparse.Namespace) -> int:
    """Carry out an action; return its exit code."""
    program = f"unicron journal {arguments.action}"
    directory: Path = arguments.directory
    path = directory / JOURNAL_NAME
    try:
        return _act(arguments, path)
    except JournalError as error:
        refuse(program, f"{error}; `unicron journal repair {directory}` says what can be saved")
        return 1
    except (FileNotFoundError, NotADirectoryError):
        text = f"{directory}: there is no {JOURNAL_NAME}; name the directory of a run"
        return refuse(program, text)
    except RunLockedError as error:
        return refuse(program, str(error))
    except OSError as error:
        if error.filename is None:
            raise  # standard output
        return refuse(program, f"{error.filename}: {(error.strerror or 'unreadable').lower()}")


def _act(arguments: argparse.Namespace, path: Path) -> int:
    match arguments.action:
        case "verify":
            _verify(path, is_json=arguments.json)
        case "stats":
            _print_stats(path, is_json=arguments.json)
        case "export":
            for record in read_records(path, _num_deleted(path)):
                sys.stdout.buffer.write(encode_readable(record.event))
        case _:
            return _repair(path, is_done=arguments.yes)
    return 0


def _account(path: Path) -> _Account:
    """Read a journal from its beginning to its end.

    Raises:
        JournalError: It is damaged.
    """
    account = _Account()
    account.num_deleted = account.num_events = _num_deleted(path)
    for record in read_records(path, account.num_deleted):
        event = record.event
        account.num_events, account.at_s = event.number, event.at
        name = type(event.body).__name__
        account.events_by_type[name] += 1
        account.bytes_by_type[name] += record.num_bytes
        if isinstance(event.body, ControllerStarted):
            account.starts.append(event.body)
    segments = segments_of(path)
    account.num_segments = len(segments)
    account.num_bytes = sum(segment.num_bytes for segment in segments)
    for snapshot in snapshots_of(path):
        account.snapshots[snapshot.number] = _why_unreadable(snapshot.path)
    return account


def _why_unreadable(snapshot: Path) -> str:
    """Return why a snapshot can't be read; empty if it can."""
    try:
        read_snapshot(snapshot)
    except SnapshotError as error:
        return str(error)
    return ""


def _num_deleted(path: Path) -> int:
    """Return how many events are kept no more: a snapshot after them was made.

    Raises:
        JournalError: Events are missing, and no snapshot has what they did.
    """
    first = segments_of(path)[0].first_event()
    newest = next(iter(snapshots_of(path)), None)
    if first > 1 and (newest is None or newest.number < first - 1):
        raise JournalError(f"{path}: events 1 to {first - 1} are missing, and no snapshot has them")
    return first - 1


def _verify(path: Path, *, is_json: bool) -> None:
    began_s = time.perf_counter()
    account = _account(path)
    took_s = time.perf_counter() - began_s
    summary = account.summary()
    if is_json:
        sys.stdout.write(json.dumps({**summary, "took_s": round(took_s, 3)}) + "\n")
        return
    run_id = f"run {summary['run_id']}, " if account.starts else ""
    num = len(account.snapshots)
    sys.stdout.write(
        f"{path}: whole: {account.num_events} events, {account.num_bytes} bytes in"
        f" {account.num_segments} segment(s), {account.at_s:.1f} s, {run_id}"
        f"{len(account.starts)} controller(s), {num} snapshot(s)\n"
    )
    if account.num_deleted:
        sys.stdout.write(f"events 1 to {account.num_deleted} were deleted: they were too old\n")
    for error in filter(None, account.snapshots.values()):
        sys.stdout.write(f"a snapshot can't be read and is passed over: {error}\n")


def _print_stats(path: Path, *, is_json: bool) -> None:
    account = _account(path)
    rows = [
        (name, account.events_by_type[name], num_bytes)
        for name, num_bytes in account.bytes_by_type.most_common()
    ]
    per_day = account.num_bytes / account.at_s * 86_400 if account.at_s else None
    if is_json:
        types = [{"type": name, "events": num, "bytes": size} for name, num, size in rows]
        answer = {**account.summary(), "bytes_per_day": per_day, "types": types}
        sys.stdout.write(json.dumps(answer) + "\n")
        return
    total = max(1, sum(account.bytes_by_type.values()))
    print_table(
        plain_console(),
        ["event", "events", "bytes", "share"],
        [(name, str(num), str(size), f"{size / total:.1%}") for name, num, size in rows],
        numbers={1, 2, 3},
    )
    if per_day is not None:
        sys.stdout.write(
            f"{account.num_bytes} bytes in {account.at_s:.1f} s: {per_day / 1e6:.1f} MB a day\n"
        )


def _repair(path: Path, *, is_done: bool) -> int:
    """Cut off all from the first damaged line on. The whole lines before it replay."""
    snapshots = (each.number for each in snapshots_of(path) if not _why_unreadable(each.path))
    after = next(snapshots, 0) or _num_deleted(path)
    beginning = f"events 1 to {after} are in a snapshot; " if after else ""
    if not is_done:
        try:
            num_events = sum(1 for _ in read_records(path, after))
        except JournalError as error:
            sys.stdout.write(
                f"{error}\n--yes cuts off this line and all after it, and keeps them in a file beside"
                " the journal. A controller then takes over from the events before it. It asks the nodes"
                " which ranks live there; reports in the part that was cut off do not come again.\n"
            )
            return 1
        text = f"{path}: whole: {beginning}{num_events} events; nothing to repair"
        sys.stdout.write(f"{text}\n")
        return 0
    lock = RunLock(path.parent, time.time())  # noqa: TID251 - for people
    try:
        cut = cut_journal(path, after)
    finally:
        lock.close()
    if cut is None:
        sys.stdout.write(f"{path}: whole; {beginning}nothing to repair\n")
    else:
        sys.stdout.write(
            f"{cut.path}: {cut.num_bytes} bytes from line {cut.line} on are now in {cut.kept}\n"
        )
    return 0
