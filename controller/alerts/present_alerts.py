"""Finds the alerts of a cluster in its view. Pure: what a view does not show alerts nobody.

A fault that automation cures is ``info`` or ``warning``. A decision of a person is ``critical``.
Texts may hold words of ranks and nodes, which nobody trusts: they are cut, on one line, and name
nobody in a chat.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from controller.alerts.alert import Alert, AlertSeverity
from controller.api.views import (
    ClusterView,
    IncidentState,
    IncidentView,
    NodeCondition,
    NodeView,
    PlanState,
    PlanView,
    RehearsedCureView,
    TaskPhase,
    TaskView,
)
from profiles.records import on_one_line

_MOST_CHARS: Final = 400
_MOST_FINDINGS: Final = 5
_CURED_BY_ITSELF: Final[dict[str, AlertSeverity]] = {"SEV1": "warning"}
"""Severity of the alert while Unicron cures the fault; ``info`` for all others."""
_ACTIONS: Final = {
    "reattempt": "Unicron starts the iteration again in the same processes",
    "restart": "Unicron gives the broken ranks new processes",
    "reconfigure": "Unicron divides the workers anew, without what is broken",
}
_NOTHING: Final = "nothing"


def present_alerts(view: ClusterView) -> list[Alert]:
    """Return the alerts of a cluster, the most urgent first, also those that are just over."""
    found = [
        *_of_automation(view),
        *_of_plans(view),
        *_of_incidents(view),
        *_of_nodes(view),
        *_of_tasks(view),
    ]
    return sorted(found, key=lambda alert: (alert.is_over, -alert.rank))


def utc_of(view: ClusterView, at: float) -> str:
    """Return an instant of the run as a date and a time."""
    moment = datetime.fromtimestamp(view.started_wall_s + at, tz=UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def harmless(text: str) -> str:
    """Return words of a rank or a node on one line, cut, and without a mention in a chat."""
    line = on_one_line(text)
    cut = line if len(line) <= _MOST_CHARS else f"{line[:_MOST_CHARS]} ..."
    return cut.replace("@", "(at)").replace("<!", "(!")


def _of_automation(view: ClusterView) -> Iterator[Alert]:
    if view.automation_stopped:
        yield Alert(
            "automation",
            "critical",
            "automation is stopped: every plan waits for an approval",
            (
                ("why", view.automation_stopped),
                ("needs", "look for what the lost nodes share, then approve plans or resume"),
            ),
            ("unicron nodes", "unicron plans", "unicron resume"),
        )


def _of_plans(view: ClusterView) -> Iterator[Alert]:
    for plan in view.plans:
        if plan.state is PlanState.PENDING:
            yield _waiting_plan(view, plan)


def _waiting_plan(view: ClusterView, plan: PlanView) -> Alert:
    name = f"{plan.id}:{plan.revision}"
    faulted = [change.task for change in plan.changes if change.is_faulted]
    sizes = ", ".join(
        f"{change.task} {change.workers_before} -> {change.workers_after} workers"
        for change in plan.changes
        if change.moves
    )
    if plan.apply_at is None:
        stand, needs = "waits for an approval", "your decision"
    else:
        stand = f"is applied at {utc_of(view, plan.apply_at)}"
        needs = "nothing, unless you want it otherwise"
    cost = ""
    if faulted and plan.explanation is not None:
        hours = plan.explanation.waiting.gpu_hours_per_min
        cost = f"; each minute of waiting costs {hours:.2f} GPU-hours"
    return Alert(
        f"plan {name}",
        "critical" if faulted and plan.apply_at is None else "warning",
        f"plan {name} {stand}",
        (
            ("what", sizes or "no task moves"),
            ("why", harmless(plan.seen or plan.why)),
            ("since", utc_of(view, plan.created_at)),
            ("needs", f"{needs}{cost}"),
        ),
        (f"unicron explain {plan.id}", f"unicron approve {name}", f"unicron reject {name}"),
        tuple(change.task for change in plan.changes if change.moves or change.is_faulted),
        plan.created_at,
    )


def _of_incidents(view: ClusterView) -> Iterator[Alert]:
    phases = {task.name: task.phase for task in view.tasks}
    for incident in view.incidents:
        asked = incident.rehearsed
        if incident.state is IncidentState.DETECTED and asked is not None:
            if asked.approved_at is None:
                yield _rehearsed_alert(view, incident, asked)
        elif incident.state is not IncidentState.DETECTED:
            yield _incident_alert(view, incident, phases)


def _incident_alert(
    view: ClusterView, incident: IncidentView, phases: dict[str, TaskPhase]
) -> Alert:
    is_over = incident.state is IncidentState.RESOLVED
    where = _place(incident)
    drill = "drill: " if incident.is_drill else ""
    what = f"{incident.id} {drill}{incident.severity} {incident.status} on {where}"
    facts = [
        ("what", f"{incident.severity} {incident.status}: {harmless(incident.reason)}"),
        ("where", where),
        ("since", _found(view, incident)),
    ]
    severity: AlertSeverity = _CURED_BY_ITSELF.get(incident.severity, "info")
    commands: tuple[str, ...] = (f"unicron explain {incident.id}",)
    if is_over:
        stand, needs = "is over", _NOTHING
        facts.append(("done", _outcome(incident)))
    elif incident.state is IncidentState.HELD:
        stand, severity = "waits for you", "critical"
        needs, more = _needs_of_held(incident, phases)
        commands += more
    elif incident.state is IncidentState.DECIDED:
        stand, needs = "waits for a plan", "see the plan, if one waits"
        commands += ("unicron plans",)
    else:
        stand, needs = "is being cured", _NOTHING
        facts.append(("done", _ACTIONS.get(incident.action, incident.action)))
    if incident.is_drill:
        severity = "info"
    facts.append(("needs", needs))
    tasks = (incident.task,) if incident.task else ()
    return Alert(
        f"incident {incident.id}", severity, f"{what} {stand}", tuple(facts), commands, tasks,
        incident.detected_at, is_over,
    )  # fmt: skip


def _rehearsed_alert(view: ClusterView, incident: IncidentView, asked: RehearsedCureView) -> Alert:
    return Alert(
        f"incident {incident.id}",
        "critical",
        f"{incident.id} waits for an approval: auto-heal would {asked.action} now",
        (
            ("what", harmless(asked.reason)),
            ("since", utc_of(view, asked.at)),
            ("needs", "your decision; its task waits with its state in memory"),
        ),
        (f"unicron explain {incident.id}", f"unicron approve {incident.id}"),
        (incident.task,) if incident.task else (),
        asked.at,
    )


def _place(incident: IncidentView) -> str:
    rank = f"rank {incident.rank} of {incident.task}" if incident.rank is not None else ""
    nodes = ", ".join(incident.nodes) or incident.node
    return ", ".join(filter(None, (rank or incident.task, nodes))) or "the cluster"


def _found(view: ClusterView, incident: IncidentView) -> str:
    after_s = incident.detected_at - incident.fault_at
    return f"{utc_of(view, incident.fault_at)}, found after {after_s:.1f} s"


def _outcome(incident: IncidentView) -> str:
    cure = f"by {incident.action}" if incident.action else "by itself"
    if incident.recovery_s is None:
        return f"cured {cure}"
    return f"cured {cure}; training continued {incident.recovery_s:.1f} s after the fault"


def _needs_of_held(
    incident: IncidentView, phases: dict[str, TaskPhase]
) -> tuple[str, tuple[str, ...]]:
    """Return what an operator has to do about an incident that waits for one, and the commands."""
    task = incident.task
    if task is None or phases.get(task) is not TaskPhase.HELD:
        return "read why, and decide", ("unicron plans", "unicron propose")
    return (
        f"{task} does not train: read why, correct its program or its settings, and start it",
        (f"unicron logs {task} --tail 50", f"unicron start {task}"),
    )


def _of_nodes(view: ClusterView) -> Iterator[Alert]:
    for node in view.nodes:
        yield from _of_service(node)
        if node.asked_at is not None:
            yield Alert(
                f"question {node.node}",
                "critical",
                f"is node {node.node} lost?",
                (
                    ("what", harmless(node.note)),
                    ("since", utc_of(view, node.asked_at)),
                    ("needs", "look at the machine: until you answer, its tasks may stand still"),
                ),
                (
                    f"unicron unreachable {node.node} --lost",
                    f"unicron unreachable {node.node} --wait",
                ),
                since=node.asked_at,
            )
        if node.findings:
            shown = [harmless(each) for each in node.findings[:_MOST_FINDINGS]]
            yield Alert(
                f"findings {node.node}",
                "warning",
                f"node {node.node}: {shown[0]}",
                (("what", "; ".join(shown)), ("needs", "look at the machine")),
                (f"unicron nodes {node.node}", f"unicron drain {node.node}"),
            )


def _of_service(node: NodeView) -> Iterator[Alert]:
    """Yield why a node, or some of its workers, can't be used."""
    name = node.node
    is_in_repair = node.upkeep is not None and node.upkeep.state in {"repair", "returning"}
    if node.isolated and not is_in_repair:
        yield Alert(
            f"isolated {name}",
            "warning",
            f"node {name} is isolated",
            (("why", harmless(node.isolated)), ("needs", "a repair; it gets no work meanwhile")),
            (f"unicron repair {name}", f"unicron repair {name} --done", f"unicron uncordon {name}"),
        )
    elif node.condition is NodeCondition.LOST and not is_in_repair:
        yield Alert(
            f"lost {name}",
            "warning",
            f"node {name} is lost",
            (
                ("why", harmless(node.note)),
                ("needs", "a repair; it is used again as soon as it answers"),
            ),
            (f"unicron nodes {name}",),
        )
    for slot in node.workers:
        if slot.isolated and not node.isolated:
            place = f"{name}:{slot.worker}"
            yield Alert(
                f"isolated {place}",
                "warning",
                f"GPU {place} is isolated",
                (("why", harmless(slot.isolated)), ("needs", "a repair of this GPU")),
                (f"unicron uncordon {place}",),
            )


