"""Shows a part of the cluster: as tables or as JSON, once or again each second."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from controller.api.client import NoControllerError, ask, connect
from controller.api.views import ClusterView, EvidenceAnswer
from controller.api.wire import ReadEvidence
from controller.operate.asking import RefusedError, explained, guarded, who_asks
from controller.operate.status_report import StatusTable
from controller.printing import plain_console, print_table

_INTERVAL_S: Final = 1.0
_CLEAR: Final = "\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True)
class Shown:
    """What a command shows of a view.

    Attributes:
        tables: Returns the tables.
        as_json: Returns the same for programs.
    """

    tables: Callable[[ClusterView], list[StatusTable]]
    as_json: Callable[[ClusterView], Any]


def add_watch(parser: argparse.ArgumentParser) -> None:
    """Define ``--watch``."""
    parser.add_argument(
        "--watch",
        action="store_true",
        help="show it again each second, until Ctrl-C; with --json one line each time",
    )


def show(arguments: argparse.Namespace, shown: Shown) -> int:
    """Print it; return the exit code."""

    def work() -> int:
        view = newest_view(arguments.connect)
        _print(view, shown, is_json=arguments.json)
        if arguments.watch:
            with suppress(KeyboardInterrupt):
                _watch(arguments, shown)
        return 0

    return guarded(arguments, work)


def evidence_of(socket: Path, incident: str) -> EvidenceAnswer:
    """Return the evidence of an incident with all that was seen.

    Raises:
        RefusedError: The controller no longer has it, or never had.
    """
    request_id, actor = who_asks()
    reply = ask(socket, ReadEvidence(request_id=request_id, actor=actor, incident=incident))
    if not reply.is_ok:
        raise RefusedError(explained(reply))
    return EvidenceAnswer.model_validate(reply.data)


def newest_view(socket: Path) -> ClusterView:
    """Return the present view.

    Raises:
        NoControllerError: No controller answers.
    """
    with connect(socket) as connection:
        for view in connection.views():
            return view
    raise NoControllerError(f"{socket}: the controller closed the connection")


def _watch(arguments: argparse.Namespace, shown: Shown) -> None:
    """Print it again each second, also over the restart of a controller."""
    while True:
        time.sleep(_INTERVAL_S)
        view, reason = None, ""
        try:
            view = newest_view(arguments.connect)
        except NoControllerError as error:
            reason = str(error)
        if sys.stdout.isatty() and not arguments.json:
            sys.stdout.write(_CLEAR)
        if view is not None:
            _print(view, shown, is_json=arguments.json)
        elif not arguments.json:
            sys.stdout.write(f"no controller answers at {reason}; waiting for one\n")
        sys.stdout.flush()


def _print(view: ClusterView, shown: Shown, *, is_json: bool) -> None:
    if is_json:
        sys.stdout.write(json.dumps(shown.as_json(view)) + "\n")
        return
    console = plain_console()
    for table in shown.tables(view):
        if table.rows:
            print_table(console, table.heads, table.rows, numbers=table.numbers, title=table.title)
        else:
            console.print(f"{table.title}: none")
