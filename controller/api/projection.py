"""The views that operators see, as a pure function of the core's state and the time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from controller.api.views import (
    ClusterView,
    ControllerView,
    DrillView,
    EvidenceAnswer,
    EvidenceView,
    ExplanationView,
    IncidentView,
    LayoutView,
    MeasuredSizeView,
    MeasurementView,
    NodeView,
    OrderView,
    PaceView,
    PlanView,
    PreparedView,
    RehearsedCureView,
    StepView,
    TaskChangeView,
    TaskView,
    TransitionView,
    UpkeepView,
    WorkerView,
)
from controller.api.wire import MOST_EVIDENCE, ReadEvidence, Reply
from controller.core.heartbeats.heartbeat_watch import ListedRank, Pulse, rank_pulses
from controller.core.rules.pace import Pace
from controller.core.rules.placement import runs_of
from controller.core.rules.planner.explanation import Explanation
from controller.core.rules.policy import Policy
from controller.core.rules.transitions import Transition
from controller.core.state.cluster import ClusterState
from controller.core.state.incident import Incident
from controller.core.state.measurement import NUM_WARM_UP, MeasuredRun, MeasuredSize, Measurement
from controller.core.state.node import NodeState
from controller.core.state.phases import NodeCondition, PlanState, TaskPhase
from controller.core.state.plan import Plan
from controller.core.state.task import TaskState
from controller.core.state.task_orders import TaskOrders
from controller.core.state.upkeep import NodeUpkeep, UpkeepState
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.rank_status import RankStatus
from profiles.layout import Layout


@dataclass(frozen=True, slots=True)
class Frame:
    """The parts of a view that are not in the core's state."""

    cluster: str
    started_wall_s: float
    is_auto_heal: bool
    is_closing: bool = False
    drills: Sequence[DrillView] = ()
    max_losses: int | None = 120
    """Number of losses per task, the newest; None for all."""
    explanations: Mapping[tuple[str, int], Explanation | None] = field(default_factory=dict)
    prepared: PreparedView | None = None
    controller: ControllerView | None = None
    pulses: Mapping[NodeId, Pulse] = field(default_factory=dict)
    """What the nodes said of themselves last."""
    policy: Policy = field(default_factory=Policy)
    """Says from when on iterations are late."""


def project(
    state: ClusterState,
    now: float,
    frame: Frame,
    view_of: Callable[[NodeId, Frame], NodeView] | None = None,
) -> ClusterView:
    """Return the view of ``state`` at ``now``.

    ``view_of`` returns the view of a node, if there is a faster way than to make it.
    """
    waf, waf_full = waf_of(state)
    tasks = [task for task in state.tasks.values() if not task.has_left]
    return ClusterView(
        cluster=frame.cluster,
        now=now,
        started_wall_s=frame.started_wall_s,
        is_auto_heal=frame.is_auto_heal,
        automation_stopped=state.automation.stopped,
        is_closing=frame.is_closing,
        waf=waf,
        waf_full=waf_full,
        nodes=[
            view_of(name, frame) if view_of else node_view(node, state, frame.pulses)
            for name, node in state.nodes.items()
            if node.contact.condition is not NodeCondition.REMOVED
        ],
        tasks=[_task(task, frame.max_losses, frame.policy) for task in tasks],
        incidents=[incident_view(incident) for incident in state.incidents.all],
        plans=[
            plan_view(plan, waf, frame.explanations.get((plan.name, plan.revision)))
            for plan in state.plans.all
        ],
        drills=list(frame.drills),
        prepared=frame.prepared,
        measurement=_measurement(state.measurements.current)
        if state.measurements.current
        else None,
        controller=frame.controller,
    )


def waf_of(state: ClusterState) -> tuple[float, float]:
    """Return the weighted FLOP/s of the ranks that run, and of all tasks at their full sizes."""
    return sum(task.waf for task in state.tasks.values()), sum(
        task.spec.weight * task.spec.table.flops_per_s(task.spec.workers)
        for task in state.tasks.values()
        if not task.has_left
    )


def _note_of(task: TaskState) -> str:
    """Return why the task is as it is, or what will change."""
    orders = task.orders
    if orders.finished is not None:
        return f"ended by {orders.finished.actor}"
    if orders.stopped is not None and task.lifecycle.phase is TaskPhase.STOPPED:
        return f"stopped by {orders.stopped.actor}"
    if task.membership.next_spec is not None and not task.lifecycle.note:
        return "its program has changed: the next start with new processes takes it"
    return task.lifecycle.note


def node_view(node: NodeState, state: ClusterState, pulses: Mapping[NodeId, Pulse]) -> NodeView:
    """Return the view of one node."""
    spec, pulse = node.spec, pulses.get(node.spec.node)
    return NodeView(
        node=spec.node,
        address=spec.address,
        condition=node.contact.condition,
        note="leaves the cluster" if node.membership.is_leaving else node.contact.note,
        isolated=node.service.isolated,
        upkeep=_upkeep(node.upkeep),
        asked_at=node.inquiry.asked_at,
        findings=[
            f"{finding.probe}: {finding.first_line}" for finding in node.findings.present.values()
        ],
        agent_pid=node.contact.agent_pid,
        agent_rss_bytes=pulse.rss_bytes if pulse else None,
        heartbeat_at=pulse.at if pulse else None,
        workers=_workers(node, state, rank_pulses(pulses, spec.node)),
    )


