"""``unicron explain``: all that is known of an incident, a plan, a node or a task."""

import argparse
import json
import sys
from typing import Final, get_args

from controller.api.client import ask
from controller.api.views import IncidentView, PlanView
from controller.api.wire import HistoryTable, ReadHistory
from controller.operate.asking import (
    EXIT_UNKNOWN,
    RefusedError,
    add_common,
    complete_names,
    explained,
    guarded,
    who_asks,
)
from controller.operate.explaining import evidence_lines, lines_about, subject_of
from controller.operate.showing import evidence_of, newest_view
from profiles.records import on_one_line

_TABLE_BY_LETTER: Final[dict[str, HistoryTable]] = {"I": "incidents", "P": "plans"}
assert set(_TABLE_BY_LETTER.values()) <= set(get_args(HistoryTable))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron explain``."""
    add_common(
        parser,
        "Incidents and plans that the controller no longer shows are read from the history of the run.",
        ("unicron explain I-7", "unicron explain I-7 --evidence | less", "unicron explain P-3", "unicron explain gpt-a", "unicron explain n3"),
    )  # fmt: skip
    name = parser.add_argument("name", metavar="ID", help="an incident, a plan, a task or a node")
    complete_names(name, "incident", "plan", "task", "node")
    parser.add_argument(
        "--evidence",
        action="store_true",
        help="of an incident: tracebacks, stacks and lines of logs, too",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation; return the exit code."""

    def work() -> int:
        view = newest_view(arguments.connect)
        name = arguments.name
        subject = subject_of(view, name) or _former(arguments)
        if subject is None:
            text = f"there is no incident, plan, task or node {name}"
            raise RefusedError(text, EXIT_UNKNOWN)
        answer = None
        if arguments.evidence:
            if not isinstance(subject, IncidentView):
                raise RefusedError(f"{name} is no incident: only an incident has evidence")
            answer = evidence_of(arguments.connect, name)
        if arguments.json:
            more = {} if answer is None else answer.model_dump(mode="json")
            sys.stdout.write(json.dumps({**subject.model_dump(mode="json"), **more}) + "\n")
        else:
            lines = [*lines_about(view, subject), *(evidence_lines(answer) if answer else ())]
            sys.stdout.writelines(f"{on_one_line(line)}\n" for line in lines)
        return 0

    return guarded(arguments, work)


def _former(arguments: argparse.Namespace) -> IncidentView | PlanView | None:
    """Look an incident or a plan up in the history."""
    letter, dash, _ = arguments.name.partition("-")
    table = _TABLE_BY_LETTER.get(letter)
    if table is None or not dash:
        return None
    request_id, actor = who_asks()
    reply = ask(
        arguments.connect,
        ReadHistory(
            request_id=request_id, actor=actor, table=table, name=arguments.name, limit=1
        ),
    )  # fmt: skip
    if not reply.is_ok:
        raise RefusedError(explained(reply))
    rows = (reply.data or {}).get("rows")
    if not isinstance(rows, list) or not rows:
        return None
    kind = PlanView if table == "plans" else IncidentView
    return kind.model_validate(rows[-1])
