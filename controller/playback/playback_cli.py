"""``unicron playback``: say what can be played back, or serve it to consoles and commands."""

import argparse
import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Final, Self

from controller.api.server import ApiSocketError
from controller.arguments import HelpText, duration_s, file_path
from controller.clock import SystemClock
from controller.clusterfile.controller_choice import ChoiceError, socket_of
from controller.error_groups import leaf_errors
from controller.logs.log_options import (
    LogOptionError,
    add_logging_arguments,
    log_options,
    logging_to,
)
from controller.playback.journal_past import JournalPast
from controller.playback.past import Past, PastError, PastFacts
from controller.playback.playback_cursor import PlaybackCursor, instant, moment_of
from controller.playback.playback_server import PlaybackServer
from controller.playback.recorded_past import RecordedPast
from controller.printing import plain_console, print_table, refuse

_PROGRAM: Final = "unicron playback"
_REPORT_EVERY_S: Final = 0.5
_LAST_S: Final = 12 * 3600.0
_EPILOG: Final = """\
PATH is a recording of `unicron record`, the directory of a run, or its cluster file. Of a run the journal is
read, which its controller may write meanwhile; later events are not in the playback. Nothing is contacted or
changed.

A moment is an incident (I-3), a time of day in UTC (14:02 or 14:02:30, the last before the end), a moment in ISO
8601, or seconds since the start of the run.

exit codes:
  0  done
  1  it can't be served at that socket
  2  wrong arguments, or the file can't be read

examples:
  unicron playback /var/lib/unicron/run                      # what is there
  unicron-console --playback cluster.toml --at I-3           # look at it
  unicron playback night.unicron --serve /tmp/past.sock &    # serve it to other commands
  unicron status --connect /tmp/past.sock
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron playback``."""
    parser.formatter_class, parser.epilog = HelpText, _EPILOG
    parser.add_argument("path", metavar="PATH", type=file_path, help="what is played back")
    parser.add_argument(
        "--serve",
        type=file_path,
        metavar="SOCKET",
        help="serve it at this new socket, until Ctrl-C",
    )
    parser.add_argument("--at", metavar="MOMENT", help="begin there (default: the end)")
    parser.add_argument(
        "--last", type=duration_s, default=_LAST_S, metavar="TIME",
        help="how much of a long journal is read, back from its end (default 12h): 20,000 events take some"
        " seconds",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_logging_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Say what is there, or serve it; return the exit code."""
    try:
        with logging_to(log_options(arguments)):
            past = _past_at(arguments.path, arguments.last)
            if arguments.serve is None:
                _describe(arguments.path, past.facts, is_json=arguments.json)
                return 0
            at = past.facts.end
            if arguments.at is not None:
                at = moment_of(arguments.at, past.facts)
            return _serve(past, PlaybackCursor(at), arguments.serve)
    except (PastError, ChoiceError, LogOptionError) as error:
        return refuse(_PROGRAM, str(error))


def _past_at(path: Path, last_s: float | None) -> Past:
    """Read the past at a path.

    Raises:
        PastError: It can't be read.
        ChoiceError: A cluster file can't be read.
    """
    with _Reading(path) as reading:
        if path.is_dir() or path.suffix == ".toml":
            directory = path if path.is_dir() else socket_of(path).parent
            return JournalPast(directory, directory.resolve().name, last_s, reading)
        if not path.exists():
            raise PastError(f"{path}: there is nothing of that name")
        return RecordedPast(path, reading)


class _Reading:
    """Says how far the reading is, from time to time, on standard error."""

    def __init__(self, path: Path) -> None:
        self._path, self._said_s = path, time.perf_counter()
        self._is_shown = False

    def __call__(self, num: int, of: int) -> None:
        now_s = time.perf_counter()
        if now_s - self._said_s < _REPORT_EVERY_S:
            return
        self._said_s = now_s
        done = f"{min(99, 100 * num // of)} %" if of else f"{num} events"
        line = f"reading {self._path}: {done}"
        self._is_shown = sys.stderr.isatty()
        sys.stderr.write(f"\r{line}\x1b[K" if self._is_shown else f"{line}\n")
        sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")


def _serve(past: Past, cursor: PlaybackCursor, socket: Path) -> int:
    code = 0
    try:
        asyncio.run(_served(past, cursor, socket))
    except* (ApiSocketError, PastError) as errors:
        for error in leaf_errors(errors):
            sys.stderr.write(f"{_PROGRAM}: {error}\n")
        code = 1
    return code


async def _served(past: Past, cursor: PlaybackCursor, socket: Path) -> None:
    server = PlaybackServer(past, cursor, SystemClock())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, server.end)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run(socket))
        await server.is_listening.wait()
        sys.stderr.write(f"serving {past.facts.place} at {socket}\n")


def _describe(path: Path, facts: PastFacts, *, is_json: bool) -> None:
    if is_json:
        marks = [mark.model_dump(mode="json") for mark in facts.marks]
        told = {
            "path": str(facts.place), "source": facts.source, "cluster": facts.cluster,
            "started": facts.started_wall_s, "begin": facts.begin, "end": facts.end,
            "unknown": facts.unknown, "has_earlier": facts.has_earlier, "lines": len(facts.lines), "marks": marks,
        }  # fmt: skip
        sys.stdout.write(json.dumps(told) + "\n")
        return
    sys.stdout.write(
        f"{facts.place}: {facts.source}, from {instant(facts.started_wall_s + facts.begin)}"
        f" to {instant(facts.started_wall_s + facts.end)}, {len(facts.lines)} lines\n"
        f"not in it: {facts.unknown}\n"
    )
    if facts.has_earlier:
        sys.stdout.write("what was before is in the journal, too: --last reads further back\n")
    if facts.marks:
        print_table(
            plain_console(),
            ["time (UTC)", "seconds", "what", "name", "text"],
            [
                (
                    instant(facts.started_wall_s + mark.at), f"{mark.at:.1f}", mark.kind, mark.name,
                    mark.text,
                )
                for mark in facts.marks
            ],
            numbers={1},
        )  # fmt: skip
    sys.stdout.write(f"look at it with: unicron-console --playback {path}\n")
