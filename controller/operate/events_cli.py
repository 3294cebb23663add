"""``unicron events``: the newest lines of the event stream, and what follows."""

import argparse
import json
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Final

from controller.api.client import NoControllerError, connect
from controller.api.views import LogLevel, LogLine
from controller.arguments import positive_int
from controller.operate.asking import add_common, complete_names, guarded
from profiles.records import on_one_line

_PAUSE_S: Final = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron events``."""
    add_common(
        parser,
        "The controller keeps the newest 2,000 lines at hand. `unicron history lines` has older ones.\n"
        "With --json each line is an object of its own.",
        (
            "unicron events",
            "unicron events --follow --name gpt-a",
            "unicron events --level warning --level error --json",
        ),
    )
    parser.add_argument(
        "--follow", action="store_true", help="then print each new line, until Ctrl-C"
    )
    name = parser.add_argument("--name", help="only about this task, node, incident or plan")
    complete_names(name, "task", "node", "incident", "plan")
    parser.add_argument(
        "--level", action="append", choices=[each.value for each in LogLevel],
        help="only of this level; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--limit", type=positive_int, default=50, metavar="N", help="the newest N (default 50)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the lines; return the exit code."""

    def work() -> int:
        if not arguments.follow:
            _print_newest(arguments)
        else:
            with suppress(KeyboardInterrupt):
                _follow(arguments)
        return 0

    return guarded(arguments, work)


def _print_newest(arguments: argparse.Namespace) -> None:
    with connect(arguments.connect) as connection:
        started_wall_s, lines = connection.beginning()
    chosen = [line for line in lines if _is_wanted(line, arguments)]
    _print(chosen[-arguments.limit :], started_wall_s, arguments)


def _follow(arguments: argparse.Namespace) -> None:
    """Print lines as they come, also over the restart of a controller.

    Raises:
        NoControllerError: At the beginning no controller answers.
    """
    newest_at, is_first = float("-inf"), True
    while True:
        try:
            with connect(arguments.connect) as connection:
                started_wall_s, known = connection.beginning()
                lines = [each for each in known if _is_wanted(each, arguments)]
                if is_first:
                    lines = lines[-arguments.limit :]
                # The next controller does not repeat what its predecessor has said.
                _print([each for each in lines if each.at > newest_at], started_wall_s, arguments)
                is_first, newest_at = False, max([newest_at, *(each.at for each in known)])
                for line in connection.lines():
                    newest_at = max(newest_at, line.at)
                    if _is_wanted(line, arguments):
                        _print([line], started_wall_s, arguments)
        except NoControllerError:
            if is_first:
                raise
        sys.stderr.write("the controller has ended; waiting for the next one\n")
        while not _answers(arguments):
            time.sleep(_PAUSE_S)


def _answers(arguments: argparse.Namespace) -> bool:
    try:
        with connect(arguments.connect) as connection:
            connection.beginning()
    except NoControllerError:
        return False
    return True


def _is_wanted(line: LogLine, arguments: argparse.Namespace) -> bool:
    is_about = arguments.name is None or line.source == arguments.name
    return is_about and (arguments.level is None or line.level.value in arguments.level)


def _print(lines: Iterable[LogLine], started_wall_s: float, arguments: argparse.Namespace) -> None:
    for line in lines:
        moment = datetime.fromtimestamp(started_wall_s + line.at, tz=UTC)
        if arguments.json:
            told = {"time": moment.isoformat(), **asdict(line)}
            del told["seq"]
            sys.stdout.write(json.dumps(told) + "\n")
        else:
            local = moment.astimezone().isoformat(sep=" ", timespec="seconds")[:19]
            text = on_one_line(line.text)
            sys.stdout.write(f"{local}  {line.level.value:<7} {line.source:<10} {text}\n")
    sys.stdout.flush()
