"""``unicron post-mortem``: the report about one incident."""

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from controller.api.client import ask, connect
from controller.api.views import ClusterView, EvidenceAnswer, IncidentView, PlanView
from controller.api.wire import HistoryTable, ReadHistory
from controller.arguments import file_path
from controller.operate.asking import (
    EXIT_UNKNOWN,
    RefusedError,
    add_common,
    complete_names,
    guarded,
    who_asks,
)
from controller.operate.post_mortem import (
    PostMortem,
    TimelineEntry,
    entries_in,
    iterations_in,
    markdown,
    post_mortem,
    window_of,
)
from controller.operate.showing import evidence_of, newest_view

_MOST_ROWS: Final = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron post-mortem``."""
    add_common(
        parser,
        "The report has the timeline, cause and evidence, the decision with its plans and what else was possible,\n"
        "the cost, and the losses before and after: Markdown, or with --json one object. What is not recorded is\n"
        "said. Incidents that the controller no longer shows are read from the history of the run. It works on a\n"
        "playback, too (`unicron playback DIR --serve SOCKET`).",
        (
            "unicron post-mortem I-7",
            "unicron post-mortem I-7 --output I-7.md",
            "unicron post-mortem I-7 --json | jq .incident.recovery_s",
        ),
    )
    name = parser.add_argument("name", metavar="ID", help="the incident")
    complete_names(name, "incident")
    parser.add_argument(
        "--output", type=file_path, metavar="FILE", help="write it into this new file"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print or write the report; return the exit code."""

    def work() -> int:
        report = _report(arguments.connect, arguments.name)
        if arguments.json:
            text = report.model_dump_json() + "\n"
        else:
            text = "".join(f"{line}\n" for line in markdown(report))
        if arguments.output is None:
            sys.stdout.write(text)
        else:
            _write(arguments.output, text)
        return 0

    return guarded(arguments, work)


def _report(socket: Path, name: str) -> PostMortem:
    view = newest_view(socket)
    found = _rows(socket, "incidents", name=name)
    incident = next((each for each in view.incidents if each.id == name), None)
    if incident is None and found:
        incident = IncidentView.model_validate(found[-1])
    if incident is None:
        raise RefusedError(f"there is no incident {name}", EXIT_UNKNOWN)
    since, until = window_of(incident, view.now)
    lines = _rows(socket, "lines", since=since, until=until)
    iterations = None
    if incident.task is not None:
        iterations = _rows(
            socket,
            "iterations",
            name=incident.task,
            since=since - _earlier_s(view, incident),
            until=until,
        )
    return post_mortem(
        view, incident, _plans(socket, view, since),
        entries_in(lines) if lines is not None else _shown_lines(socket),
        iterations_in(iterations) if iterations is not None else None,
        _evidence(socket, name),
    )  # fmt: skip


def _evidence(socket: Path, name: str) -> EvidenceAnswer | None:
    with suppress(RefusedError):
        return evidence_of(socket, name)
    return None


def _earlier_s(view: ClusterView, incident: IncidentView) -> float:
    """Return how much earlier iterations may have run that the incident makes run again."""
    task = next((each for each in view.tasks if each.name == incident.task), None)
    average_s = task.pace.average_s if task and task.pace else 0.0
    return 20 * average_s


def _plans(socket: Path, view: ClusterView, since: float) -> list[PlanView]:
    """Return plans with their explanations, where they are known: the newest are in the view."""
    former = [PlanView.model_validate(row) for row in _rows(socket, "plans", since=since) or ()]
    shown = {plan.id: plan for plan in view.plans}
    return [*(plan for plan in former if plan.id not in shown), *shown.values()]


def _shown_lines(socket: Path) -> list[TimelineEntry]:
    """Return the newest lines of the event stream, for want of a history."""
    with connect(socket) as connection:
        _, lines = connection.beginning()
    return [TimelineEntry(at=line.at, source=line.source, text=line.text) for line in lines]


def _rows(
    socket: Path,
    table: HistoryTable,
    *,
    name: str | None = None,
    since: float = 0.0,
    until: float | None = None,
) -> Any:  # noqa: ANN401 - JSON
    """Return rows of the history; None if there is none, as of a recording."""
    request_id, actor = who_asks()
    reply = ask(
        socket,
        ReadHistory(
            request_id=request_id, actor=actor, table=table, name=name, since=max(0.0, since),
            until=until, limit=_MOST_ROWS,
        ),
    )  # fmt: skip
    return (reply.data or {}).get("rows") if reply.is_ok else None


def _write(path: Path, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise RefusedError(f"{path}: the file is there already: name a new one") from error
    except OSError as error:
        raise RefusedError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    sys.stdout.write(f"{path}: written\n")
