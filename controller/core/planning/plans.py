"""Plans as objects: proposed for an event, decided by an operator or by policy, carried out.

The division itself is the planner's (``controller.core.rules.planner.solver``), as far as it has a
placement (``controller.core.planning.placed_division``); here it is explained and turned into
targets. There is at most one pending plan: a newer event gives it a new revision, and an approval
names the revision it means. Carrying a plan out needs no script: every task gets a target and moves
towards it on its own (``controller.core.recovery.generations``), so a fault in the middle is
handled like any other.

For a task without workers it finds the reason, and what would make room.
"""

from collections.abc import Collection, Mapping
from typing import Final

from controller.core.incidents.rehearsed_cures import rehearse_plan
from controller.core.incidents.resolution import is_handed_over
from controller.core.lifecycle.start_stop import stop
from controller.core.planning.placed_division import Targets, divide
from controller.core.planning.problem import (
    Available,
    is_faulted,
    planned_tasks,
    size_before,
)
from controller.core.planning.storm_guard import note_applied, stop_in_storm
from controller.core.recovery.generations import keeps_state
from controller.core.rules.approval import Approval, PlanTraits, rule_for
from controller.core.rules.planner.cost import PlanTask
from controller.core.rules.planner.solver import Division
from controller.core.state.phases import (
    IncidentState,
    NodeCondition,
    PlanState,
    TaskPhase,
)
from controller.core.state.plan import Plan, TaskChange
from controller.core.state.task import TaskState
from controller.core.state.task_records import Intent
from controller.core.state.turn import Turn
from controller.core.timers import PlanDue
from nodeagent.protocol.ids import NodeId, TaskId

_SOON_S: Final = 0.1
"""A timer may fire so much early."""


def propose(
    turn: Turn,
    *,
    trigger: str,
    seen: str,
    incidents: frozenset[str] = frozenset(),
    includes_held: bool = False,
    tries: TaskId | None = None,
) -> Plan | None:
    """Compute a plan for the present state, and apply it where policy grants that.

    A pending plan is revised, a plan under way is superseded. Returns None where no plan would
    change anything.

    Args:
        turn: The event that asks.
        trigger: Name of what asks, for operators.
        seen: What was observed, in one sentence.
        incidents: Incidents that ask.
        includes_held: Whether all tasks that were handed to the operator take part: only an
            operator's own request may try them.
        tries: One such task that the controller tries again.
    """
    tasks = planned_tasks(turn, includes_held=includes_held, tries=tries)
    available = Available(turn, tasks)
    decision, targets = divide(turn, tasks, available)
    _explain_queued(turn, decision)
    asked = {each.name: each for each in decision.problem.tasks}
    changes = {
        task.spec.task: _change(task, asked[task.spec.task], decision, targets) for task in tasks
    }
    if not any(change.moves for change in changes.values()):
        _drop_pending(turn)
        return None
    open_incidents = incidents | _open_incidents_of(turn, changes)
    plan = _new_plan(turn, decision, changes, trigger, seen, open_incidents)
    turn.announce(
        "warning",
        "plan",
        plan.name,
        f"revision {plan.revision}: {plan.why}",
        state=plan.state.value,
        revision=plan.revision,
        waf_before=plan.waf_before,
        waf_after=plan.waf_after,
    )
    apply_by_policy(turn, plan)
    is_applied = plan.state is not PlanState.PENDING
    if is_applied and tries and turn.state.tasks[tries].lifecycle.phase is not TaskPhase.HELD:
        turn.state.tasks[tries].faults.count_try()
    return plan


