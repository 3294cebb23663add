"""The ports of runtime and fleet, as protocols: the edges implement them, and so do tests."""

from collections.abc import Iterable
from typing import Protocol

from controller.core.instructions import (
    Announce,
    AnswerRequest,
    CarryOutDrill,
    ProbeNode,
    RecordIterations,
)
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.orders import RankOrder
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.rendezvous import StoreCall


class Fleet(Protocol):
    """The nodes. Every command ends in an event; none raises."""

    def connect(self, node: NodeId, access: str) -> None:
        """Keep ``node`` in contact from now on; ``access`` says how to log in."""
        ...

    def disconnect(self, node: NodeId) -> None:
        """End the contact with ``node``."""
        ...

    def start_ranks(self, node: NodeId, launches: list[RankLaunch]) -> None:
        """Start ranks on ``node``, or resume parked ranks, all of one task and generation."""
        ...

    def order_ranks(self, nodes: tuple[NodeId, ...], order: RankOrder) -> None:
        """Have the agents of these nodes carry out ``order``."""
        ...

    def probe(self, instruction: ProbeNode) -> None:
        """Have peers probe a node's SSH port."""
        ...

    def drop_rendezvous(self, task: TaskId, generation: Generation) -> None:
        """Refuse rendezvous calls of ``generation`` and older generations."""
        ...

    def acknowledge(self, node: NodeId, seq: int) -> None:
        """Acknowledge the report ``seq`` of ``node``: it is in the journal."""
        ...


class Publisher(Protocol):
    """Publishes the core's announcements and answers. No method may block or raise."""

    def publish(self, at: float, announcement: Announce) -> None:
        """Publish an announcement, made ``at`` seconds after the start of the run."""
        ...

    def answer(self, answer: AnswerRequest) -> None:
        """Send the answer to a request."""
        ...

    def state_changed(self) -> None:
        """Publish a new view soon: the state may have changed."""
        ...


class DrillGround(Protocol):
    """Carries out drills. A drill that fails is announced, and raises nothing."""

    def carry_out(self, drill: CarryOutDrill) -> None:
        """Stage the fault now or very soon, without blocking."""
        ...


class CallKeeper(Protocol):
    """Keeps the rendezvous calls that change tables, for the next controller. No method raises."""

    def read(self) -> Iterable[StoreCall]:
        """Return the calls of the former controller, the calls of each table in their order."""
        ...

    def keep(self, call: StoreCall) -> None:
        """Write a call that is about to be carried out, if it may change its table."""
        ...

    def drop(self, task: TaskId, generation: Generation) -> None:
        """Forget ``generation`` and older generations: they have ended."""
        ...


class Tables(Protocol):
    """Keeps the measured throughput of tasks."""

    def record(self, instruction: RecordIterations) -> None:
        """Refine a task's table."""
        ...
