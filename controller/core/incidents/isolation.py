"""A node, or one GPU of it, that takes no more part: what is taken from its tasks.

On a lost node the ranks are gone. On an isolated node they live and are ended. A single GPU is
isolated in the same way, and the other workers of its node continue. Tasks with ranks there have no
target until a plan gives them one. Until then they continue with the whole replicas that they have
elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from controller.core.lifecycle.parking import halt
from controller.core.lifecycle.start_stop import lose_rank, stop
from controller.core.rules.actions import FaultCase, Occurrence
from controller.core.rules.evidence import Evidence
from controller.core.rules.placement import Worker
from controller.core.state.incident import Incident
from controller.core.state.node import NodeState
from controller.core.state.phases import IncidentState, NodeCondition, TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.task_history import node_of
from controller.core.state.task_records import Target
from controller.core.state.turn import PlanRequest, Turn
from nodeagent.protocol.ids import NodeId


@dataclass(frozen=True, slots=True)
class Outage:
    """What is out: a whole node, or the worker in one slot of it."""

    node: NodeState
    slot: int | None = None

    @property
    def name(self) -> str:
        """In words, for operators."""
        name = self.node.spec.node
        return name if self.slot is None else f"GPU {self.slot} of {name}"

    @property
    def is_lost(self) -> bool:
        """Whether the ranks there are gone."""
        return self.node.contact.condition is NodeCondition.LOST

    def takes(self, worker: Worker) -> bool:
        """Whether ``worker`` is among what is out."""
        return worker.node == self.node.spec.node and self.slot in {None, worker.slot}

    def takes_from(self, place: Target | None) -> bool:
        """Whether a rank is to run on what is out."""
        return place is not None and any(map(self.takes, place.placement))


def withdraw(turn: Turn, outage: Outage) -> list[TaskState]:
    """Take what is out from every target; return the tasks that had a part there."""
    for task in turn.state.tasks.values():
        if outage.is_lost:
            task.leaving.forget_on(outage.takes)
        task.assignment.withdraw_interim(outage.takes_from)
        for spare in task.spares.ranks.values():
            if outage.takes(spare.worker):
                if outage.is_lost:
                    spare.note_gone()
                spare.note_broken()
        is_elsewhere = task.can_regroup and task.place and not outage.takes_from(task.place)
        if is_elsewhere and outage.takes_from(task.assignment.target):
            # It stays where it is, unless it has lost workers there too: then a plan has to say.
            if _may_stay(turn, task):
                task.assignment.stay_at(task.place)
            else:
                task.assignment.lose_target()
    return [task for task in turn.state.tasks.values() if _has_a_part_in(task, outage)]


def _may_stay(turn: Turn, task: TaskState) -> bool:
    """Whether nothing of the task's place is lost or isolated."""
    state = turn.state
    return not any(
        state.nodes[worker.node].contact.condition is NodeCondition.LOST
        or state.nodes[worker.node].service.isolated
        or worker.slot in state.nodes[worker.node].service.isolated_gpus
        for worker in task.placement
    )


def _has_a_part_in(task: TaskState, outage: Outage) -> bool:
    if task.lifecycle.phase is TaskPhase.FINISHED:
        return False
    has_ranks = any(outage.takes(rank.worker) for rank in task.living_ranks.values())
    is_there = has_ranks or (task.can_regroup and outage.takes_from(task.place))
    return is_there or outage.takes_from(task.assignment.target)


def strand(turn: Turn, task: TaskState, outage: Outage, cause: str) -> None:
    """A task that lost workers has no target until a plan gives it one; its survivors park.

    ``cause`` is the incident, or why there is none.
    """
    task.assignment.lose_target()
    for number, rank in task.living_ranks.items():
        if outage.takes(rank.worker):
            rank.note_broken()
            if outage.is_lost:
                lose_rank(turn, task, number)
    note = f"lost workers on {outage.name} ({cause})"
    if task.can_regroup:
        halt(turn, task, note=note)
        return
    is_decided = task.lifecycle.phase in {TaskPhase.STOPPING, TaskPhase.HELD}
    stop(
        turn,
        task,
        is_graceful=False,
        intent=task.stopping.intent if is_decided else "run",
        note=note,
    )