def apply_by_policy(turn: Turn, plan: Plan) -> None:
    """Apply a pending plan, begin its countdown or reject it, as policy says.

    In a storm it waits.
    """
    policy = turn.policy
    if policy.is_rehearsal:
        if plan.incidents:
            rehearse_plan(turn, plan)
        else:
            approve(turn, plan, "policy: as ordered")
        return
    rule = rule_for(policy.approvals, _traits(turn, plan)) if policy.approvals else None
    if rule is None:
        then: Approval = "auto" if policy.is_auto_heal else "ask"
        after_s, by = policy.auto_after_s, "policy auto-heal"
    else:
        then, after_s = rule.then, rule.auto_after_s
        by = f"approval rule {policy.approvals.index(rule) + 1}"
    if then == "never":
        reject(turn, plan, by, "plans of this kind are never applied")
    elif (then == "ask" and not after_s) or stop_in_storm(turn):
        return
    elif then == "auto":
        note_applied(turn)
        approve(turn, plan, by)
    else:
        count_down(turn, plan, after_s)


def _traits(turn: Turn, plan: Plan) -> PlanTraits:
    """Return what rules about approvals look at."""
    incidents = (turn.state.incidents.find(name) for name in plan.incidents)
    severities = [each.cause.severity for each in incidents if each is not None]
    sizes = {
        change.task: (max(change.workers_before, change.workers_after), change.moves)
        for change in plan.changes.values()
    }
    planned = sum(size for size, _ in sizes.values())
    moved = sum(size for size, moves in sizes.values() if moves)
    return PlanTraits(
        severity=min(severities, default=""),
        tasks=[str(task) for task, (_, moves) in sizes.items() if moves],
        moved_share=moved / planned if planned else 0.0,
        wall_s=turn.state.automation.started_wall_s + turn.at,
    )


def count_down(turn: Turn, plan: Plan, after_s: float) -> None:
    """Have a pending plan applied after this time, unless an operator decides before."""
    plan.count_down_to(turn.at + after_s)
    turn.set_timer(PlanDue(plan.name, plan.revision), after_s)


def take_due_plan(turn: Turn, name: str, revision: int) -> None:
    """The countdown of a plan is over, unless it was deferred, decided or revised meanwhile."""
    plan = turn.state.plans.pending()
    if plan is None or (plan.name, plan.revision) != (name, revision) or plan.apply_at is None:
        return
    if plan.apply_at - turn.at > _SOON_S:
        turn.set_timer(PlanDue(name, revision), plan.apply_at - turn.at)
    elif not stop_in_storm(turn):
        note_applied(turn)
        approve(turn, plan, "policy auto_after_s")


def make_requested_plans(turn: Turn) -> bool:
    """Propose the plans that the turn has asked for; return whether it had."""
    requests = turn.take_plan_requests()
    for request in requests:
        propose(
            turn, trigger=request.trigger, seen=request.seen, incidents=request.incidents,
            tries=request.tries,
        )  # fmt: skip
    return bool(requests)


def reconsider(turn: Turn, *, trigger: str, seen: str) -> None:
    """Workers have become free: some task may start, or gain by growing; the planner says."""
    propose(turn, trigger=trigger, seen=seen)


def _drop_pending(turn: Turn) -> None:
    """What a pending plan wanted to change does not need to be changed any more."""
    pending = turn.state.plans.pending()
    if pending:
        turn.state.plans.become(pending, PlanState.SUPERSEDED)
        turn.announce("info", "plan", pending.name, "is superseded: no change is needed any more")


def _open_incidents_of(turn: Turn, changes: dict[TaskId, TaskChange]) -> set[str]:
    """Incidents that wait for a plan, of which every task takes part in this one."""
    return {
        incident.name
        for incident in turn.state.incidents.open()
        if not is_handed_over(incident)
        and (incident.cause.action == "reconfigure" or incident.state is IncidentState.HELD)
        and all(
            name in changes or turn.state.tasks[name].lifecycle.phase is TaskPhase.FINISHED
            for name in incident.covers
        )
    }


def approve(turn: Turn, plan: Plan, actor: str) -> None:
    """Give every task of a pending plan its target, and begin the transition."""
    turn.state.plans.become(plan, PlanState.APPROVED)
    plan.note_decision(turn.at, actor)
    turn.announce(
        "info", "plan", plan.name, f"approved by {actor}", state=plan.state.value, actor=actor
    )
    for incident in turn.state.incidents.open():
        if incident.name in plan.incidents:
            incident.consent(actor, turn.at)
        is_waiting = incident.state in {IncidentState.DECIDED, IncidentState.HELD}
        if incident.name in plan.incidents and is_waiting:
            incident.act(turn.at)
    for change in plan.changes.values():
        _redirect(turn, turn.state.tasks[change.task], change, plan)