def _upkeep(upkeep: NodeUpkeep) -> UpkeepView | None:
    if upkeep.state is UpkeepState.NONE:
        return None
    return UpkeepView(
        state=upkeep.state.value, by=upkeep.actor, since=upkeep.since, reason=upkeep.reason
    )


def _workers(
    node: NodeState, state: ClusterState, seen: Mapping[ListedRank, RankStatus]
) -> list[WorkerView]:
    """Return the workers of a node, each with the process that it has."""
    name, held = node.spec.node, dict[int, dict[str, Any]]()
    for task in state.tasks.values():
        for number in task.numbers_on.get(name, ()):
            rank = task.ranks[number]
            if not rank.is_alive:
                continue
            status = seen.get((task.spec.task, task.generation, number))
            held[rank.worker.slot] = {
                "task": task.spec.task,
                "global_rank": number,
                "pid": rank.pid,
                "iteration": max(rank.iteration, status.iteration if status else 0),
                "rss_bytes": status.rss_bytes if status else None,
            }
        for number, rank in task.spares.ranks.items():
            if rank.worker.node == name and rank.is_alive:
                status = seen.get((task.spec.task, task.generation, number))
                rss_bytes = status.rss_bytes if status else None
                waits = {"waits_for": task.spec.task, "pid": rank.pid, "rss_bytes": rss_bytes}
                held[rank.worker.slot] = held.get(rank.worker.slot, {}) | waits
    if state.measurements.current and (run := state.measurements.current.run):
        for number, worker in run.living.items():
            if worker.node == name:
                measured = {"task": run.task, "global_rank": number}
                held[worker.slot] = held.get(worker.slot, {}) | measured
    isolated = node.service.isolated_gpus
    return [
        WorkerView(**{"worker": slot, "isolated": isolated.get(slot, ""), **held.get(slot, {})})
        for slot in range(node.spec.num_workers)
    ]


def _measurement(measurement: Measurement) -> MeasurementView:
    return MeasurementView(
        name=measurement.name,
        task=measurement.task,
        num_iterations=measurement.num_iterations,
        num_warm_up=NUM_WARM_UP,
        ended=measurement.ended,
        is_over=measurement.is_over,
        sizes=[_measured_size(size, measurement.run) for size in measurement.sizes],
    )


def _measured_size(size: MeasuredSize, run: MeasuredRun | None) -> MeasuredSizeView:
    layout = size.layout
    return MeasuredSizeView(
        workers=size.workers,
        layout=LayoutView(tp=layout.tp, pp=layout.pp, dp=layout.dp),
        phase=size.phase,
        reason=size.reason,
        iterations=run.num_commits if run is not None and run.size is size else 0,
        iteration_s=size.iteration_s,
        flops_per_s=size.flops_per_s,
    )


def _task(task: TaskState, max_losses: int | None, policy: Policy) -> TaskView:
    spec = task.spec
    losses = task.progress.losses  # in the order of iterations
    newest = list(islice(reversed(losses), max_losses or len(losses)))[::-1]
    flops_per_s = None
    if task.progress.mean_iteration_s and task.waf and spec.flops_per_iteration:
        flops_per_s = spec.flops_per_iteration / task.progress.mean_iteration_s
    return TaskView(
        name=spec.task,
        weight=spec.weight,
        phase=task.lifecycle.phase,
        note=_note_of(task),
        generation=task.generation,
        workers=len(task.living_ranks),
        layout=_layout(task.layout),
        iteration=task.progress.iteration,
        checkpoint_iteration=task.progress.checkpoint_iteration,
        checkpoint_s=task.progress.checkpoint_s,
        is_command=spec.is_command,
        is_sharded=spec.is_sharded,
        makes_copies=spec.makes_copies and not spec.is_command,
        target_iterations=spec.num_iterations,
        loss=task.progress.losses.get(task.progress.iteration),
        tokens_per_s=task.progress.tokens_per_s if task.waf else None,
        flops_per_s=flops_per_s,
        losses={iteration: losses[iteration] for iteration in newest},
        num_rerun_iterations=task.progress.num_rerun_iterations,
        pace=_pace(task.watch.pace, policy),
        unsupported=list(task.limits.unsupported),
        transition=_transition(task.transitions.current) if task.transitions.current else None,
        min_workers=spec.min_workers,
        max_workers=spec.max_workers,
        keeps_running=spec.keeps_running,
        orders=list(_orders(task.orders)),
    )


