"""Commands that a node's agent has not answered yet, and the events that end them.

Every command ends in one event, except a start, an inspection or a drill that succeeds:
observations follow it. If contact is lost before the answer, the outcome of the command is unknown.
When the node attaches again, the core asks for the ranks that are missing.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

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

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RankSubject:
    """The ranks that a command concerns."""

    kind: RankCommandKind
    task: TaskId
    generation: Generation


@dataclass(frozen=True, slots=True)
class ProbeSubject:
    """The node that a peer probes."""

    node: NodeId


Subject = RankSubject | ProbeSubject


class OpenCommands:
    """The open commands of one node.

    Args:
        node: The node.
        post: Called with each event.
    """

    def __init__(self, node: NodeId, post: Callable[[EventBody], None]) -> None:
        self._node = node
        self._post = post
        self._subjects: dict[str, Subject] = {}

    def add(self, command_id: str, subject: Subject) -> None:
        """Add a command that was sent."""
        self._log("command sent", subject, command_id)
        self._subjects[command_id] = subject

    def is_open(self, command_id: str) -> bool:
        """Return whether a command still waits for its answer."""
        return command_id in self._subjects

    def take(self, done: CommandDone) -> None:
        """Take an answer. If its command is not open, nothing changes."""
        subject = self._subjects.pop(done.command_id, None)
        if subject is None:
            return
        outcome = "command done" if done.error is None else "command failed"
        self._log(outcome, subject, done.command_id, done.error)
        if isinstance(subject, ProbeSubject):
            self._post(PeerProbed(subject.node, self._node, _probe_outcome(done)))
        elif done.error is not None:
            self._post_failure(subject, done.error, is_outcome_unknown=False)
        elif subject.kind == "stop":
            self._post(StopCarriedOut(self._node, subject.task, subject.generation))
        elif subject.kind == "halt":
            self._post(HaltCarriedOut(self._node, subject.task, subject.generation))

    def lose_contact(self) -> None:
        """End all open commands: their answers will not come."""
        unanswered = list(self._subjects.items())
        self._subjects.clear()
        for command_id, subject in unanswered:
            self.fail(command_id, subject, "contact was lost before the answer")

    def fail(self, command_id: str, subject: Subject, reason: str) -> None:
        """End a command whose outcome is unknown."""
        self._log("command has no known outcome", subject, command_id, reason)
        if isinstance(subject, ProbeSubject):
            self._post(PeerProbed(subject.node, self._node, None))
        else:
            self._post_failure(subject, reason, is_outcome_unknown=True)

    def _post_failure(self, subject: RankSubject, error: str, *, is_outcome_unknown: bool) -> None:
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

    def _log(self, text: str, subject: Subject, command_id: str, reason: str | None = None) -> None:
        if isinstance(subject, ProbeSubject):
            template = "%s: node=%s command=%s probed=%s kind=%s reason=%s"
            _LOG.info(template, text, self._node, command_id, subject.node, "probe", reason)
            return
        # Ranks are inspected every few seconds.
        is_frequent = subject.kind == "inspect" and reason is None
        _LOG.log(
            logging.DEBUG if is_frequent else logging.INFO,
            "%s: node=%s command=%s kind=%s task=%s generation=%d reason=%s",
            text, self._node, command_id, subject.kind, subject.task, subject.generation, reason,
        )  # fmt: skip


def _probe_outcome(done: CommandDone) -> ProbeOutcome | None:
    known: dict[str, ProbeOutcome] = {
        "answered": "answered",
        "refused": "refused",
        "silent": "silent",
    }
    return None if done.error is not None else known.get(done.detail)
