"""Requests about nodes: out of service and back, and whether one out of contact is lost."""

from typing import assert_never

from controller.core.events import LossDecided, NodeOrdered, UncordonRequested
from controller.core.membership.node_membership import tasks_on
from controller.core.membership.node_upkeep import (
    begin_drain,
    bring_back,
    failed_checks,
    isolate_by_order,
    uncordon_only,
    why_no_drain,
)
from controller.core.nodes.contact import declare_lost, wait_for
from controller.core.nodes.node_evidence import gather
from controller.core.planning.plans import reconsider
from controller.core.rules.placement import Worker
from controller.core.state.node import NodeState
from controller.core.state.phases import NodeCondition
from controller.core.state.turn import Turn
from controller.core.state.upkeep import UpkeepState


def order_node(turn: Turn, event: NodeOrdered) -> None:
    """Take a node out of service, or begin to bring it back."""
    node = _node_of(turn, event)
    if node is None:
        return
    match event.order:
        case "cordon":
            _cordon(turn, event, node)
        case "drain":
            _drain(turn, event, node)
        case "isolate":
            _isolate(turn, event, node)
        case "repair":
            _repair(turn, event, node)
        case "return":
            _return(turn, event, node)
        case _:
            assert_never(event.order)


def _cordon(turn: Turn, event: NodeOrdered, node: NodeState) -> None:
    if node.upkeep.state is not UpkeepState.NONE:
        text = f"{event.node} is {_upkeep(node)} already"
        turn.refuse(event.request_id, "nothing", text)
        return
    node.upkeep.order(UpkeepState.CORDONED, event.actor, event.reason, turn.at)
    because = f": {event.reason}" if event.reason else ""
    turn.announce("info", "cordoned", event.node, f"{event.actor} cordons it{because}")
    stays = tasks_on(turn.state, event.node)
    then = f"; {', '.join(stays)} stays there" if stays else ""
    turn.answer(event.request_id, f"{event.node} is cordoned: nothing new is placed there{then}")
    if turn.state.plans.pending() is not None:
        turn.want_plan(event.node, f"{event.node} was cordoned")


def _drain(turn: Turn, event: NodeOrdered, node: NodeState) -> None:
    if node.upkeep.state not in {UpkeepState.NONE, UpkeepState.CORDONED}:
        turn.refuse(event.request_id, "nothing", f"{event.node} is {_upkeep(node)} already")
    elif not event.is_forced and (reason := why_no_drain(turn, node)):
        turn.refuse(event.request_id, "no_room", reason)
    else:
        text = begin_drain(turn, node, event.actor, event.reason)
        turn.answer(event.request_id, text)


def _isolate(turn: Turn, event: NodeOrdered, node: NodeState) -> None:
    if node.service.isolated:
        text = f"{event.node} is isolated already: {node.service.isolated}"
        turn.refuse(event.request_id, "nothing", text)
        return
    tasks = tasks_on(turn.state, event.node)
    then = f": a plan divides the rest for {', '.join(tasks)}" if tasks else ""
    turn.answer(event.request_id, f"{event.node} is isolated{then}")
    isolate_by_order(turn, node, event.actor, event.reason)


def _repair(turn: Turn, event: NodeOrdered, node: NodeState) -> None:
    if node.upkeep.state in {UpkeepState.REPAIR, UpkeepState.RETURNING}:
        turn.refuse(event.request_id, "nothing", f"{event.node} is {_upkeep(node)} already")
        return
    if tasks := tasks_on(turn.state, event.node):
        text = f"{event.node} is in use by {', '.join(tasks)}: drain it first, unicron drain {event.node}"
        turn.refuse(event.request_id, "unfit", text)
        return
    node.upkeep.order(UpkeepState.REPAIR, event.actor, event.reason, turn.at)
    node.inquiry.end_question()
    because = f": {event.reason}" if event.reason else ""
    turn.announce("info", "repair", event.node, f"{event.actor} repairs it{because}")
    text = (
        f"{event.node} is under repair: it may come and go; then unicron repair {event.node} --done"
    )
    turn.answer(event.request_id, text)


