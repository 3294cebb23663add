"""What differs between two instants of a cluster, in words."""

from collections.abc import Iterator

from console.viewmodel.drawing.numbers import clock, seconds, share
from controller.api.views import ClusterView, NodeView, TaskView


def comparison(first: ClusterView, second: ClusterView) -> list[str]:
    """Return what has changed from the earlier of two instants to the later one.

    The first line names the instants. Without a change there is a line that says so.
    """
    before, after = sorted((first, second), key=lambda view: view.now)
    times = [clock(view.started_wall_s + view.now) for view in (before, after)]
    lines = [f"{times[0]} to {times[1]}, {seconds(after.now - before.now)}"]
    changes = [*_cluster(before, after), *_tasks(before, after), *_nodes(before, after)]
    changes += [*_incidents(before, after), *_plans(before, after)]
    return lines + (changes or ["nothing has changed"])


def _cluster(before: ClusterView, after: ClusterView) -> Iterator[str]:
    wafs = [share(view.waf, view.waf_full, "none") for view in (before, after)]
    if wafs[0] != wafs[1]:
        yield f"WAF {wafs[0]} -> {wafs[1]} of full"
    if before.automation_stopped != after.automation_stopped:
        yield f"automation: {before.automation_stopped or 'works'} -> {after.automation_stopped or 'works'}"


def _tasks(before: ClusterView, after: ClusterView) -> Iterator[str]:
    known = {task.name: task for task in before.tasks}
    for task in after.tasks:
        old = known.pop(task.name, None)
        if old is None:
            yield f"task {task.name}: new, {task.phase}"
        elif words := list(_task(old, task)):
            yield f"task {task.name}: {', '.join(words)}"
    yield from (f"task {name}: gone" for name in known)


def _task(old: TaskView, new: TaskView) -> Iterator[str]:
    if old.phase != new.phase:
        yield f"{old.phase} -> {new.phase}"
    if old.workers != new.workers:
        yield f"{old.workers} -> {new.workers} workers"
    if old.layout != new.layout:
        yield f"{_layout(old)} -> {_layout(new)}"
    if old.generation != new.generation:
        yield f"generation {old.generation} -> {new.generation}"
    if old.iteration != new.iteration:
        yield f"iteration {old.iteration} -> {new.iteration}"
    if old.loss is not None and new.loss is not None and old.loss != new.loss:
        yield f"loss {old.loss:.3f} -> {new.loss:.3f}"
    if old.num_rerun_iterations != new.num_rerun_iterations:
        yield f"{new.num_rerun_iterations - old.num_rerun_iterations} iterations run again"
    if old.weight != new.weight:
        yield f"weight {old.weight:g} -> {new.weight:g}"


def _layout(task: TaskView) -> str:
    layout = task.layout
    return f"tp{layout.tp} pp{layout.pp} dp{layout.dp}" if layout else "no layout"


def _nodes(before: ClusterView, after: ClusterView) -> Iterator[str]:
    known = {node.node: node for node in before.nodes}
    for node in after.nodes:
        old = known.pop(node.node, None)
        if old is None:
            yield f"node {node.node}: new, {_condition(node)}"
        elif _condition(old) != _condition(node):
            yield f"node {node.node}: {_condition(old)} -> {_condition(node)}"
    yield from (f"node {name}: gone" for name in known)


def _condition(node: NodeView) -> str:
    words = [str(node.condition)]
    words += [f"isolated ({node.isolated})"] if node.isolated else []
    words += [node.upkeep.state] if node.upkeep else []
    return ", ".join(words)


def _incidents(before: ClusterView, after: ClusterView) -> Iterator[str]:
    known = {incident.id: incident for incident in before.incidents}
    for incident in after.incidents:
        old = known.get(incident.id)
        if old is None:
            yield f"{incident.id}: new, {incident.status}, {incident.state}"
        elif old.state != incident.state:
            yield f"{incident.id}: {old.state} -> {incident.state}"


def _plans(before: ClusterView, after: ClusterView) -> Iterator[str]:
    known = {plan.id: plan for plan in before.plans}
    for plan in after.plans:
        old = known.get(plan.id)
        if old is None:
            yield f"{plan.id} r{plan.revision}: new, {plan.state}"
        elif (old.state, old.revision) != (plan.state, plan.revision):
            yield f"{plan.id}: r{old.revision} {old.state} -> r{plan.revision} {plan.state}"
