"""The fleet behind SSH: a link to each node, and the rendezvous tables that all ranks share."""

import asyncio
import itertools
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from typing_extensions import override

from controller.core.events import EventBody
from controller.core.instructions import ProbeNode
from controller.fleet.address import NodeAddress, decode_address
from controller.fleet.bundle import build_bundle
from controller.fleet.node_connection import SshLogins
from controller.fleet.node_link import Identity, LinkContext, Listener, NodeLink, RankCommand
from controller.fleet.open_commands import ProbeSubject, RankSubject, Subject
from controller.fleet.rendezvous_tables import RendezvousTables
from controller.loop_clock import LoopClock
from controller.ports import CallKeeper, Fleet
from controller.workdirs.workdir_store import WorkdirStore
from nodeagent.protocol import messages
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.messages import Heartbeat, ProbePeerCommand
from nodeagent.protocol.orders import RankOrder
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.regroup import RankRef
from nodeagent.protocol.rendezvous import StoreCall, StoreReply

_PROBE_LIMIT_S: Final = 0.8
_EXPIRY_INTERVAL_S: Final = 1.0
_NOWHERE: Final = NodeId("")
"""Origin of the calls of a former controller. Ranks without an answer repeat their calls."""


class LogPlace(NamedTuple):
    """Which part of a rank's output is wanted.

    Attributes:
        name: The log of the part before; empty for the newest one's end.
        end: Where that part ended.
        max_bytes: How much at most.
        is_previous: Whether it is that of the process before the newest one.
    """

    name: str
    end: int
    max_bytes: int
    is_previous: bool = False


class FleetListener(Protocol):
    """Gets the fleet's events and notes."""

    def post(self, body: EventBody) -> None:
        """Have the core handle an event."""
        ...

    async def has_room(self) -> None:
        """Return once there is room for what a node says."""
        ...

    def take_heartbeat(self, node: NodeId, beat: Heartbeat, received_wall_s: float) -> None:
        """Take in a heartbeat, which came at this time by the controller's wall clock."""
        ...

    def take_silence(self, node: NodeId, last_message_at: float) -> None:
        """Take in that a node in contact has sent nothing for ``SILENT_S``."""
        ...

    def note(self, node: NodeId, text: str) -> None:
        """Publish the reason why a node can't be reached."""
        ...


