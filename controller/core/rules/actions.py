"""What is done about a named fault: the cheapest action that may cure it, and when that is not enough.

The paper's three actions: SEV3 is tried again in place (*reattempt*), SEV2 gets its process anew
(*restart*), SEV1 takes the node out and divides what is left (*reconfigure*). A cure that was followed
by the same fault, before an iteration was committed, did not help: the next stronger one follows.
What keeps coming back at one place over a longer time is handled as SEV1 too: every node has a record
of its faults (``Occurrence``). What keeps coming back on one GPU takes that GPU alone out of service; a
broken device takes its node, since resetting or replacing it does.

Faults of a drill are cured like any other, but do not speak against the node. Pure functions: what
they decide is carried out in ``controller.core.incidents.cures``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from controller.core.rules.diagnosis import Diagnosis
from controller.core.rules.placement import Worker
from controller.core.rules.policy import Policy
from nodeagent.protocol.ids import NodeId
from profiles.faults.status import Severity, Status

Action = Literal["none", "reattempt", "restart", "reconfigure"]

_ACTION: Final[dict[Severity, Action]] = {
    Severity.NONE: "none",
    Severity.SEV3: "reattempt",
    Severity.SEV2: "restart",
    Severity.SEV1: "reconfigure",
}
_STRONGER: Final[dict[Action, Action]] = {
    "reattempt": "restart",
    "restart": "reconfigure",
    "reconfigure": "restart",  # on other workers by now: the node was not to blame alone
    "none": "none",
}
_STRENGTH: Final[dict[Action, int]] = {"none": 0, "reattempt": 1, "restart": 2, "reconfigure": 3}


def first_action(severity: Severity) -> Action:
    """Return how faults of ``severity`` are handled at first."""
    return _ACTION[severity]


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One fault that a node had.

    Attributes:
        at: When it was named, seconds since the controller's start.
        status: What it was.
        worker: Worker of the rank at fault; None for a fault of the node as a whole.
    """

    at: float
    status: Status
    worker: Worker | None


@dataclass(frozen=True, slots=True)
class Cure:
    """What was last done for a task, since its newest iteration.

    Attributes:
        action: What was done.
        worker: Worker of the rank at fault; None if no rank was.
    """

    action: Action
    worker: Worker | None


@dataclass(frozen=True, slots=True)
class FaultCase:
    """A fault to be handled.

    Attributes:
        diagnosis: Its name.
        at: Now, seconds since the controller's start.
        worker: Worker of the rank at fault, None for a fault of a node, or of nobody in particular.
        node: Node at fault; None where none is to blame.
        last: What was last done for the task, if it brought no new iteration.
        record: Earlier faults of the node, without those of drills.
        is_drill: Whether somebody broke it on purpose.
        is_last_node: Whether no other node is in service.
        has_other_gpus: Whether other workers of the node are in service; on the last node, enough of
            them for the task.
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
    """What is done, and why more than its severity asks for; empty where it is just that.

    ``is_gpu`` where a reconfiguration isolates the GPU of the rank at fault alone, not its node.
    """

    action: Action
    why: str = ""
    is_gpu: bool = False


def choose(case: FaultCase, policy: Policy) -> Handling:
    """Return what is done about a fault."""
    if case.diagnosis.is_of_state:
        return Handling("reattempt", "with the state from the next source")
    if case.diagnosis.is_of_checkpoints:
        return Handling("reattempt", "no process and no node is to blame for its checkpoints")
    is_hardware = case.diagnosis.severity is Severity.SEV1
    handling = Handling("reconfigure") if is_hardware else _escalated(case)
    if not is_hardware and case.node is not None and (policy.counts_drills or not case.is_drill):
        repeats = _repeats(case, policy)
        if repeats and (handling.action != "reconfigure" or repeats.is_gpu):
            handling = repeats
    if handling.action == "reconfigure" and case.node is None:
        return Handling("restart", "no node is to blame, so none is isolated")
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
    return Handling(_STRONGER[last.action], f"the {last.action} before brought no iteration")


def _repeats(case: FaultCase, policy: Policy) -> Handling | None:
    """Return what follows from what the node has had too often, this time included; None if nothing."""
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
    """Count what the node has had of the network's: what comes close together is one fault."""
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