def _return(turn: Turn, event: NodeOrdered, node: NodeState) -> None:
    if node.upkeep.state not in {UpkeepState.REPAIR, UpkeepState.RETURNING}:
        turn.refuse(event.request_id, "nothing", f"{event.node} is not under repair")
        return
    failed = [] if event.is_forced else failed_checks(node)
    if failed:
        node.upkeep.order(UpkeepState.RETURNING, event.actor, event.reason, turn.at)
        text = f"{event.node} returns once its checks pass: now {'; '.join(failed)}"
        turn.answer(event.request_id, text)
        return
    bring_back(turn, node)
    text = f"{event.node} is back in service"
    turn.announce("good", "uncordon", event.node, f"{event.actor} has repaired it: {text}")
    turn.answer(event.request_id, text)
    reconsider(turn, trigger=event.node, seen=f"{event.node} was repaired")


def _upkeep(node: NodeState) -> str:
    return f"{node.upkeep.state} by {node.upkeep.actor}"


def uncordon(turn: Turn, event: UncordonRequested) -> None:
    """Take an isolated node or GPU back into service, if it is in contact without findings."""
    node = _node_of(turn, event)
    if node is None:
        return
    gpus = (
        set(node.service.isolated_gpus)
        if event.gpu is None
        else {event.gpu} & set(node.service.isolated_gpus)
    )
    is_node = bool(node.service.isolated) and event.gpu is None
    is_upkept = event.gpu is None and node.upkeep.state is not UpkeepState.NONE
    needs_checks = node.upkeep.state in {UpkeepState.REPAIR, UpkeepState.RETURNING}
    if is_upkept and not (is_node or gpus or needs_checks):
        turn.answer(event.request_id, uncordon_only(turn, node, event.actor))
        return
    what = str(event.node) if event.gpu is None else f"GPU {event.gpu} of {event.node}"
    if not is_node and not gpus and not is_upkept:
        turn.refuse(event.request_id, "nothing", f"{what} is not isolated")
        return
    if (
        failed := []
        if event.is_forced
        else failed_checks(node, None if is_node or is_upkept else gpus)
    ):
        state = "isolated" if is_node or gpus else "out of service"
        text = f"{what} stays {state}: {'; '.join(failed)}; fix it, or use --force"
        turn.refuse(event.request_id, "unfit", text)
        return
    if is_node or is_upkept:
        bring_back(turn, node)
    else:
        workers = {Worker(node.spec.node, slot) for slot in gpus}
        for worker in workers:
            node.service.release_gpu(worker)
        for task in turn.state.tasks.values():
            task.faults.clear_of_blame(workers)
    turn.announce(
        "good", "uncordon", event.node, f"{event.actor} takes {what} back into service",
        is_forced=event.is_forced,
    )  # fmt: skip
    still = f"; {event.node} itself stays isolated" if node.service.isolated else ""
    turn.answer(event.request_id, f"{what} is back in service{still}")
    reconsider(turn, trigger=event.node, seen=f"{what} is back in service")


def decide_loss(turn: Turn, event: LossDecided) -> None:
    """Declare a node lost that is out of contact, or wait for it.

    It is refused if a task of the node advances: then the node is not lost.
    """
    node = _node_of(turn, event)
    if node is None:
        return
    if node.contact.condition is not NodeCondition.UNREACHABLE:
        text = f"{event.node} is {node.contact.condition}, not out of contact"
        turn.refuse(event.request_id, "nothing", text)
    elif not event.is_lost:
        wait_for(turn, node, event.actor)
        again_s = turn.policy.uncorroborated_limit_s
        text = f"Unicron waits for {event.node}; it judges {event.node} again after {again_s:g} s"
        turn.answer(event.request_id, text)
    elif advanced := gather(turn, node).advanced:
        turn.refuse(event.request_id, "unfit", f"{event.node} is not lost: {advanced}")
    else:
        text = f"{event.node} counts as lost; a plan divides the remaining nodes"
        turn.answer(event.request_id, text)
        declare_lost(turn, node, f"{event.actor} declared it lost")


def _node_of(turn: Turn, event: UncordonRequested | LossDecided | NodeOrdered) -> NodeState | None:
    node = turn.state.nodes.get(event.node)
    if node is None or node.contact.condition is NodeCondition.REMOVED:
        there = [
            name
            for name, each in turn.state.nodes.items()
            if each.contact.condition is not NodeCondition.REMOVED
        ]
        text = f"there is no node {event.node}: {', '.join(there)} exist"
        turn.refuse(event.request_id, "unknown", text)
        return None
    return node
