"""What all links of a fleet share: the agent's code, who the controller is, and who listens."""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Protocol

from controller.core.events import EventBody
from controller.fleet.bundle import Bundle
from controller.fleet.node_connection import SshLogins
from controller.loop_clock import LoopClock
from controller.workdirs.workdir_store import WorkdirStore
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.rendezvous import StoreCall


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of the controller: agents obey the newest term of a run."""

    run_id: str
    term: int
    controller: str = ""
    """Which process it is, for people."""


class Listener(Protocol):
    """Gets the events, rendezvous calls and notes of a link."""

    def post(self, body: EventBody) -> None:
        """Have the core handle an event."""
        ...

    def take_store_call(self, node: NodeId, call: StoreCall) -> None:
        """Carry out a rendezvous call of a rank on ``node``."""
        ...

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Do work beside the session."""
        ...

    def note(self, node: NodeId, text: str) -> None:
        """Publish the reason why a node can't be reached."""
        ...


@dataclass(frozen=True, slots=True)
class LinkContext:
    """What all links of a fleet share.

    Attributes:
        bundle: The agent's code, for nodes that have none.
        identity: The controller, as agents know it.
        listener: Gets events, rendezvous calls and notes.
        clock: The clock of the run.
        logins: Opens SSH connections.
        workdirs: Versions of tasks' folders, for nodes that lack them.
    """

    bundle: Bundle
    identity: Identity
    listener: Listener
    clock: LoopClock
    logins: SshLogins
    workdirs: WorkdirStore