def reject(turn: Turn, plan: Plan, actor: str, reason: str) -> None:
    """Decline a pending plan: tasks stay as they are, and its incidents wait for the operator."""
    turn.state.plans.become(plan, PlanState.REJECTED)
    plan.note_decision(turn.at, None)
    why = f": {reason}" if reason else ""
    turn.announce(
        "warning", "plan", plan.name, f"rejected by {actor}{why}", state=plan.state.value,
        actor=actor,
    )  # fmt: skip
    _hold(turn, plan.incidents)


def _hold(turn: Turn, incidents: Collection[str]) -> None:
    """Hand incidents that no plan cures to the operator."""
    for incident in turn.state.incidents.all:
        if incident.name in incidents:
            incident.hold()


def advance_plan(turn: Turn) -> None:
    """Close the plan that is being carried out once every task is where it was to be."""
    plan = turn.state.plans.executing()
    if plan is None or not all(
        _has_arrived(turn.state.tasks[change.task], change) for change in plan.changes.values()
    ):
        return
    turn.state.plans.become(plan, PlanState.APPLIED)
    took_s = turn.at - (plan.decided_at or turn.at)
    turn.announce(
        "good", "plan", plan.name, f"applied in {took_s:.1f} s", state=plan.state.value,
        took_s=took_s,
    )  # fmt: skip


def _change(task: TaskState, asked: PlanTask, decision: Division, targets: Targets) -> TaskChange:
    spec, before = task.spec, size_before(task)
    after, target = decision.assignments[spec.task], targets.get(spec.task)
    return TaskChange(
        task=spec.task,
        workers_before=before,
        workers_after=after,
        waf_before=spec.weight * spec.table.flops_per_s(before),
        waf_after=spec.weight * spec.table.flops_per_s(after),
        is_faulted=is_faulted(task),
        moves=is_faulted(task) or target != task.assignment.target,
        placement_before=() if task.lifecycle.phase is TaskPhase.STOPPED else task.placement,
        target=target,
        transition_s=asked.transition_to_s(after),
    )


def _new_plan(
    turn: Turn,
    decision: Division,
    changes: dict[TaskId, TaskChange],
    trigger: str,
    seen: str,
    incidents: Collection[str],
) -> Plan:
    pending, executing = turn.state.plans.pending(), turn.state.plans.executing()
    revised = pending
    if revised is None and executing is not None and turn.heals:
        # A further node was lost with those that the plan is for: it is still the same plan.
        revised = executing if executing.trigger == trigger else None
    isolated = tuple(
        node.spec.node
        for node in turn.state.nodes.values()
        if node.contact.condition is NodeCondition.LOST or node.service.isolated
    )
    plan = Plan(
        name=revised.name if revised else f"P-{turn.state.plans.num_named + 1}",
        revision=revised.revision + 1 if revised else 1,
        trigger=trigger,
        seen=seen,
        why=decision.why,
        created_at=turn.at,
        waf_before=sum(change.waf_before for change in changes.values()),
        waf_after=sum(change.waf_after for change in changes.values()),
        changes=changes,
        isolated_nodes=isolated,
        steps=_steps(turn, changes, isolated),
        problem=decision.problem,
        incidents=set(incidents),
    )
    if executing and executing is not revised:
        turn.state.plans.become(executing, PlanState.SUPERSEDED)
    turn.state.plans.keep(plan, revised)
    return plan


