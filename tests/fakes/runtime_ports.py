"""What the runtime acts on, as fakes that note every call in one list, in order."""

import asyncio
from typing import NamedTuple

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


class Call(NamedTuple):
    """One call of a port: its name and what it was given."""

    name: str
    arguments: tuple[object, ...] = ()


class Ports:
    """Fleet, audience and drill ground in one. ``calls`` holds all that was asked of them."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.has_news = asyncio.Event()

    def named(self, name: str) -> list[tuple[object, ...]]:
        """Return the arguments of every call of one name."""
        return [call.arguments for call in self.calls if call.name == name]

    def _note(self, name: str, *arguments: object) -> None:
        self.calls.append(Call(name, arguments))
        self.has_news.set()

    def start_ranks(self, node: NodeId, launches: list[RankLaunch]) -> None:
        """Note a start."""
        self._note("start_ranks", node, launches)

    def halt_ranks(self, instruction: HaltRanks) -> None:
        """Note a halt."""
        self._note("halt_ranks", instruction)

    def stop_ranks(self, instruction: StopRanks) -> None:
        """Note a stop."""
        self._note("stop_ranks", instruction)

    def inspect_ranks(self, instruction: InspectRanks) -> None:
        """Note a look at ranks."""
        self._note("inspect_ranks", instruction)

    def record(self, instruction: RecordIterations) -> None:
        """Note iterations."""
        self._note("record", instruction)

    def probe(self, instruction: ProbeNode) -> None:
        """Note a probe."""
        self._note("probe", instruction)

    def drop_rendezvous(self, task: TaskId, generation: Generation) -> None:
        """Note the end of a rendezvous."""
        self._note("drop_rendezvous", task, generation)

    def acknowledge(self, node: NodeId, seq: int) -> None:
        """Note an acknowledgement."""
        self._note("acknowledge", node, seq)

    def publish(self, at: float, announcement: Announce) -> None:
        """Note an announcement."""
        self._note("publish", at, announcement)

    def answer(self, answer: AnswerRequest) -> None:
        """Note an answer."""
        self._note("answer", answer)

    def state_changed(self) -> None:
        """Note that the state may have changed."""
        self._note("state_changed")

    def carry_out(self, drill: CarryOutDrill) -> None:
        """Note a drill."""
        self._note("carry_out", drill)
