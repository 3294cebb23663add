"""The report of ``unicron status``: JSON and tables, as functions of a view."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from controller.api.views import (
    ClusterView,
    IncidentView,
    NodeView,
    PlanView,
    RehearsedCureView,
    TaskView,
)
from controller.core.state.phases import IncidentState, NodeCondition, PlanState

SETTINGS: Final = frozenset({"weight", "min_workers", "max_workers", "keeps_running"})
"""What operators may order of a task beside what the file says."""


@dataclass(frozen=True, slots=True)
class StatusTable:
    """One table: its title, headings, rows, and the columns that are numbers."""

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]
    numbers: frozenset[int] = frozenset()


def as_json(view: ClusterView, socket: Path | None = None) -> dict[str, Any]:
    """Return the whole report as one JSON object. Times are seconds since the start of the run."""
    ranks = _ranks(view)
    return {
        "cluster": view.cluster,
        "now_s": view.now,
        "started_wall_s": view.started_wall_s,
        "is_auto_heal": view.is_auto_heal,
        "automation_stopped": view.automation_stopped,
        "tasks": [
            {
                "name": task.name,
                "phase": task.phase.value,
                "note": task.note,
                "iteration": task.iteration,
                "target_iterations": task.target_iterations,
                "loss": task.loss,
                "workers": task.workers,
                "layout": task.layout.model_dump() if task.layout else None,
                "generation": task.generation,
                "checkpoint_iteration": task.checkpoint_iteration,
                "weight": task.weight,
                "min_workers": task.min_workers,
                "max_workers": task.max_workers,
                "keeps_running": task.keeps_running,
                "orders": [each.model_dump() for each in task.orders],
                "ranks": ranks.get(task.name, []),
            }
            for task in view.tasks
        ],
        "nodes": [
            {
                "name": node.node,
                "address": node.address,
                "condition": node.condition.value,
                "note": node.note,
                "isolated": node.isolated,
                "upkeep": node.upkeep.model_dump() if node.upkeep else None,
                "workers": len(node.workers),
                "busy": _num_busy(node),
                "agent_pid": node.agent_pid,
                "asked_at": node.asked_at,
            }
            for node in view.nodes
        ],
        "incidents": [_incident(incident) for incident in view.incidents],
        "plans": [_plan(plan) for plan in view.plans],
        "controller": {
            **(view.controller.model_dump() if view.controller else {}),
            **({"socket": str(socket)} if socket is not None else {}),
        },
    }


def tables(view: ClusterView, socket: Path) -> list[StatusTable]:
    """Return the tables: tasks, nodes, open incidents, waiting plans, and the controller."""
    return [
        task_table(view, set(task_names(view))),
        node_table(view, set(node_names(view))),
        incident_table("open incidents", open_incidents(view), view.now),
        plan_table("waiting plans", waiting_plans(view), view.now),
        StatusTable(
            "controller",
            ("cluster", "process", "term", "since", "journal", "plans", "socket"),
            [_controller_row(view, socket)],
            frozenset({2, 4}),
        ),
    ]


def task_names(view: ClusterView) -> list[str]:
    """Return the names of the tasks."""
    return [task.name for task in view.tasks]


def node_names(view: ClusterView) -> list[str]:
    """Return the names of the nodes."""
    return [node.node for node in view.nodes]


def task_table(view: ClusterView, names: Container[str]) -> StatusTable:
    """Return the table of these tasks."""
    return StatusTable(
        "tasks",
        ("task", "phase", "iteration", "loss", "workers", "layout", "weight", "note"),
        [_task_row(task) for task in view.tasks if task.name in names],
        frozenset({2, 3, 4, 6}),
    )


def node_table(view: ClusterView, names: Container[str]) -> StatusTable:
    """Return the table of these nodes."""
    return StatusTable(
        "nodes",
        ("node", "address", "condition", "busy", "note"),
        [
            (
                node.node,
                node.address,
                _condition(node),
                f"{_num_busy(node)}/{len(node.workers)}",
                _node_note(node),
            )
            for node in view.nodes
            if node.node in names
        ],
        frozenset({3}),
    )


def incident_table(title: str, incidents: Iterable[IncidentView], now: float) -> StatusTable:
    """Return a table of incidents."""
    return StatusTable(
        title,
        ("incident", "state", "severity", "status", "place", "action", "age", "reason"),
        [_incident_row(incident, now) for incident in incidents],
        frozenset({6}),
    )


def rehearsal_table(incidents: Iterable[IncidentView], now: float) -> StatusTable:
    """Return the table of rehearsed cures, beside the real outcome of each incident."""
    return StatusTable(
        "rehearsed",
        ("incident", "place", "auto-heal would", "after", "because", "what happened", "after"),
        [_rehearsal_row(each, each.rehearsed, now) for each in incidents if each.rehearsed],
        frozenset({3, 6}),
    )


def plan_table(title: str, plans: Iterable[PlanView], now: float) -> StatusTable:
    """Return a table of plans."""
    return StatusTable(
        title,
        ("plan", "state", "age", "trigger", "workers", "reason"),
        [_plan_row(plan, now) for plan in plans],
        frozenset({2}),
    )


def open_incidents(view: ClusterView) -> list[IncidentView]:
    """Return the incidents that are not resolved, also those that wait for an operator."""
    return [each for each in view.incidents if each.state is not IncidentState.RESOLVED]


def waiting_plans(view: ClusterView) -> list[PlanView]:
    """Return the plans that wait for an operator, or for their countdown."""
    return [plan for plan in view.plans if plan.state is PlanState.PENDING]


def _ranks(view: ClusterView) -> dict[str, list[dict[str, Any]]]:
    """Return the ranks of each task, in the order of their numbers."""
    found: dict[str, list[dict[str, Any]]] = {}
    for node in view.nodes:
        for slot in node.workers:
            if slot.task is not None and slot.global_rank is not None:
                rank = {
                    "rank": slot.global_rank,
                    "node": node.node,
                    "worker": slot.worker,
                    "pid": slot.pid,
                    "iteration": slot.iteration,
                }
                found.setdefault(slot.task, []).append(rank)
    return {name: sorted(ranks, key=lambda each: each["rank"]) for name, ranks in found.items()}


def _condition(node: NodeView) -> str:
    if node.condition is NodeCondition.HEALTHY and node.upkeep is not None:
        return node.upkeep.state
    return "isolated" if node.isolated else node.condition.value


def _node_note(node: NodeView) -> str:
    notes = [node.isolated or node.note]
    if node.upkeep is not None:
        reason = f": {node.upkeep.reason}" if node.upkeep.reason else ""
        notes.insert(0, f"{node.upkeep.state} by {node.upkeep.by}{reason}")
    return "; ".join(filter(None, notes))


def _task_note(task: TaskView) -> str:
    """Return why the task is as it is, and which settings are not the file's."""
    ordered = [
        f"{order.what} {setting_text(order.value)} by {order.by}"
        for order in task.orders
        if order.what in SETTINGS
    ]
    submitted = [f"submitted by {order.by}" for order in task.orders if order.what == "submitted"]
    return "; ".join(filter(None, [task.note, *ordered, *submitted]))


