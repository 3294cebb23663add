"""All nodes together: one link each, and the rendezvous tables that their ranks share."""

import asyncio
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from controller.clock import Clock
from controller.core.events import EventBody
from controller.core.instructions import HaltRanks, InspectRanks, ProbeNode, StopRanks
from controller.fleet.address import NodeAddress
from controller.fleet.bundle import build_bundle
from controller.fleet.node_link import Identity, NodeLink
from controller.fleet.open_commands import ProbeSubject, RankSubject
from controller.fleet.rendezvous_tables import RendezvousTables
from nodeagent.protocol import messages
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.regroup import RankRef
from nodeagent.protocol.rendezvous import StoreCall, StoreReply

_PROBE_LIMIT_S: Final = 0.8
_EXPIRY_INTERVAL_S: Final = 1.0
_NOWHERE: Final = NodeId("")
"""Where kept calls come from: they were answered, or will be repeated by whoever waits."""


class FleetListener(Protocol):
    """Where the fleet's events go."""

    def post(self, body: EventBody) -> None:
        """Take an event."""
        ...

    def note(self, node: NodeId, text: str) -> None:
        """Take a line about why a node can't be reached."""
        ...


class CallKeeper(Protocol):
    """Where calls that change rendezvous tables outlive the controller; none of its methods raises."""

    def read(self) -> Iterable[StoreCall]:
        """Return what a former controller has kept, the calls of each table in their order."""
        ...

    def keep(self, call: StoreCall) -> None:
        """Write a call that is about to be carried out, if it may change its table."""
        ...

    def drop(self, task: TaskId, generation: Generation) -> None:
        """Forget ``generation`` and older ones: they have ended."""
        ...


class SshFleet:
    """The fleet behind SSH. ``run`` serves it until cancelled."""

    def __init__(
        self,
        addresses: Sequence[NodeAddress],
        identity: Identity,
        listener: FleetListener,
        clock: Clock,
        keeper: CallKeeper,
        last_seqs: Mapping[NodeId, int] | None = None,
    ) -> None:
        """Reach the nodes at ``addresses``; reports up to ``last_seqs`` have been taken before."""
        self._listener = listener
        self._clock = clock
        self._tables: RendezvousTables[NodeId] = RendezvousTables()
        self._keeper = keeper
        for call in keeper.read():
            self._tables.call(_NOWHERE, call, clock.now())
        self._command_ids = (f"{identity.run_id}-{identity.term}-{n}" for n in itertools.count(1))
        bundle = build_bundle()
        self._links = {
            address.node: NodeLink(
                address, bundle, identity, self, clock, (last_seqs or {}).get(address.node, 0)
            )
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

    # --- what links tell ---------------------------------------------------------------

    def post(self, body: EventBody) -> None:
        """Pass an event of a link on."""
        self._listener.post(body)

    def note(self, node: NodeId, text: str) -> None:
        """Pass a line about an unreachable node on."""
        self._listener.note(node, text)

    def take_store_call(self, node: NodeId, call: StoreCall) -> None:
        """Serve a rendezvous call of a rank on ``node``."""
        self._keeper.keep(call)
        self._send_replies(self._tables.call(node, call, self._clock.now()))

    # --- the port ----------------------------------------------------------------------

    def start_ranks(self, node: NodeId, launches: list[RankLaunch]) -> None:
        """Start these ranks, all of one task and generation, on ``node``, or let parked ones go on."""
        first = launches[0]
        command = messages.StartRanksCommand.of(next(self._command_ids), launches)
        self._links[node].send_command(command, RankSubject("start", first.task, first.generation))

    def halt_ranks(self, instruction: HaltRanks) -> None:
        """Park a task's ranks on the nodes that the instruction names."""
        subject = RankSubject("halt", instruction.task, instruction.generation)
        for node in instruction.nodes:
            command = messages.HaltRanksCommand(
                command_id=next(self._command_ids),
                task=instruction.task,
                generation=instruction.generation,
                broken=list(instruction.broken),
                at_boundary=instruction.at_boundary,
                completes_copies=instruction.completes_copies,
            )
            self._links[node].send_command(command, subject)

    def stop_ranks(self, instruction: StopRanks) -> None:
        """End a task's ranks on the nodes that the instruction names."""
        subject = RankSubject("stop", instruction.task, instruction.generation)
        for node in instruction.nodes:
            command = messages.StopRanksCommand(
                command_id=next(self._command_ids),
                task=instruction.task,
                generation=instruction.generation,
                is_graceful=instruction.is_graceful,
                only=list(instruction.only),
            )
            self._links[node].send_command(command, subject)

    def inspect_ranks(self, instruction: InspectRanks) -> None:
        """Look where a task's ranks stand, on the nodes that the instruction names."""
        subject = RankSubject("inspect", instruction.task, instruction.generation)
        for node in instruction.nodes:
            command = messages.InspectRanksCommand(
                command_id=next(self._command_ids),
                task=instruction.task,
                generation=instruction.generation,
                answer_limit_s=instruction.answer_limit_s,
                limit_s=instruction.limit_s,
            )
            self._links[node].send_command(command, subject)

    def inject(self, node: NodeId, task: TaskId, rank: RankRef, fault: RankFault) -> None:
        """Drill: stage a fault in a rank."""
        command = messages.InjectFault(
            command_id=next(self._command_ids),
            task=task,
            generation=rank.generation,
            global_rank=rank.global_rank,
            fault=fault,
        )
        self._links[node].send_command(command, RankSubject("drill", task, rank.generation))

    def probe(self, instruction: ProbeNode) -> None:
        """Have peers look at a node's SSH port."""
        target = self._links[instruction.node].address
        for peer in instruction.by:
            command = messages.ProbePeerCommand(
                command_id=next(self._command_ids),
                host=target.host,
                port=target.port,
                timeout_s=_PROBE_LIMIT_S,
            )
            self._links[peer].send_command(command, ProbeSubject(instruction.node))

    def drop_rendezvous(self, task: TaskId, generation: Generation) -> None:
        """Refuse rendezvous calls of ``generation`` and older."""
        self._keeper.drop(task, generation)
        self._send_replies(self._tables.drop(task, generation))

    def acknowledge(self, node: NodeId, seq: int) -> None:
        """The report ``seq`` of ``node`` is in the journal."""
        self._links[node].acknowledge(seq)
