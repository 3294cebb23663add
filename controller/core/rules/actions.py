"""The cure of a named fault: the one place that decides it. Pure: a case in, a handling out.

The paper has three actions. SEV3 is tried again in place (*reattempt*). SEV2 gets a new process
(*restart*). SEV1 takes the node out and divides the remaining workers (*reconfigure*). If the same
fault follows before an iteration was committed, the cure did not help, and the next stronger action
is chosen.

There are two more here. *Isolate* is the reconfiguration for hardware that something has named
as broken: the whole node goes out, because resetting or replacing a device affects it. *Hold* is no
cure: the operator has to act. It is chosen for what no action would cure (refused settings, a loss
that is not finite), for a program whose start fails on every node alike, for ranks that blame the
hardware of one node after another, and after ``max_recoveries`` without a new iteration.

A fault that keeps coming back on one node is handled as SEV1 too. For this every node has a record
of its faults (``Occurrence``). A fault that keeps coming back on one GPU takes that GPU out only.

A start that fails before an iteration is the program's fault, or that of its node. A second node
shows which. So such ranks are started on another node if one has free workers, before anything is
taken out.

Faults of a drill are cured like any other, but do not count against the node. What follows from a
handling is carried out by ``controller.core.incidents.cures``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from controller.core.rules.diagnosis import Diagnosis
from controller.core.rules.failed_start import FailedStart, alike, is_of_program, likeness
from controller.core.rules.placement import Worker
from controller.core.rules.policy import Policy
from nodeagent.protocol.ids import NodeId
from profiles.faults.status import Action, Severity, Status

Decision = Literal["none", "hold", "reattempt", "restart", "isolate", "reconfigure"]

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
class StartCase:
    """A fault of a generation that never trained, and whose program says what is wrong.

    Attributes:
        starts: The failed starts of the task, this one included.
        has_trained: Whether the program has ever trained here.
        has_room: Whether other nodes have room for the ranks on the node of the fault.
        elsewhere: Nodes of the ranks, if they start without that node; empty if they can't.
    """

    starts: Sequence[FailedStart]
    has_trained: bool
    has_room: bool = False
    elsewhere: Sequence[NodeId] = ()


@dataclass(frozen=True, slots=True)
class TaskCase:
    """What a fault's handling depends on in its task.

    Attributes:
        is_live: It has ranks that train, park or stop.
        is_present: The fault hit its present generation.
        last: The last cure of the task, if no iteration was committed since.
        num_recoveries: Recoveries since then, this one included.
        needs_process: A process of the generation can't continue.
        start: Of a generation that never trained.
        accused: Nodes that were isolated because only the task's ranks named broken hardware there.
        has_probe: A probe has found that hardware of the fault's node is broken.
        is_doubted: The task is held already, because its ranks name broken hardware wherever it
            runs.
    """

    is_live: bool = True
    is_present: bool = True
    last: Cure | None = None
    num_recoveries: int = 1
    needs_process: bool = False
    start: StartCase | None = None
    accused: Sequence[NodeId] = ()
    has_probe: bool = False
    is_doubted: bool = False

    @property
    def is_over(self) -> bool:
        """Whether a plan has ended the generation: nothing is to be done for it any more."""
        return not (self.is_live and self.is_present)


@dataclass(frozen=True, slots=True)
class FaultCase:
    """A fault to be handled.

    Attributes:
        diagnosis: Its name.
        at: Now, seconds since the controller's start.
        worker: Worker of the faulty rank; None if no single rank is at fault.
        node: Faulty node; None if no node is to blame.
        task: The task that it hit; None for a fault of a node alone.
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
    task: TaskCase | None = None
    record: Sequence[Occurrence] = ()
    is_drill: bool = False
    is_last_node: bool = False
    has_other_gpus: bool = False

    @property
    def failed_starts(self) -> Sequence[FailedStart]:
        """The failed starts of the task, if this is one more."""
        return self.task.start.starts if self.task is not None and self.task.start else ()


@dataclass(frozen=True, slots=True)
class Handling:
    """What is done about a fault.

    Attributes:
        action: What; ``none`` if everything is done already.
        why: Why it is another action than the severity asks for; empty if it is not. It becomes a
            part of the incident's reason.
        note: What operators read at a task that is held.
        is_gpu: A reconfiguration takes out only the GPU of the faulty rank, not its node.
        replaces_rank: The faulty rank gets a new process; where no rank is to blame, the one that
            reported the fault. Other restarts replace only processes that can't continue.
        moves: The ranks on the faulty node start on other nodes next.
        blames_program: The program is at fault, wherever it was seen: no node is named.
        is_counted: The fault counts against its node.
    """

    action: Decision
    why: str = ""
    note: str = ""
    is_gpu: bool = False
    replaces_rank: bool = False
    moves: bool = False
    blames_program: bool = False
    is_counted: bool = True

    @property
    def paper_action(self) -> Action:
        """Its action as incidents show it, in the paper's terms."""
        if self.action == "hold":
            return "none"
        return "reconfigure" if self.action == "isolate" else self.action


def decide(case: FaultCase, policy: Policy) -> Handling:
    """Return what is done about a fault, and why."""
    if case.diagnosis.status.facts.names_device and case.diagnosis.root.node is not None:
        return _against_hardware(case)
    if case.task is None:
        return _of_severity(case, policy)
    if case.task.is_over:
        return Handling("restart", is_counted=False)
    return _why_held(case, case.task, policy) or _of_task(case, case.task, policy)


