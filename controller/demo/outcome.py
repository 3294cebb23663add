"""The outcome of a headless run: what happened, as one JSON object, and whether it is a success."""

import json

from pydantic import JsonValue

from controller.api.views import (
    ClusterView,
    IncidentView,
    NodeView,
    PlanView,
    TaskView,
    TransitionView,
)


def outcome_of(view: ClusterView) -> dict[str, JsonValue]:
    """Return the report that ``--json`` prints; times are seconds since the start."""
    return {
        "tasks": [_task(task) for task in view.tasks],
        "incidents": [_incident(incident) for incident in view.incidents],
        "plans": [_plan(plan) for plan in view.plans],
        "nodes": [_node(node) for node in view.nodes],
    }


def _node(node: NodeView) -> dict[str, JsonValue]:
    return {
        "node": node.node,
        "condition": node.condition.value,
        "isolated": node.isolated,
        "isolated_gpus": {
            str(each.worker): each.isolated for each in node.workers if each.isolated
        },
        "note": node.note,
        "asked_at": node.asked_at,
        "agent_rss_bytes": node.agent_rss_bytes,
    }


def _task(task: TaskView) -> dict[str, JsonValue]:
    layout = task.layout
    # As the API writes them: a loss that is not a number becomes text, which JSON can hold.
    losses = json.loads(task.model_dump_json(include={"losses"}))["losses"]
    return {
        "name": task.name,
        "workers": layout.tp * layout.pp * layout.dp if layout else 0,
        "layout": {"tp": layout.tp, "pp": layout.pp, "dp": layout.dp} if layout else None,
        "iterations": task.iteration,
        "rerun_iterations": task.num_rerun_iterations,
        "unsupported": list(task.unsupported),
        "transition": _transition(task.transition) if task.transition else None,
        "losses": {str(iteration): losses[str(iteration)] for iteration in sorted(task.losses)},
    }


def _transition(transition: TransitionView) -> dict[str, JsonValue]:
    """Return the newest transition; ``actual_s`` of a step is null while it is not over."""
    return {
        "kind": transition.kind,
        "is_done": transition.is_done,
        "predicted_s": transition.predicted_s,
        "actual_s": transition.actual_s,
        "steps": [step.model_dump() for step in transition.steps],
    }


def _incident(incident: IncidentView) -> dict[str, JsonValue]:
    return {
        "id": incident.id,
        "task": incident.task,
        "node": incident.node,
        "nodes": list(incident.nodes),
        "rank": incident.rank,
        "status": incident.status,
        "severity": incident.severity,
        "method": incident.method,
        "action": incident.action,
        "state": incident.state.value,
        "reason": incident.reason,
        "evidence": list(incident.evidence),
        "is_drill": incident.is_drill,
        "fault_at": incident.fault_at,
        "detected_at": incident.detected_at,
        "decided_at": incident.decided_at,
        "acting_at": incident.acting_at,
        "resolved_at": incident.resolved_at,
        "recovery_s": incident.recovery_s,
        "recomputed_micro_batches": incident.recomputed_micro_batches,
        "saved_micro_batches": incident.saved_micro_batches,
        "state_source": incident.state_source,
        "resume": incident.resume,
    }


def _plan(plan: PlanView) -> dict[str, JsonValue]:
    assignments: dict[str, JsonValue] = dict(plan.assignments)
    before: dict[str, JsonValue] = dict(plan.assignments_before)
    return {
        "id": plan.id,
        "revision": plan.revision,
        "trigger": plan.trigger,
        "state": plan.state.value,
        "approved_by": plan.approved_by,
        "waf_before": plan.waf_before,
        "waf_after": plan.waf_after,
        "assignments_before": before,
        "assignments": assignments,
        "placement_before": {each.task: list(each.placement_before) for each in plan.changes},
        "placement_after": {each.task: list(each.placement_after) for each in plan.changes},
        "seen": plan.seen,
        "why": plan.why,
    }
