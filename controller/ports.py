"""What the runtime needs of its surroundings, as protocols: tests and demos bring their own."""

from typing import Protocol

from controller.core.instructions import (
    Announce,
    AnswerRequest,
    CarryOutDrill,
    HaltRanks,
    InspectRanks,
    ProbeNode,
    RecordIterations,
    StopRanks,
)
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.rank_launch import RankLaunch


class Fleet(Protocol):
    """The nodes. Every command ends in an event; none raises."""

    def start_ranks(self, node: NodeId, launches: list[RankLaunch]) -> None:
        """Start these ranks, all of one task and generation, on ``node``, or let parked ones go on."""
        ...

    def halt_ranks(self, instruction: HaltRanks) -> None:
        """Park a task's ranks on the nodes that the instruction names."""
        ...

    def stop_ranks(self, instruction: StopRanks) -> None:
        """End a task's ranks on the nodes that the instruction names."""
        ...

    def inspect_ranks(self, instruction: InspectRanks) -> None:
        """Look where a task's ranks stand, on the nodes that the instruction names."""
        ...

    def probe(self, instruction: ProbeNode) -> None:
        """Have peers look at a node's SSH port."""
        ...

    def drop_rendezvous(self, task: TaskId, generation: Generation) -> None:
        """Refuse rendezvous calls of ``generation`` and older."""
        ...

    def acknowledge(self, node: NodeId, seq: int) -> None:
        """The report ``seq`` of ``node`` is in the journal."""
        ...


class Audience(Protocol):
    """Whoever wants to know what happens: consoles, the event log, the command line."""

    def hear(self, at: float, announcement: Announce) -> None:
        """Take an ``Announce``."""
        ...

    def answer(self, answer: AnswerRequest) -> None:
        """Take the answer to a request."""
        ...

    def state_changed(self) -> None:
        """The state may have changed."""
        ...


class DrillGround(Protocol):
    """Carries out drills. What it can't do it says in the event stream."""

    def carry_out(self, drill: CarryOutDrill) -> None:
        """Break the named thing, now or very soon."""
        ...


class Tables(Protocol):
    """Keeps what tasks were measured to achieve."""

    def record(self, instruction: RecordIterations) -> None:
        """Refine a task's table."""
        ...