def _of_task(case: FaultCase, task: TaskCase, policy: Policy) -> Handling:
    """Return which action is tried, given which processes can continue."""
    handling = _of_severity(case, policy)
    if task.start is not None:
        handling = _of_start(case, task.start, handling)
    if handling.action == "restart":
        return replace(handling, replaces_rank=True)
    if handling.action == "none" or (handling.action == "reattempt" and task.needs_process):
        return replace(handling, action="restart")
    return handling


def clears_suspects(
    diagnosis: Diagnosis, worker: Worker | None, suspects: Sequence[NodeId | Worker]
) -> bool:
    """Return whether a fault is elsewhere than where earlier ones were suspected to come from.

    Then the nodes and GPUs that were taken out on suspicion are not to blame.
    """
    at_fault = {diagnosis.root.node, worker}
    is_somewhere = diagnosis.is_local and diagnosis.root.node is not None
    if diagnosis.status.facts.names_device:
        return False  # what is known of the hardware there says nothing about other places
    return bool(suspects) and is_somewhere and at_fault.isdisjoint(suspects)


def _against_hardware(case: FaultCase) -> Handling:
    """Hardware is broken, a probe or a rank says: that isolates the node.

    A program, or what it was built with, can be wrong about devices wherever it runs. So where a
    task's ranks blame a second node before an iteration is committed, and no probe has found
    anything on either, both are left in service and the operator is asked.
    """
    task, node = case.task, case.diagnosis.root.node
    if task is None:
        return Handling("isolate")
    if task.is_doubted:
        return Handling("none")
    others = [] if task.has_probe else [name for name in task.accused if name != node]
    if not others or not task.is_live:
        return Handling("isolate")
    note = (
        f"its ranks name broken hardware on {others[-1]} and then on {node}, and no probe has"
        " found any: more likely its program, driver or libraries are at fault than both nodes;"
        " the task is held; mend it, then propose a plan"
    )
    return Handling("hold", note=note, is_counted=False)


def _why_held(case: FaultCase, task: TaskCase, policy: Policy) -> Handling | None:
    """Return how a task is handed to the operator, if no action would help; else None."""
    diagnosis, root = case.diagnosis, case.diagnosis.root
    if task.start is not None and (why := _why_program_fails(case, task.start)):
        note = f"{root.summary}; {why}"
        return Handling("hold", why, note, blames_program=True, is_counted=False)
    is_exhausted = task.num_recoveries > policy.max_recoveries
    if diagnosis.is_refusal:
        note = "the task's settings are refused; the task is held: fix them, then propose a plan"
    elif root.kind == "numbers":
        note = (
            "the loss is not finite, also when the iteration is run once more: nothing was"
            " updated, and the task is held; look at data and learning rate, then propose a plan"
        )
    elif is_exhausted and diagnosis.is_of_checkpoints:
        note = f"{root.summary}: the task is held; fix it, then propose a plan"
    elif is_exhausted:
        note = (
            f"{policy.max_recoveries} recoveries brought no new iteration: the task is held;"
            " propose a plan to try again"
        )
    else:
        return None
    return Handling("hold", note=note, is_counted=False)


def _why_program_fails(case: FaultCase, start: StartCase) -> str:
    """Return why a failed start is the program's fault; empty if it may be a node's.

    The text is for operators: what failed, where, and what to mend.
    """
    root, has_trained = case.diagnosis.root, start.has_trained
    same = alike(start.starts, likeness(root.own_words))
    if not is_of_program(same, has_trained=has_trained, can_move=start.has_room):
        return ""
    nodes = sorted({each.node for each in same})
    where = f"alike on {', '.join(nodes)}"
    if len(nodes) == 1:
        num_times = len({each.generation for each in same})
        where = f"{num_times} times alike on {nodes[0]}, and no other node has free workers"
    never = "" if has_trained else " and has never committed an iteration"
    log = f" (log: {root.log} on {root.node})" if root.log else ""
    return (
        f"its start failed {where}{never}, so no node is blamed; the task is held: mend the program,"
        f" its command or its data{log}, then propose a plan"
    )


def _of_start(case: FaultCase, start: StartCase, handling: Handling) -> Handling:
    """Return how a failed start is handled: a second node is tried before one is taken out.

    A program that has never trained is tried elsewhere at once, and no fault is counted.
    """
    root, is_counted = case.diagnosis.root, start.has_trained
    same = alike(start.starts, likeness(root.own_words))
    nodes = sorted({each.node for each in same})
    handling = replace(handling, is_counted=is_counted)
    if handling.action == "reconfigure" and len(nodes) > 1:
        why = f"it fails alike on {', '.join(nodes)}: none is isolated"
        return Handling("restart", why, is_counted=is_counted)
    is_tried = handling.action == "reconfigure" or not is_counted
    if not is_tried or not start.elsewhere:
        return handling
    stays = f"{root.node} stays a suspect, and " if is_counted else ""
    where = ", ".join(start.elsewhere)
    why = f"{stays}a second node is tried first: it starts on {where}"
    return Handling("restart", why, moves=True, is_counted=is_counted)


def _of_severity(case: FaultCase, policy: Policy) -> Handling:
    """Return the action that severity, the last cure and the node's record ask for."""
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
    action, last = _ACTION[case.diagnosis.severity], case.task.last if case.task else None
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
