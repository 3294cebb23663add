"""``unicron tasks``, ``nodes``, ``incidents`` and ``plans``: one kind of thing each, as a table."""

import argparse
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from controller.api.views import ClusterView, IncidentView, PlanView
from controller.operate.asking import add_common, complete_names, known_names
from controller.operate.showing import Shown, add_watch, show
from controller.operate.status_report import (
    StatusTable,
    as_json,
    incident_table,
    node_names,
    node_table,
    open_incidents,
    plan_table,
    rehearsal_table,
    task_names,
    task_table,
    waiting_plans,
)

_TEXTS: Final = {
    "tasks": "All tasks, or those that are named.",
    "nodes": "All nodes, or those that are named.",
    "incidents": "The open incidents: those that are not resolved. --all shows the newest 200."
    " Older ones: `unicron history incidents`.",
    "plans": "The plans that wait for a decision. --all shows the newest 100. NAME:REVISION is what `unicron"
    " approve` takes.",
}
_EXAMPLES: Final = {
    "tasks": ("unicron tasks", "unicron tasks gpt-a --watch", "unicron tasks --json | jq '.[].iteration'"),
    "nodes": ("unicron nodes", "unicron nodes n3 --json"),
    "incidents": (
        "unicron incidents", "unicron incidents --all --name n3", "unicron incidents --rehearsed"
    ),
    "plans": ("unicron plans", "unicron plans --all --json"),
}  # fmt: skip


def add_arguments(kind: str, parser: argparse.ArgumentParser) -> None:
    """Define the options of one of the commands."""
    add_common(parser, _TEXTS[kind], _EXAMPLES[kind])
    add_watch(parser)
    if kind in {"tasks", "nodes"}:
        names = parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
        complete_names(names, "task" if kind == "tasks" else "node")
    else:
        parser.add_argument("--all", action="store_true", help="also what is over")
        if kind == "incidents":
            parser.add_argument(
                "--rehearsed",
                action="store_true",
                help="what auto-heal would have done in a rehearsal, beside what happened; --all is implied",
            )
        name = parser.add_argument(
            "--name", metavar="NAME", help="only those that concern this task or node"
        )
        complete_names(name, "task", "node")


def run(arguments: argparse.Namespace) -> int:
    """Print the table; return the exit code."""
    parts: dict[str, Callable[[argparse.Namespace], _Parts]] = {
        "tasks": partial(_named, task_names, task_table),
        "nodes": partial(_named, node_names, node_table),
        "incidents": _incidents,
        "plans": _plans,
    }
    table, objects = parts[arguments.command](arguments)
    return show(arguments, Shown(lambda view: [table(view)], objects))


_Parts = tuple[Callable[[ClusterView], StatusTable], Callable[[ClusterView], Any]]


def _named(
    names: Callable[[ClusterView], list[str]],
    table: Callable[[ClusterView, set[str]], StatusTable],
    arguments: argparse.Namespace,
) -> _Parts:
    kind = arguments.command

    def wanted(view: ClusterView) -> set[str]:
        return known_names(kind.removesuffix("s"), arguments.names, names(view))

    def objects(view: ClusterView) -> list[dict[str, Any]]:
        chosen = wanted(view)
        return [each for each in as_json(view)[kind] if each["name"] in chosen]

    return lambda view: table(view, wanted(view)), objects


def _incidents(arguments: argparse.Namespace) -> _Parts:
    def chosen(view: ClusterView) -> list[IncidentView]:
        _check_name(view, arguments.name)
        known = view.incidents if arguments.all else open_incidents(view)
        if arguments.rehearsed:
            known = [each for each in view.incidents if each.rehearsed is not None]
        return [
            each for each in known if arguments.name in {None, each.task, each.node, *each.nodes}
        ]

    if arguments.rehearsed:
        return (
            lambda view: rehearsal_table(chosen(view), view.now),
            lambda view: [each.model_dump(mode="json") for each in chosen(view)],
        )
    title = "incidents" if arguments.all else "open incidents"
    return (
        lambda view: incident_table(title, chosen(view), view.now),
        lambda view: [each.model_dump(mode="json") for each in chosen(view)],
    )


def _plans(arguments: argparse.Namespace) -> _Parts:
    def chosen(view: ClusterView) -> list[PlanView]:
        _check_name(view, arguments.name)
        known = view.plans if arguments.all else waiting_plans(view)
        return [each for each in known if arguments.name in {None, each.trigger, *_moved_by(each)}]

    title = "plans" if arguments.all else "waiting plans"
    return (
        lambda view: plan_table(title, chosen(view), view.now),
        lambda view: [each.model_dump(mode="json") for each in chosen(view)],
    )


def _moved_by(plan: PlanView) -> Iterable[str]:
    """Yield the tasks and nodes of a plan's changes."""
    for change in plan.changes:
        if change.moves:
            yield change.task
            for run in (*change.placement_before, *change.placement_after):
                yield run.rpartition(":")[0]


def _check_name(view: ClusterView, name: str | None) -> None:
    wanted = [] if name is None else [name]
    known_names("task or node", wanted, [*task_names(view), *node_names(view)])