class SshFleet(Fleet, Listener):
    """The fleet behind SSH. ``run`` serves it until cancelled."""

    def __init__(
        self,
        identity: Identity,
        listener: FleetListener,
        clock: LoopClock,
        keeper: CallKeeper,
        last_seqs: Mapping[NodeId, int] | None = None,
        logins: SshLogins | None = None,
    ) -> None:
        """Reports up to a node's number in ``last_seqs`` are not taken again."""
        self._listener = listener
        self._clock = clock
        self._tables: RendezvousTables[NodeId] = RendezvousTables()
        self._keeper = keeper
        for call in keeper.read():
            self._tables.call(_NOWHERE, call, clock.now())
        self._command_ids = (f"{identity.run_id}-{identity.term}-{n}" for n in itertools.count(1))
        self._logins = logins or SshLogins()
        nowhere = WorkdirStore(Path())
        self._context = LinkContext(build_bundle(), identity, self, clock, self._logins, nowhere)
        self._last_seqs = dict(last_seqs or {})
        self._links: dict[NodeId, NodeLink] = {}
        self._services: dict[NodeId, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    def use_workdirs(self, store: WorkdirStore) -> None:
        """Take versions of tasks' folders from ``store``. To be called before there are links."""
        self._context = replace(self._context, workdirs=store)

    async def run(self) -> None:
        """Keep every node in contact until cancelled."""
        async with self._logins, asyncio.TaskGroup() as group:
            self._group = group
            for name, link in self._links.items():
                self._services[name] = group.create_task(link.run())
            group.create_task(self._expire_calls())

    @override
    def connect(self, node: NodeId, access: str) -> None:
        address = decode_address(access)
        if node in self._links:
            known = self._links[node].given_address
            if replace(known, has_template=address.has_template) == address:
                return
            self.disconnect(node)
        self.add(address)

    @override
    def disconnect(self, node: NodeId) -> None:
        link = self._links.pop(node, None)
        if link is None:
            return
        self._last_seqs[node] = link.last_seq
        if service := self._services.pop(node, None):
            service.cancel()
        link.close()

    def add(self, address: NodeAddress) -> None:
        """Have a link to a node from now on. There is none yet."""
        last_seq = self._last_seqs.get(address.node, 0)
        self._links[address.node] = link = NodeLink(address, self._context, last_seq)
        if self._group is not None:
            self._services[address.node] = self._group.create_task(link.run())

    def _command(
        self, node: NodeId, command: RankCommand | ProbePeerCommand, subject: Subject
    ) -> None:
        """Send a command, if the node still belongs to the cluster."""
        if (link := self._links.get(node)) is not None:
            link.send_command(command, subject)

    async def _expire_calls(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_INTERVAL_S)
            self._send_replies(self._tables.expire(self._clock.now()))

    def _send_replies(self, replies: Iterable[tuple[NodeId, StoreReply]]) -> None:
        for origin, reply in replies:
            if origin in self._links:  # not of a former controller, or of a node that has left
                self._links[origin].reply(reply)

    @override
    def post(self, body: EventBody) -> None:
        self._listener.post(body)

    @override
    async def has_room(self) -> None:
        await self._listener.has_room()

    @override
    def take_heartbeat(self, node: NodeId, beat: Heartbeat, received_wall_s: float) -> None:
        self._listener.take_heartbeat(node, beat, received_wall_s)

    @override
    def take_silence(self, node: NodeId, last_message_at: float) -> None:
        self._listener.take_silence(node, last_message_at)

    @override
    def spawn(self, work: Coroutine[None, None, None]) -> None:
        assert self._group is not None, "links work while the fleet runs"
        self._group.create_task(work)

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
        self._command(node, command, RankSubject("start", first.task, first.generation))

    @override
    def order_ranks(self, nodes: tuple[NodeId, ...], order: RankOrder) -> None:
        subject = RankSubject(order.kind, order.task, order.generation)
        for node in nodes:
            command = messages.OrderRanksCommand(command_id=next(self._command_ids), order=order)
            self._command(node, command, subject)

    def inject(self, node: NodeId, task: TaskId, rank: RankRef, fault: RankFault) -> None:
        """Have an agent stage a fault in a rank, for a drill."""
        command = messages.InjectFault(
            command_id=next(self._command_ids),
            task=task,
            generation=rank.generation,
            global_rank=rank.global_rank,
            fault=fault,
        )
        self._command(node, command, RankSubject("drill", task, rank.generation))

    async def read_log(
        self, node: NodeId, task: TaskId, global_rank: int, place: LogPlace
    ) -> messages.LogPart:
        """Return a part of a rank's output on a node. If that is out of reach, it says so."""
        request = messages.ReadLog(
            command_id=next(self._command_ids), task=task, global_rank=global_rank,
            name=place.name, begin=place.end, max_bytes=place.max_bytes,
            is_previous=place.is_previous,
        )  # fmt: skip
        link = self._links.get(node)
        if link is None:
            return messages.LogPart(command_id="", error="its node has left the cluster")
        return await link.read_log(request)

    @override
    def probe(self, instruction: ProbeNode) -> None:
        if instruction.node not in self._links:
            return
        target = self._links[instruction.node].address
        for peer in instruction.by:
            command = messages.ProbePeerCommand(
                command_id=next(self._command_ids),
                host=target.ssh.host,
                other_host=target.training_address,
                port=target.ssh.port,
                timeout_s=_PROBE_LIMIT_S,
            )
            self._command(peer, command, ProbeSubject(instruction.node))

    @override
    def drop_rendezvous(self, task: TaskId, generation: Generation) -> None:
        self._keeper.drop(task, generation)
        self._send_replies(self._tables.drop(task, generation))

    @override
    def acknowledge(self, node: NodeId, seq: int) -> None:
        if node in self._links:
            self._links[node].acknowledge(seq)
