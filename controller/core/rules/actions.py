"""The cure of a named fault: the cheapest action that may cure it, and the next stronger one.

The paper has three actions. SEV3 is tried again in place (*reattempt*). SEV2 gets a new process
(*restart*). SEV1 takes the node out and divides the remaining workers (*reconfigure*). If the same
fault follows before an iteration was committed, the cure did not help, and the next stronger action
is chosen.

A fault that keeps coming back on one node is handled as SEV1 too. For this every node has a record
of its faults (``Occurrence``). A fault that keeps coming back on one GPU isolates that GPU only. A
broken device isolates its node, because resetting or replacing it affects the whole node.

Faults of a drill are cured like any other, but do not count against the node. These are pure
functions; ``controller.core.incidents.cures`` carries out the decisions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controller.core.rules.diagnosis import Diagnosis
from controller.core.rules.placement import Worker
from controller.core.rules.policy import Policy
from nodeagent.protocol.ids import NodeId
from profiles.faults.status import Action, Severity, Status

_ACTION: Final[dict[Severity, Action]] = {
    Severity.NONE: "none",
    Severity.SEV3: "reattempt",
    Severity.SEV2: "restart",
    Severity.SEV1: "reconfigure",
}
_STRONGER: Final[dict[Action, Action]] = {
    "reattempt": "restart",
    "restart": "reconfigure",
    "reconfigure": "restart",  # it runs on other workers already: the node was not to blame alone
    "none": "none",
}
_STRENGTH: Final[dict[Action, int]] = {"none": 0, "reattempt": 1, "restart": 2, "reconfigure": 3}


def first_action(severity: Severity) -> Action:
    """Return the first action against faults of ``severity``."""
    return _ACTION[severity]


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One fault in the record of a node.

    Attributes:
        at: When it was named, seconds since the controller's start.
        status: Its status.
        worker: Worker of the faulty rank; None for a fault of the node as a whole.
    """

    at: float
    status: Status
    worker: Worker | None


@dataclass(frozen=True, slots=True)
class Cure:
    """The last cure of a task since its newest iteration.

    Attributes:
        action: The action.
        worker: Worker of the faulty rank; None if no rank was at fault.
    """

    action: Action
    worker: Worker | None


@dataclass(frozen=True, slots=True)
class FaultCase:
    """A fault to be handled.

    Attributes:
        diagnosis: Its name.
        at: Now, seconds since the controller's start.
        worker: Worker of the faulty rank; None if no single rank is at fault.
        node: Faulty node; None if no node is to blame.
        last: The last cure of the task, if no iteration was committed since.
        record: Earlier faults of the node, without those of drills.
        is_drill: Whether a drill caused the fault.
        is_last_node: Whether no other node is in service.
        has_other_gpus: Whether other workers of the node are in service. On the last node: enough
            of them for the task.
    """

    diagnosis: Diagnosis
    at: float
    worker: Worker | None
    node: NodeId | None
    last: Cure | None = None
    record: Sequence[Occurrence] = ()
    is_drill: bool = False
    is_last_node: bool = False
    has_other_gpus: bool = False


@dataclass(frozen=True, slots=True)
class Handling:
    """The chosen action, and why it is stronger than the severity asks for (empty if it is not).

    ``is_gpu``: a reconfiguration isolates only the GPU of the faulty rank, not its node.
    """

    action: Action
    why: str = ""
    is_gpu: bool = False


def choose(case: FaultCase, policy: Policy) -> Handling:
    """Return the action against a fault."""
    if case.diagnosis.is_of_state:
        return Handling("reattempt", "with the state from the next source")
    if case.diagnosis.is_of_checkpoints:
        return Handling(
            "reattempt", "its checkpoints are unusable: no process and no node is at fault"
        )
    is_hardware = case.diagnosis.severity is Severity.SEV1
    handling = Handling("reconfigure") if is_hardware else _escalated(case)
    if not is_hardware and case.node is not None and (policy.counts_drills or not case.is_drill):
        repeats = _repeats(case, policy)
        if repeats and (handling.action != "reconfigure" or repeats.is_gpu):
            handling = repeats
    if handling.action == "reconfigure" and case.node is None:
        return Handling("restart", "no node is at fault, so none is isolated")
    if handling.action != "reconfigure" or is_hardware:
        return handling
    if case.is_last_node and not handling.is_gpu:
        return Handling("restart", f"{handling.why}, but no other node is in service")
    return handling


def _escalated(case: FaultCase) -> Handling:
    action, last = _ACTION[case.diagnosis.severity], case.last
    is_same_place = last is not None and (
        last.worker is None or case.worker is None or last.worker == case.worker
    )
    if last is None or not is_same_place or _STRENGTH[action] > _STRENGTH[last.action]:
        return Handling(action)
    return Handling(_STRONGER[last.action], f"the {last.action} before led to no new iteration")


def _repeats(case: FaultCase, policy: Policy) -> Handling | None:
    """Return the action if the node had such faults too often, this one included; else None."""
    status = case.diagnosis.status
    if status.facts.is_network:
        number = _num_network_faults(case, policy)
        if number >= policy.network_alerts:
            why = f"{number} network faults on {case.node} within {policy.network_window_s:.0f} s"
            return Handling("reconfigure", why)
        return None
    if case.diagnosis.severity is not Severity.SEV2:
        return None
    if status.facts.is_of_one_gpu and case.worker is not None:
        same = [each for each in case.record if each.worker == case.worker]
        number = 1 + sum(
            each.status.facts.is_of_one_gpu and case.at - each.at <= policy.restart_window_s
            for each in same
        )
        if number >= policy.gpu_faults:
            why = (
                f"{number} faults of GPU {case.worker.slot} on {case.node} within"
                f" {policy.restart_window_s:.0f} s"
            )
            return Handling("reconfigure", why, is_gpu=case.has_other_gpus)
    number = 1 + _num_other_faults(case, policy.restart_window_s)
    if number >= policy.restarts:
        why = f"{number} restarts on {case.node} within {policy.restart_window_s:.0f} s"
        return Handling("reconfigure", why)
    return None


def _num_network_faults(case: FaultCase, policy: Policy) -> int:
    """Count the network faults of the node. Faults within ``network_merge_s`` count as one."""
    number, begun_at = 0, -math.inf
    ats = (each.at for each in case.record if each.status.facts.is_network)
    for at in [*(at for at in ats if case.at - at <= policy.network_window_s), case.at]:
        if at - begun_at > policy.network_merge_s:
            number, begun_at = number + 1, at
    return number


def _num_other_faults(case: FaultCase, window_s: float) -> int:
    return sum(
        not each.status.facts.is_network and case.at - each.at <= window_s for each in case.record
    )
