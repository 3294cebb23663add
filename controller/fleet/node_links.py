"""The fleet behind SSH: a link to each node, and the rendezvous tables that all ranks share."""

import asyncio
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from typing_extensions import override

from controller.core.events import EventBody
from controller.core.instructions import ProbeNode
from controller.fleet.address import NodeAddress
from controller.fleet.bundle import build_bundle
from controller.fleet.link_context import Identity, LinkContext, Listener
from controller.fleet.node_link import NodeLink
from controller.fleet.open_commands import ProbeSubject, RankSubject
from controller.fleet.rendezvous_tables import RendezvousTables
from controller.loop_clock import LoopClock
from controller.ports import CallKeeper, Fleet
from nodeagent.protocol import messages
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.orders import RankOrder
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.regroup import RankRef
from nodeagent.protocol.rendezvous import StoreCall, StoreReply

_PROBE_LIMIT_S: Final = 0.8
_EXPIRY_INTERVAL_S: Final = 1.0
_MOST_HANDSHAKES: Final = 64
"""SSH handshakes that are under way at once."""
_NOWHERE: Final = NodeId("")
"""Origin of the calls of a former controller. Ranks without an answer repeat their calls."""


class FleetListener(Protocol):
    """Gets the fleet's events and notes."""

    def post(self, body: EventBody) -> None:
        """Have the core handle an event."""
        ...

    def note(self, node: NodeId, text: str) -> None:
        """Publish the reason why a node can't be reached."""
        ...


class SshFleet(Fleet, Listener):
    """The fleet behind SSH. ``run`` serves it until cancelled."""

    def __init__(
        self,
        addresses: Sequence[NodeAddress],
        identity: Identity,
        listener: FleetListener,
        clock: LoopClock,
        keeper: CallKeeper,
        last_seqs: Mapping[NodeId, int] | None = None,
    ) -> None:
        """Make the links. Reports up to a node's number in ``last_seqs`` are not taken again."""
        self._listener = listener
        self._clock = clock
        self._tables: RendezvousTables[NodeId] = RendezvousTables()
        self._keeper = keeper
        for call in keeper.read():
            self._tables.call(_NOWHERE, call, clock.now())
        self._command_ids = (f"{identity.run_id}-{identity.term}-{n}" for n in itertools.count(1))
        handshakes = asyncio.Semaphore(_MOST_HANDSHAKES)
        context = LinkContext(build_bundle(), identity, self, clock, handshakes)
        self._links = {
            address.node: NodeLink(address, context, (last_seqs or {}).get(address.node, 0))
            for address in addresses
        }

    async def run(self) -> None:
        """Keep every node in contact until cancelled."""
        async with asyncio.TaskGroup() as group:
            for link in self._links.values():
                group.create_task(link.run())
            group.create_task(self._expire_calls())

    async def _expire_calls(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_INTERVAL_S)
            self._send_replies(self._tables.expire(self._clock.now()))

    def _send_replies(self, replies: Iterable[tuple[NodeId, StoreReply]]) -> None:
        for origin, reply in replies:
            self._links[origin].reply(reply)

    @override
    def post(self, body: EventBody) -> None:
        self._listener.post(body)

    @override
    def note(self, node: NodeId, text: str) -> None:
        self._listener.note(node, text)

    @override
    def take_store_call(self, node: NodeId, call: StoreCall) -> None:
        self._keeper.keep(call)
        self._send_replies(self._tables.call(node, call, self._clock.now()))

    @override
    def start_ranks(self, node: NodeId, launches: list[RankLaunch]) -> None:
        first = launches[0]
        command = messages.StartRanksCommand.of(next(self._command_ids), launches)
        self._links[node].send_command(command, RankSubject("start", first.task, first.generation))

    @override
    def order_ranks(self, nodes: tuple[NodeId, ...], order: RankOrder) -> None:
        subject = RankSubject(order.kind, order.task, order.generation)
        for node in nodes:
            command = messages.OrderRanksCommand(command_id=next(self._command_ids), order=order)
            self._links[node].send_command(command, subject)

    def inject(self, node: NodeId, task: TaskId, rank: RankRef, fault: RankFault) -> None:
        """Have an agent stage a fault in a rank, for a drill."""
        command = messages.InjectFault(
            command_id=next(self._command_ids),
            task=task,
            generation=rank.generation,
            global_rank=rank.global_rank,
            fault=fault,
        )
        self._links[node].send_command(command, RankSubject("drill", task, rank.generation))

    @override
    def probe(self, instruction: ProbeNode) -> None:
        target = self._links[instruction.node].address
        for peer in instruction.by:
            command = messages.ProbePeerCommand(
                command_id=next(self._command_ids),
                host=target.host,
                port=target.port,
                timeout_s=_PROBE_LIMIT_S,
            )
            self._links[peer].send_command(command, ProbeSubject(instruction.node))

    @override
    def drop_rendezvous(self, task: TaskId, generation: Generation) -> None:
        self._keeper.drop(task, generation)
        self._send_replies(self._tables.drop(task, generation))

    @override
    def acknowledge(self, node: NodeId, seq: int) -> None:
        self._links[node].acknowledge(seq)
