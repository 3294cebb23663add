"""Everything about one incident, plan, node or task, as lines for people."""

from collections.abc import Iterator

from controller.api.views import (
    ClusterView,
    EvidenceAnswer,
    IncidentView,
    NodeView,
    PlanView,
    TaskView,
)
from controller.operate.status_report import SETTINGS, setting_text

Explainable = IncidentView | PlanView | TaskView | NodeView


def subject_of(view: ClusterView, name: str) -> Explainable | None:
    """Return what has this name; None if nothing has it."""
    named: list[tuple[str, Explainable]] = [
        *((incident.id, incident) for incident in view.incidents),
        *((plan.id, plan) for plan in view.plans),
        *((task.name, task) for task in view.tasks),
        *((node.node, node) for node in view.nodes),
    ]
    return dict(reversed(named)).get(name)


def lines_about(view: ClusterView, subject: Explainable) -> Iterator[str]:
    """Yield all that is known of it."""
    match subject:
        case IncidentView():
            yield from _incident_lines(view, subject)
        case PlanView():
            yield from plan_lines(view, subject)
        case TaskView():
            yield from _task_lines(view, subject)
        case NodeView():
            yield from _node_lines(view, subject)


def evidence_lines(answer: EvidenceAnswer) -> Iterator[str]:
    """Yield pieces of evidence with all that was seen."""
    for number, each in enumerate(answer.evidence, start=1):
        rank = f" of rank {each.rank}" if each.rank is not None else ""
        yield ""
        yield f"  evidence {number}, {each.kind}{rank}{f' on {each.node}' if each.node else ''}"
        yield f"    {each.summary}"
        if each.log:
            yield f"    log: {each.log}"
        yield from (f"    | {line}" for line in each.detail.splitlines())
    if answer.num_left_out:
        yield ""
        yield f"  {answer.num_left_out} later pieces of evidence are left out"


def _incident_lines(view: ClusterView, incident: IncidentView) -> Iterator[str]:
    """Yield the explanation of an incident."""
    place = [
        f"rank {incident.rank}" if incident.rank is not None else "",
        f"of {incident.task}" if incident.task else "",
        f"on {', '.join(incident.nodes or [incident.node])}" if incident.node else "",
    ]
    drill = ", staged by a drill" if incident.is_drill else ""
    yield f"{incident.id}: {incident.severity} {incident.status}{drill}"
    if where := " ".join(part for part in place if part):
        yield f"  where     {where}"
    yield f"  state     {incident.state}"
    yield f"  reason    {incident.reason or 'not known yet'}"
    yield f"  action    {incident.action or 'none yet'}"
    yield from _times(
        view.now,
        ("fault", incident.fault_at),
        ("detected", incident.detected_at),
        ("decided", incident.decided_at),
        ("acted", incident.acting_at),
        ("resolved", incident.resolved_at),
    )
    if incident.recovery_s is not None:
        yield f"  recovery  {incident.recovery_s:.1f} s from the fault to the next new iteration"
    if incident.resume:
        yield f"  resume    {incident.resume}"
    if incident.recomputed_micro_batches or incident.saved_micro_batches:
        yield (
            f"  work      {incident.saved_micro_batches} micro-batches kept,"
            f" {incident.recomputed_micro_batches} computed again"
        )
    yield from _list("evidence", incident.evidence)
    related = [plan.id for plan in view.plans if plan.trigger == incident.id]
    if related:
        yield f"  plans     {', '.join(related)}"


def plan_lines(view: ClusterView, plan: PlanView) -> Iterator[str]:
    """Yield the explanation of a plan."""
    yield f"{plan.id}:{plan.revision}: {plan.state}, asked for by {plan.trigger}"
    yield f"  seen      {plan.seen}"
    yield f"  why       {plan.why}"
    by = f" by {plan.approved_by}" if plan.approved_by else ""
    yield from _times(view.now, ("proposed", plan.created_at), (f"decided{by}", plan.decided_at))
    yield (
        f"  WAF       {_flops(plan.waf_before)} before, {_flops(plan.waf_now)} now,"
        f" {_flops(plan.waf_after)} after"
    )
    for change in plan.changes:
        verb = "moves" if change.moves else "stays"
        layout = change.layout_after
        parts = f" as tp{layout.tp} pp{layout.pp} dp{layout.dp}" if layout else ""
        where = f" on {', '.join(change.placement_after)}" if change.placement_after else ""
        pause = f"; about {change.transition_s:.0f} s without training" if change.moves else ""
        yield (
            f"  {change.task}: {verb}, {change.workers_before} -> {change.workers_after}"
            f" workers{parts}{where}{pause}"
        )
    yield from _list("steps", plan.steps)
    found = plan.explanation
    if found is None:
        return
    yield from _list(
        "instead", [f"{_sizes(each.differs)}: {each.verdict}" for each in found.alternatives]
    )
    waiting = found.waiting
    if waiting.gpu_hours_per_min:
        yield (
            f"  waiting   costs {waiting.gpu_hours_per_min:.2f} GPU hours a minute,"
            f" {waiting.weighted_flop_per_min:.3g} weighted FLOP"
        )
    if found.floors is not None:
        yield f"  floors    {found.floors.verdict}"


