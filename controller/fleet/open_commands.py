"""The commands that a node's agent has and has not answered yet, and the events that end them.

Every command ends in one event, except a start, an inspection or a drill that succeeds: what came of it is
told by the observations that follow. Where contact is lost before the answer nobody knows what became of
it: its outcome is unknown, and the core asks again for what is missing when the node attaches.
"""

from collections.abc import Callable
from dataclasses import dataclass

from controller.core.events import (
    CommandFailed,
    EventBody,
    HaltCarriedOut,
    PeerProbed,
    RankCommandKind,
    StopCarriedOut,
)
from controller.core.rules.node_loss import ProbeOutcome
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.messages import CommandDone


@dataclass(frozen=True, slots=True)
class RankSubject:
    """What a command about ranks concerns."""

    kind: RankCommandKind
    task: TaskId
    generation: Generation


@dataclass(frozen=True, slots=True)
class ProbeSubject:
    """The node that a probe looks at."""

    node: NodeId


Subject = RankSubject | ProbeSubject


class OpenCommands:
    """Commands to one node.

    Args:
        node: The node.
        post: Takes the events.
    """

    def __init__(self, node: NodeId, post: Callable[[EventBody], None]) -> None:
        self._node = node
        self._post = post
        self._subjects: dict[str, Subject] = {}

    def add(self, command_id: str, subject: Subject) -> None:
        """Note a command that was sent."""
        self._subjects[command_id] = subject

    def take(self, done: CommandDone) -> None:
        """Take an answer; one to a command that is not open changes nothing."""
        subject = self._subjects.pop(done.command_id, None)
        if subject is None:
            return
        if isinstance(subject, ProbeSubject):
            self._post(PeerProbed(subject.node, self._node, _probe_outcome(done)))
        elif done.error is not None:
            self._fail(subject, done.error, is_outcome_unknown=False)
        elif subject.kind == "stop":
            self._post(StopCarriedOut(self._node, subject.task, subject.generation))
        elif subject.kind == "halt":
            self._post(HaltCarriedOut(self._node, subject.task, subject.generation))

    def lose_contact(self) -> None:
        """End all that are open: their answers will not come."""
        unanswered = list(self._subjects.values())
        self._subjects.clear()
        for subject in unanswered:
            self.fail(subject, "contact was lost before the answer")

    def fail(self, subject: Subject, error: str) -> None:
        """End a command of which nobody knows what became."""
        if isinstance(subject, ProbeSubject):
            self._post(PeerProbed(subject.node, self._node, None))
        else:
            self._fail(subject, error, is_outcome_unknown=True)

    def _fail(self, subject: RankSubject, error: str, *, is_outcome_unknown: bool) -> None:
        self._post(
            CommandFailed(
                self._node,
                subject.kind,
                subject.task,
                subject.generation,
                error,
                is_outcome_unknown=is_outcome_unknown,
            )
        )


def _probe_outcome(done: CommandDone) -> ProbeOutcome | None:
    known: dict[str, ProbeOutcome] = {
        "answered": "answered",
        "refused": "refused",
        "silent": "silent",
    }
    return None if done.error is not None else known.get(done.detail)