def _of_tasks(view: ClusterView) -> Iterator[Alert]:
    told = {each.task for each in view.incidents if each.state is IncidentState.HELD}
    for task in view.tasks:
        if task.phase is TaskPhase.HELD and task.name not in told:
            yield _task_alert(
                task, "critical", "held", "read why, then start it",
                (f"unicron explain {task.name}", f"unicron start {task.name}"),
            )  # fmt: skip
        elif task.phase is TaskPhase.FINISHED:
            yield _task_alert(task, "info", "finished", _NOTHING, (f"unicron tasks {task.name}",))
        elif task.phase is TaskPhase.STOPPED and not _is_ordered(task):
            yield _task_alert(
                task, "warning", "stopped", "workers, or fewer min_workers",
                (f"unicron explain {task.name}", f"unicron limits {task.name}"),
            )  # fmt: skip


def _task_alert(
    task: TaskView, severity: AlertSeverity, state: str, needs: str, commands: tuple[str, ...]
) -> Alert:
    end = f"/{task.target_iterations}" if task.target_iterations else ""
    return Alert(
        f"task {task.name} {state}",
        severity,
        f"task {task.name} is {state} at iteration {task.iteration}{end}",
        (("why", harmless(task.note) or "it has trained all its iterations"), ("needs", needs)),
        commands,
        (task.name,),
    )


def _is_ordered(task: TaskView) -> bool:
    return any(order.what in {"stopped", "finished"} for order in task.orders)