def setting_text(value: float | bool | None) -> str:
    """Return the value of a setting in words."""
    if value is None:
        return "none"
    return ("yes" if value else "no") if isinstance(value, bool) else f"{value:g}"


def _num_busy(node: NodeView) -> int:
    return sum(slot.task is not None for slot in node.workers)


def _task_row(task: TaskView) -> tuple[str, ...]:
    target = f"/{task.target_iterations}" if task.target_iterations else ""
    layout = task.layout
    return (
        task.name,
        task.phase.value,
        f"{task.iteration}{target}",
        "" if task.loss is None else f"{task.loss:.4f}",
        str(task.workers),
        f"tp{layout.tp} pp{layout.pp} dp{layout.dp}" if layout else "",
        f"{task.weight:g}",
        _task_note(task),
    )


def _incident(incident: IncidentView) -> dict[str, Any]:
    keys = {
        "id", "state", "severity", "status", "method", "action", "task", "node", "rank", "reason",
        "is_drill", "fault_at", "detected_at", "resolved_at", "recovery_s",
    }  # fmt: skip
    return incident.model_dump(mode="json", include=keys)


def _plan(plan: PlanView) -> dict[str, Any]:
    keys = {
        "id", "revision", "state", "trigger", "assignments", "assignments_before", "waf_before",
        "waf_after", "why", "approved_by", "apply_at",
    }  # fmt: skip
    return plan.model_dump(mode="json", include=keys)


def _incident_row(incident: IncidentView, now: float) -> tuple[str, ...]:
    return (
        incident.id,
        incident.state.value,
        incident.severity,
        incident.status,
        _place(incident),
        incident.action,
        f"{now - incident.fault_at:.0f} s",
        incident.reason,
    )


def _place(incident: IncidentView) -> str:
    rank = f"rank {incident.rank} of {incident.task}" if incident.rank is not None else ""
    return ", ".join(part for part in (rank or incident.task, incident.node) if part)


def _rehearsal_row(
    incident: IncidentView, rehearsed: RehearsedCureView, now: float
) -> tuple[str, ...]:
    """Return the row of one incident. Its times count from the fault."""
    since = min(incident.fault_at, incident.detected_at)
    if incident.resolved_at is not None:
        by = f"{incident.action}, approved by {rehearsed.approved_by}"
        happened = by if rehearsed.approved_by else "it was over without an approval"
        until = incident.resolved_at
    elif rehearsed.approved_at is not None:
        happened, until = f"approved by {rehearsed.approved_by}", rehearsed.approved_at
    else:
        happened, until = "it waits for an approval", now
    return (
        incident.id,
        _place(incident),
        rehearsed.action,
        f"{rehearsed.at - since:.1f} s",
        rehearsed.reason,
        happened,
        f"{until - since:.1f} s",
    )


def _plan_row(plan: PlanView, now: float) -> tuple[str, ...]:
    sizes = ", ".join(
        f"{task} {plan.assignments_before.get(task, 0)} -> {workers}"
        for task, workers in plan.assignments.items()
    )
    name, age = f"{plan.id}:{plan.revision}", f"{now - plan.created_at:.0f} s"
    state = plan.state.value
    if plan.apply_at is not None:
        state = f"{state}, applied in {max(0.0, plan.apply_at - now):.0f} s"
    return (name, state, age, plan.trigger, sizes, plan.why)


def _controller_row(view: ClusterView, socket: Path) -> tuple[str, ...]:
    found = view.controller
    heals = "at once" if view.is_auto_heal else "wait for approval"
    if view.automation_stopped:
        heals = f"wait for approval until `unicron resume`: {view.automation_stopped}"
    if found is None:
        return (view.cluster, "", "", "", "", heals, str(socket))
    return (
        view.cluster,
        f"{found.pid} on {found.host}",
        str(found.term),
        found.since,
        f"{found.journal_bytes / 1e6:.1f} MB",
        heals,
        str(socket),
    )