def _absorb(turn: Turn, incident: Incident, victims: list[TaskState]) -> None:
    """Merge undecided incidents of the node's tasks into its incident."""
    for other in turn.state.incidents.open():
        is_undecided = other.state is IncidentState.DETECTED and other is not incident
        if is_undecided and any(task.spec.task in other.covers for task in victims):
            turn.state.incidents.absorb(incident, other)


def isolate(turn: Turn, node: NodeState, incident: Incident, reason: str) -> None:
    """Take a node that is in contact out of service, and ask for a plan.

    Args:
        turn: The event.
        node: The node.
        incident: Of SEV1; it covers all tasks of the node from now on.
        reason: Why, in words for operators.
    """
    node.service.isolate(f"isolated by {incident.name}: {reason}")
    turn.announce(
        "error", "isolated", node.spec.node,
        f"isolated: {reason}; to return it to service: unicron uncordon {node.spec.node}",
        incident=incident.name,
    )  # fmt: skip
    _take_out(turn, Outage(node), incident, reason)


def isolate_gpu(turn: Turn, worker: Worker, incident: Incident, reason: str) -> None:
    """Take one GPU of a node in service out of service, and ask for a plan.

    The other GPUs of the node continue where a tensor-parallel group still fits.

    Args:
        turn: The event.
        worker: Whose slot is the GPU's index. Another worker of the node is in service.
        incident: Of SEV1; it covers all tasks that use the GPU from now on.
        reason: Why, in words for operators.
    """
    node = turn.state.nodes[worker.node]
    node.service.isolate_gpu(worker.slot, f"isolated by {incident.name}: {reason}")
    turn.announce(
        "error", "isolated", node.spec.node,
        f"GPU {worker.slot} isolated: {reason};"
        f" to return it to service: unicron uncordon {worker.node}:{worker.slot}",
        incident=incident.name, gpu=worker.slot,
    )  # fmt: skip
    _take_out(turn, Outage(node, worker.slot), incident, reason)


def explain_isolation(node: NodeState, evidence: Evidence) -> None:
    """The hardware of an isolated node is known to be broken: that is why, from now on."""
    node.service.isolate(f"isolated: {evidence.summary}")


def count_fault(turn: Turn, case: FaultCase) -> None:
    """Count a fault against its node, if one is to blame. Old faults stop to count."""
    if case.node is not None and (not case.is_drill or turn.policy.counts_drills):
        longest_s = max(turn.policy.network_window_s, turn.policy.restart_window_s)
        fault = Occurrence(turn.at, case.diagnosis.status, case.worker)
        turn.state.nodes[case.node].service.count(fault, turn.at - longest_s)


def _take_out(turn: Turn, outage: Outage, incident: Incident, reason: str) -> None:
    victims = withdraw(turn, outage)
    _absorb(turn, incident, victims)
    incident.cover(victims)
    for task in victims:
        strand(turn, task, outage, incident.name)
    turn.ask_for_plan(
        PlanRequest(
            trigger=incident.name,
            seen=f"{outage.name} is isolated: {reason}",
            incidents=frozenset({incident.name}),
        )
    )


def exonerate(turn: Turn, task: TaskState, suspects: Sequence[NodeId | Worker]) -> None:
    """The fault came back elsewhere: what was isolated on suspicion of it returns to service."""
    for subject in suspects:
        name, node = node_of(subject), turn.state.nodes[node_of(subject)]
        if isinstance(subject, Worker):
            node.service.release_gpu(subject)
            what, elsewhere = f"GPU {subject.slot} of {name}", "elsewhere"
        else:
            node.service.release()
            what, elsewhere = str(name), "on another node"
        turn.announce(
            "info", "uncordon", name,
            f"{what} is back in service: the fault of {task.spec.task} came back {elsewhere}",
        )  # fmt: skip
        turn.ask_for_plan(PlanRequest(trigger=name, seen=f"{what} is back in service"))
    task.faults.clear_of_blame(suspects)
