"""Recoveries of a task since its last new iteration, and what they blame.

The one writer of ``FaultHistory``.
"""

from collections.abc import Collection, Sequence

from controller.core.rules.actions import Cure
from controller.core.rules.evidence import Evidence
from controller.core.rules.failed_start import FailedStart
from controller.core.rules.placement import Worker
from controller.core.state.rank import RankState
from controller.core.state.task import TaskState
from nodeagent.protocol.ids import NodeId
from profiles.faults.status import Action


def count_recovery(task: TaskState) -> None:
    """A recovery of the task begins."""
    task.faults.num_recoveries += 1


def note_cure(task: TaskState, action: Action, rank: RankState | None) -> None:
    """Keep which cure is tried, and of which rank: it may turn out not to help."""
    task.faults.last_cure = Cure(action, rank.worker if rank else None)


def suspect(task: TaskState, subject: NodeId | Worker, last: Cure | None) -> None:
    """The node or GPU is isolated: on suspicion, if an earlier cure did not help."""
    if last is not None:
        task.faults.suspects.append(subject)


def accuse(task: TaskState, node: NodeId, evidence: Sequence[Evidence]) -> None:
    """The node is isolated for broken hardware: an accusation, unless a probe has found it."""
    if not is_found(evidence, node):
        task.faults.accused.append(node)


def is_found(evidence: Sequence[Evidence], node: NodeId) -> bool:
    """Return whether a probe has found that hardware of the node is broken."""
    return any(
        each.kind == "finding" and each.status.facts.names_device and each.node == node
        for each in evidence
    )


def forget_cures(task: TaskState) -> None:
    """The task makes progress: the cures of its faults have helped."""
    faults = task.faults
    faults.num_recoveries, faults.num_tries, faults.last_cure = 0, 0, None
    faults.suspects.clear()
    faults.accused.clear()
    faults.failed_starts.clear()


def note_failed_starts(task: TaskState, starts: Collection[FailedStart]) -> None:
    """Starts of the task have ended before an iteration, for what its program says."""
    known = task.faults.failed_starts
    known += [start for start in starts if start not in known]


def count_try(task: TaskState) -> None:
    """The controller tries a held task again by itself."""
    task.faults.num_tries += 1


def begin_anew(task: TaskState) -> None:
    """A held task is tried again: recoveries before do not count any more."""
    task.faults.num_recoveries, task.faults.last_cure = 0, None
    task.faults.failed_starts.clear()


def clear_of_blame(task: TaskState, subjects: Collection[NodeId | Worker]) -> None:
    """These nodes and GPUs are back in service, or have nothing to do with the task's fault."""
    faults = task.faults
    faults.suspects = [each for each in faults.suspects if each not in subjects]
    faults.accused = [each for each in faults.accused if each not in subjects]


def corroborate(task: TaskState, node: NodeId) -> None:
    """More is known about the node than a suspicion of the task."""
    faults = task.faults
    faults.suspects = [each for each in faults.suspects if node_of(each) != node]


def confirm_accusation(task: TaskState, node: NodeId) -> None:
    """A probe, or another task, also says that the node's hardware is broken."""
    task.faults.accused = [each for each in task.faults.accused if each != node]


def node_of(subject: NodeId | Worker) -> NodeId:
    """Return the node that is suspected, or whose GPU is."""
    return subject.node if isinstance(subject, Worker) else subject
