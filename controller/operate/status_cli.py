"""``unicron status``: what a running controller knows, once or again and again."""

import argparse
import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from controller.api.client import NoControllerError, connect
from controller.api.views import ClusterView
from controller.arguments import HelpText
from controller.clusterfile.controller_choice import (
    EXPLAINED,
    ChoiceError,
    add_choice,
    choose_controller,
    refuse_without_controller,
)
from controller.operate.status_report import as_json, tables
from controller.printing import plain_console, print_table, refuse

_EPILOG: Final = f"""\
{EXPLAINED}

exit codes:
  0  done
  2  wrong arguments, or a mistake in the cluster file
  3  no controller answers

examples:
  unicron status
  unicron status --cluster cluster.toml --watch
  unicron status --json | jq '.tasks[] | {{name, phase, iteration}}'
  unicron status --json | jq '.incidents[] | select(.state != "resolved")'
"""
_PROGRAM: Final = "unicron status"
_INTERVAL_S: Final = 1.0
_CLEAR: Final = "\x1b[H\x1b[2J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron status``."""
    parser.formatter_class, parser.epilog = HelpText, _EPILOG
    add_choice(parser)
    parser.add_argument(
        "--watch", action="store_true", help="show it again each second, until Ctrl-C"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object, with all incidents and plans; with --watch one a line",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the status; return the exit code."""
    try:
        choose_controller(arguments)
        if arguments.watch:
            _watch(arguments)
        else:
            _print(_first_view(arguments.connect), arguments)
    except ChoiceError as error:
        return refuse(_PROGRAM, str(error))
    except NoControllerError as error:
        return refuse_without_controller(_PROGRAM, arguments, str(error))
    return 0


def _first_view(socket: Path) -> ClusterView:
    with connect(socket) as connection:
        for view in connection.views():
            return view
    raise NoControllerError(f"{socket}: the controller closed the connection")


def _watch(arguments: argparse.Namespace) -> None:
    """Print the status each second until Ctrl-C, also over the restart of a controller.

    Raises:
        NoControllerError: At the beginning no controller answers.
    """
    view, reason = _first_view(arguments.connect), ""
    with suppress(KeyboardInterrupt):
        while True:
            if sys.stdout.isatty() and not arguments.json:
                sys.stdout.write(_CLEAR)
            if not reason:
                _print(view, arguments)
            elif not arguments.json:
                sys.stdout.write(f"no controller answers at {reason}; waiting for one\n")
            sys.stdout.flush()
            time.sleep(_INTERVAL_S)
            try:
                view, reason = _first_view(arguments.connect), ""
            except NoControllerError as error:
                reason = str(error)


def _print(view: ClusterView, arguments: argparse.Namespace) -> None:
    if arguments.json:
        sys.stdout.write(json.dumps(as_json(view, arguments.connect)) + "\n")
        return
    console = plain_console()
    for table in tables(view, arguments.connect):
        if table.rows:
            print_table(console, table.heads, table.rows, numbers=table.numbers, title=table.title)
        else:
            console.print(f"{table.title}: none")
