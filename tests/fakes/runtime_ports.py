"""The ports of the runtime, as a fake that records every call in one list, in order."""

import asyncio
from typing import NamedTuple

from typing_extensions import override

from controller.core.instructions import (
    Announce,
    AnswerRequest,
    CarryOutDrill,
    ProbeNode,
    RecordIterations,
)
from controller.ports import DrillGround, Fleet, Publisher, Tables
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.orders import RankOrder
from nodeagent.protocol.rank_launch import RankLaunch


class Call(NamedTuple):
    """One call of a port: its name and what it was given."""

    name: str
    arguments: tuple[object, ...] = ()


class Ports(Fleet, Publisher, DrillGround, Tables):
    """Fleet, publisher, drill ground and tables in one. ``calls`` holds every call."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.has_news = asyncio.Event()

    def named(self, name: str) -> list[tuple[object, ...]]:
        """Return the arguments of every call of one name."""
        return [call.arguments for call in self.calls if call.name == name]

    def _note(self, name: str, *arguments: object) -> None:
        self.calls.append(Call(name, arguments))
        self.has_news.set()

    @override
    def connect(self, node: NodeId, access: str) -> None:
        self._note("connect", node, access)

    @override
    def disconnect(self, node: NodeId) -> None:
        self._note("disconnect", node)

    @override
    def start_ranks(self, node: NodeId, launches: list[RankLaunch]) -> None:
        self._note("start_ranks", node, launches)

    @override
    def order_ranks(self, nodes: tuple[NodeId, ...], order: RankOrder) -> None:
        self._note("order_ranks", nodes, order)

    @override
    def record(self, instruction: RecordIterations) -> None:
        self._note("record", instruction)

    @override
    def probe(self, instruction: ProbeNode) -> None:
        self._note("probe", instruction)

    @override
    def drop_rendezvous(self, task: TaskId, generation: Generation) -> None:
        self._note("drop_rendezvous", task, generation)

    @override
    def acknowledge(self, node: NodeId, seq: int) -> None:
        self._note("acknowledge", node, seq)

    @override
    def publish(self, at: float, announcement: Announce) -> None:
        self._note("publish", at, announcement)

    @override
    def answer(self, answer: AnswerRequest) -> None:
        self._note("answer", answer)

    @override
    def state_changed(self) -> None:
        self._note("state_changed")

    @override
    def carry_out(self, drill: CarryOutDrill) -> None:
        self._note("carry_out", drill)
