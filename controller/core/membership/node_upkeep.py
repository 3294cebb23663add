"""Nodes that operators take out of service and bring back, without a fault.

A cordoned node keeps what it has. A node that is drained gets no work any more, and a plan moves
its tasks away; each finishes its iteration first. A node under repair may come and go without an
incident. It returns by itself once the repair is said to be over and its checks pass.
"""

from collections.abc import Collection

from controller.core.incidents.isolation import Outage, strand, withdraw
from controller.core.membership.node_membership import tasks_on
from controller.core.planning.placed_division import divide
from controller.core.planning.plans import propose, reconsider
from controller.core.planning.problem import Available, planned_tasks, size_before
from controller.core.rules.placement import Worker
from controller.core.state.node import NodeState
from controller.core.state.phases import NodeCondition, PlanState
from controller.core.state.turn import PlanRequest, Turn
from controller.core.state.upkeep import UpkeepState
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import NodeId


def failed_checks(node: NodeState, gpus: Collection[int] | None = None) -> list[str]:
    """Return why the node, or these GPUs of it, can't be used."""
    failed = []
    if node.contact.condition is not NodeCondition.HEALTHY:
        failed.append(f"it is {node.contact.condition}")
    subjects = None if gpus is None else {f"GPU {slot}" for slot in gpus}
    failed += [
        f"{finding.probe} still finds {finding.first_line}"
        for finding in node.findings.present.values()
        if finding.probe != "clock"  # nothing is decided by it
        and (subjects is None or finding.subject in subjects or _hides_gpus(finding))
    ]
    return failed


def _hides_gpus(finding: NodeFinding) -> bool:
    """Return whether the finding is that no GPU can be looked at."""
    return finding.probe == "gpu" and finding.sign == "unreadable"


def begin_drain(turn: Turn, node: NodeState, actor: str, reason: str) -> str:
    """Have the node's tasks moved away; return what follows, in words for the operator."""
    name = node.spec.node
    node.upkeep.order(UpkeepState.DRAINING, actor, reason, turn.at)
    turn.announce("info", "draining", name, f"{actor} drains it{_because(reason)}")
    tasks = tasks_on(turn.state, name)
    if not tasks:
        return f"{name} is drained: nothing runs there"
    if node.contact.condition is not NodeCondition.HEALTHY:
        turn.want_plan(name, f"{actor} drains {name}")
        return f"{name} is {node.contact.condition}: it is drained once it is in contact"
    plan = propose(turn, trigger=name, seen=f"{actor} drains {name}")
    if plan is None:
        return f"{name} is drained once {', '.join(tasks)} has left"
    if plan.state is PlanState.PENDING:
        plan_name = f"{plan.name}:{plan.revision}"
        return f"{name} is drained by {plan.name}: approve it with unicron approve {plan_name}"
    if plan.state is PlanState.REJECTED:
        return f"{name} is not drained yet: policy has rejected {plan.name}, which would do it"
    return f"{name} is drained by {plan.name}, which moves {', '.join(tasks)}"


def why_no_drain(turn: Turn, node: NodeState) -> str:
    """Return which training tasks would have to stop if the node were drained; empty if none."""
    name = node.spec.node
    planned = planned_tasks(turn, includes_held=False)
    available = Available(turn, planned, without=name)
    decision, _ = divide(turn, planned, available)
    stopped = [
        f"{task.spec.task} would have to stop (it needs {task.spec.smallest_size} workers)"
        for task in planned
        if size_before(task) and not decision.assignments[task.spec.task]
    ]
    if not stopped:
        return ""
    left = available.num_workers
    return (
        f"{name} can't be drained: {', '.join(stopped)}, since {left} workers are left; stop or finish"
        " another task, lower min_workers (unicron limits), or use --force"
    )


def isolate_by_order(turn: Turn, node: NodeState, actor: str, reason: str) -> None:
    """Take the node out of service at once: its ranks end, and a plan divides what is left."""
    name = node.spec.node
    why = f"isolated by {actor}{_because(reason)}"
    node.service.isolate(why)
    turn.announce(
        "warning", "isolated", name, f"{why}; to return it to service: unicron uncordon {name}"
    )
    outage = Outage(node)
    for task in withdraw(turn, outage):
        strand(turn, task, outage, f"{name} was {why}")
    turn.ask_for_plan(PlanRequest(trigger=name, seen=f"{name} was {why}"))


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def return_repaired(turn: Turn) -> None:
    """Bring back nodes whose repair is over, once they are in contact and their checks pass."""
    for name in list(turn.state.index.upkeep):
        node = turn.state.nodes[name]
        if node.upkeep.state is UpkeepState.RETURNING and not failed_checks(node):
            actor = node.upkeep.actor
            bring_back(turn, node)
            turn.announce("good", "uncordon", name, f"is back in service: {actor} has repaired it")
            turn.ask_for_plan(PlanRequest(trigger=name, seen=f"{name} was repaired"))


def note_drained(turn: Turn) -> None:
    """Note nodes on which nothing runs any more."""
    for name in list(turn.state.index.upkeep):
        node = turn.state.nodes[name]
        if node.upkeep.state is UpkeepState.DRAINING and not tasks_on(turn.state, name):
            node.upkeep.note_drained()
            turn.announce("good", "drained", name, "is drained: nothing runs there any more")


def bring_back(turn: Turn, node: NodeState) -> None:
    """The node goes back into service with all its GPUs; its old faults do not count any more."""
    name = node.spec.node
    gpus = set(node.service.isolated_gpus)
    node.upkeep.end()
    node.service.release_all()
    node.findings.forget_messages()
    back: set[NodeId | Worker] = {name, *(Worker(name, slot) for slot in gpus)}
    for task in turn.state.tasks.values():
        task.faults.clear_of_blame(back)


def uncordon_only(turn: Turn, node: NodeState, actor: str) -> str:
    """End a cordon or a drain; return what follows. The node may be isolated nevertheless."""
    name, before = node.spec.node, node.upkeep.state
    node.upkeep.end()
    still = f"; it stays isolated: {node.service.isolated}" if node.service.isolated else ""
    turn.announce("good", "uncordon", name, f"{actor} gives it work again{still}")
    reconsider(turn, trigger=name, seen=f"{name} is {before} no more")
    return f"{name} gets work again{still}"