def _steps(
    turn: Turn, changes: dict[TaskId, TaskChange], isolated: tuple[NodeId, ...]
) -> tuple[str, ...]:
    moving = [change for change in changes.values() if change.moves]
    gpus = [
        f"GPU {slot} of {node.spec.node}"
        for node in turn.state.nodes.values()
        if node.service.isolated_gpus and node.is_in_service
        for slot in sorted(node.service.isolated_gpus)
    ]
    out = [*isolated, *gpus]
    steps = [f"isolate {', '.join(out)}"] if out else []
    for change in moving:
        steps += _steps_of(turn.state.tasks[change.task], change)
    return tuple(steps)


def _steps_of(task: TaskState, change: TaskChange) -> list[str]:
    name, target = change.task, change.target
    is_running = task.lifecycle.phase is TaskPhase.RUNNING
    stop_step = [f"{name}: finish the iteration, save a checkpoint, stop"] if is_running else []
    if target is None:
        verb = "stays" if is_running or task.lifecycle.phase is TaskPhase.STOPPED else "is"
        return [*stop_step, f"{name}: {verb} stopped"]
    where = f"on {', '.join(sorted({worker.node for worker in target.placement}))}"
    layout = target.layout
    if not task.can_regroup or not keeps_state(task, target):
        return [*stop_step, f"{name}: start {where} with {layout}, from the newest checkpoint"]
    park = "finish the iteration and park" if is_running else "park what is left"
    source = "its peers"
    if not keeps_state(task, target, with_copies=False):
        source += " and their in-memory checkpoints, or from the disk"
    return [f"{name}: {park}", f"{name}: continue {where} with {layout}, state from {source}"]


def _redirect(turn: Turn, task: TaskState, change: TaskChange, plan: Plan) -> None:
    """Set a task on its way to where the plan wants it."""
    if not change.moves or not task.is_wanted:
        return
    task.assignment.follow(change.target)
    if not turn.heals or task.lifecycle.phase is TaskPhase.HELD:
        task.faults.begin_anew()
    if change.target and task.can_regroup:
        return  # it parks and continues by itself
    intent: Intent = "run" if change.target else "stop"
    # A task that already saves its checkpoint for an earlier plan must not lose it for this one.
    is_saving = task.lifecycle.phase is TaskPhase.STOPPING and task.stopping.is_graceful
    is_healthy = is_saving or task.lifecycle.phase is TaskPhase.RUNNING
    note = f"moves by {plan.name}"
    if change.target is None:
        sizes = {each.task: each.workers_after for each in plan.changes.values()}
        note = _why_queued(task, sizes, plan.problem.num_workers)
    stop(turn, task, is_graceful=is_healthy, intent=intent, note=note)


def _has_arrived(task: TaskState, change: TaskChange) -> bool:
    if task.lifecycle.phase in {TaskPhase.FINISHED, TaskPhase.HELD} or not task.is_wanted:
        return True
    if change.target is None:
        return task.lifecycle.phase is TaskPhase.STOPPED
    return task.lifecycle.phase is TaskPhase.RUNNING and task.place == change.target


def _explain_queued(turn: Turn, division: Division) -> None:
    """Note at each task without ranks that a division leaves out why it does."""
    for name, size in division.assignments.items():
        task = turn.state.tasks[name]
        if not size and task.lifecycle.phase is TaskPhase.STOPPED:
            reason = _why_queued(task, division.assignments, division.problem.num_workers)
            task.lifecycle.explain(reason)


def _why_queued(task: TaskState, sizes: Mapping[TaskId, int], num_workers: int) -> str:
    """Return why a task has no workers.

    Args:
        task: The task.
        sizes: The workers of each task.
        num_workers: Workers that can be used.
    """
    needed, free = task.spec.smallest_size, num_workers - sum(sizes.values())
    if free >= needed:
        return (
            f"queued: it needs {needed} workers and {free} are free, but they do not fit together, or"
            " the change would cost more than it gains"
        )
    holders = ", ".join(f"{name} ({size})" for name, size in sizes.items() if size)
    return (
        f"queued: it needs {needed} workers and {free} are free; {needed - free} more make room, of"
        f" further nodes{f' or of {holders}' if holders else ''}"
    )