def _task_lines(view: ClusterView, task: TaskView) -> Iterator[str]:
    layout = task.layout
    parts = f" as tp{layout.tp} pp{layout.pp} dp{layout.dp}" if layout else ""
    target = f" of {task.target_iterations}" if task.target_iterations else ""
    yield f"{task.name}: {task.phase}{f', {task.note}' if task.note else ''}"
    yield f"  iteration {task.iteration}{target}, checkpoint at {task.checkpoint_iteration}"
    yield f"  workers   {task.workers}{parts}, generation {task.generation}"
    most = "or more" if task.max_workers is None else f"to {task.max_workers}"
    keeps = ", keeps running" if task.keeps_running else ""
    yield f"  weight    {task.weight:g}"
    yield f"  limits    {task.min_workers} {most} workers{keeps}"
    ordered = []
    for order in task.orders:
        value, instead = "", ""
        if order.what in SETTINGS:
            value = f" {setting_text(order.value)}"
            instead = f", the file says {setting_text(order.of_file)}"
        ordered.append(
            f"{order.what}{value} by {order.by} {view.now - order.since:.0f} s ago{instead}"
        )
    yield from _list("orders", ordered)
    if task.loss is not None:
        yield f"  loss      {task.loss:.4f}"
    if task.flops_per_s:
        yield f"  speed     {_flops(task.flops_per_s)}"
    ranks = [
        f"rank {slot.global_rank} on {node.node}:{slot.worker}, process {slot.pid}"
        for node in view.nodes
        for slot in node.workers
        if slot.task == task.name
    ]
    yield from _list("ranks", ranks)
    yield from _list("not in process", task.unsupported)
    yield from _list(
        "incidents", [_short(each) for each in view.incidents if each.task == task.name][-5:]
    )


def _node_lines(view: ClusterView, node: NodeView) -> Iterator[str]:
    state = f"isolated, {node.isolated}" if node.isolated else str(node.condition)
    yield f"{node.node}: {state}{f', {node.note}' if node.note else ''}"
    yield f"  address   {node.address}"
    if node.upkeep is not None:
        reason = f": {node.upkeep.reason}" if node.upkeep.reason else ""
        age = f"{view.now - node.upkeep.since:.0f} s ago"
        yield f"  upkeep    {node.upkeep.state} by {node.upkeep.by} {age}{reason}"
    if node.agent_pid is not None:
        yield f"  agent     process {node.agent_pid}"
    if node.heartbeat_at is not None:
        yield f"  heartbeat {view.now - node.heartbeat_at:.1f} s ago"
    yield from _list("findings", node.findings)
    workers = []
    for slot in node.workers:
        has = f"rank {slot.global_rank} of {slot.task}" if slot.task else "free"
        if slot.waits_for:
            has = f"a spare of {slot.waits_for}"
        isolated = f", {slot.isolated}" if slot.isolated else ""
        workers.append(f"{slot.worker}: {has}{isolated}")
    yield from _list("workers", workers)
    about = [each for each in view.incidents if node.node in (each.node, *each.nodes)]
    yield from _list("incidents", [_short(each) for each in about][-5:])


def _short(incident: IncidentView) -> str:
    return f"{incident.id} {incident.state}: {incident.severity} {incident.status}"


def _times(now: float, *times: tuple[str, float | None]) -> Iterator[str]:
    told = [f"{name} {now - at:.1f} s ago" for name, at in times if at is not None]
    yield f"  times     {', '.join(told)}"


def _list(head: str, items: list[str]) -> Iterator[str]:
    if items:
        yield f"  {head}"
        for item in items:
            yield f"    {item}"


def _sizes(sizes: dict[str, int]) -> str:
    return ", ".join(f"{task} {workers}" for task, workers in sizes.items())


def _flops(flops_per_s: float) -> str:
    return f"{flops_per_s:.3g} FLOP/s"