def _orders(orders: TaskOrders) -> Iterator[OrderView]:
    ordered = {
        "submitted": orders.submitted, "stopped": orders.stopped, "finished": orders.finished,
    }  # fmt: skip
    for what, mark in ordered.items():
        if mark is not None:
            yield OrderView(what=what, by=mark.actor, since=mark.at)
    for name, mark in orders.marks.items():
        yield OrderView(
            what=name, by=mark.actor, since=mark.at, value=getattr(orders.limits, name),
            of_file=getattr(orders.file_limits, name),
        )  # fmt: skip


def _pace(pace: Pace, policy: Policy) -> PaceView | None:
    average_s = pace.average_s
    if average_s is None:
        return None
    return PaceView(
        durations_s=list(pace.plain), average_s=average_s, late_s=pace.late_limit_s(policy, average_s),
        hang_s=pace.limit_s(policy, is_long=False),
    )  # fmt: skip


def _transition(transition: Transition) -> TransitionView:
    return TransitionView(
        decided_at=transition.decided_at,
        kind=transition.kind,
        steps=[
            StepView(name=step, predicted_s=seconds, actual_s=transition.actual_s.get(step))
            for step, seconds in transition.predicted_s.items()
        ],
        predicted_s=transition.total_predicted_s,
        actual_s=transition.total_actual_s,
        is_done=transition.is_done,
    )


def _layout(layout: Layout | None) -> LayoutView | None:
    return LayoutView(tp=layout.tp, pp=layout.pp, dp=layout.dp) if layout else None


def incident_view(incident: Incident) -> IncidentView:
    """Return the view of one incident."""
    return IncidentView(
        id=incident.name,
        task=incident.task,
        node=incident.cause.node,
        nodes=list(incident.cause.nodes),
        rank=incident.cause.global_rank,
        status=str(incident.cause.status or "unknown"),
        severity=incident.cause.severity,
        method=incident.cause.method,
        action=incident.cause.action,
        state=incident.state,
        evidence=[item.summary for item in incident.evidence[:8]],
        reason=incident.cause.reason,
        is_drill=incident.cause.is_drill,
        fault_at=incident.cause.fault_at,
        detected_at=incident.detected_at,
        decided_at=incident.cause.decided_at,
        acting_at=incident.acting_at,
        resolved_at=incident.resolved_at,
        recovery_s=incident.recovery.recovery_s,
        is_recovery_unseen=incident.recovery.is_unseen,
        recomputed_micro_batches=incident.recovery.recomputed_micro_batches,
        saved_micro_batches=incident.recovery.saved_micro_batches,
        state_source=incident.recovery.state_source,
        resume=incident.recovery.resume,
        rehearsed=(
            RehearsedCureView.model_validate(incident.rehearsed) if incident.rehearsed else None
        ),
    )


def evidence_reply(question: ReadEvidence, state: ClusterState) -> Reply:
    """Return the answer to a question for the evidence of an incident."""
    incident = state.incidents.find(question.incident)
    if incident is None:
        text = f"there is no evidence of {question.incident}: only the newest incidents have theirs"
        return Reply(request_id=question.request_id, is_ok=False, code="unknown", message=text)
    evidence = [
        EvidenceView(
            kind=each.kind, at=each.at, observed_at=each.observed_at, node=each.node,
            task=each.task, rank=each.global_rank, summary=each.summary, detail=each.detail,
            log=each.log,
        )
        for each in incident.evidence[:MOST_EVIDENCE]
    ]  # fmt: skip
    answer = EvidenceAnswer(evidence=evidence, num_evidence=len(incident.evidence))
    data = answer.model_dump(mode="json")
    return Reply(request_id=question.request_id, is_ok=True, data=data)


def plan_view(
    plan: Plan, waf: float | None = None, explanation: Explanation | None = None
) -> PlanView:
    """Return the view of one plan; ``waf`` is that of the cluster now, None if nobody asks."""
    return PlanView(
        id=plan.name,
        revision=plan.revision,
        trigger=plan.trigger,
        seen=plan.seen,
        why=plan.why,
        state=plan.state,
        created_at=plan.created_at,
        approved_by=plan.approved_by,
        decided_at=plan.decided_at,
        apply_at=plan.apply_at if plan.state is PlanState.PENDING else None,
        waf_before=plan.waf_before,
        waf_now=plan.waf_before if waf is None else waf,
        waf_after=plan.waf_after,
        assignments={name: change.workers_after for name, change in plan.changes.items()},
        assignments_before={name: change.workers_before for name, change in plan.changes.items()},
        changes=[
            TaskChangeView(
                task=change.task,
                workers_before=change.workers_before,
                workers_after=change.workers_after,
                layout_after=_layout(change.target.layout) if change.target else None,
                waf_before=change.waf_before,
                waf_after=change.waf_after,
                is_faulted=change.is_faulted,
                moves=change.moves,
                placement_before=runs_of(change.placement_before),
                placement_after=runs_of(change.target.placement) if change.target else [],
                transition_s=change.transition_s,
            )
            for change in plan.changes.values()
        ],
        steps=list(plan.steps),
        isolated_nodes=list(plan.isolated_nodes),
        explanation=ExplanationView.model_validate(explanation) if explanation else None,
    )
