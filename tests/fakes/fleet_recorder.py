"""A fleet over nodes of the local cluster, and a listener that keeps events and notes.

The agents are real, started by the fleet's own bootstrap. Only their template is a fake, since the
real one takes seconds to import torch.
"""

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from typing_extensions import override

from controller.clock import Clock, SystemClock
from controller.core.events import EventBody, Observed
from controller.fleet.address import NodeAddress
from controller.fleet.node_connection import SshLogins
from controller.fleet.node_link import Identity
from controller.fleet.node_links import FleetListener, SshFleet
from controller.localcluster.local_node import LocalNode
from controller.loop_clock import LoopClock
from controller.store.rendezvous_files import RendezvousFiles
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.messages import Heartbeat
from tests.fakes.polling import PolledT

REPOSITORY = Path(__file__).parents[2]
LIMIT_S = 30.0
BRIDGED = "its SSH server forbids forwarding: the session runs over a bridge"

EventT = TypeVar("EventT")


class FleetRecorder(FleetListener):
    """Keeps events and notes. A test can wait for one."""

    def __init__(self) -> None:
        self.events: list[EventBody] = []
        self.beats: list[tuple[NodeId, Heartbeat]] = []
        self.silences: list[tuple[NodeId, float]] = []
        """Nodes in contact that sent nothing for a while, and when they had sent something."""
        self.notes: list[tuple[NodeId, str]] = []
        self.bridged: list[NodeId] = []
        """Nodes whose server forbids forwarding, which is noted too."""
        self._news = asyncio.Event()

    @override
    def post(self, body: EventBody) -> None:
        self.events.append(body)
        self._news.set()

    @override
    async def has_room(self) -> None:
        pass

    @override
    def take_heartbeat(self, node: NodeId, beat: Heartbeat, received_wall_s: float) -> None:
        self.beats.append((node, beat))
        self._news.set()

    @override
    def take_silence(self, node: NodeId, last_message_at: float) -> None:
        self.silences.append((node, last_message_at))
        self._news.set()

    @override
    def note(self, node: NodeId, text: str) -> None:
        if text == BRIDGED:
            self.bridged.append(node)
        else:
            self.notes.append((node, text))
        self._news.set()

    def of(self, kind: type[EventT]) -> list[EventT]:
        """Return the events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def seqs(self) -> list[int]:
        """Numbers of the reports, in the order they came."""
        return [event.seq for event in self.of(Observed)]

    async def until(self, condition: Callable[[], PolledT | None]) -> PolledT:
        """Wait until ``condition`` returns a true value, and return that value.

        It is called again after each event and note.
        """
        async with asyncio.timeout(LIMIT_S):
            while not (found := condition()):
                self._news.clear()
                await self._news.wait()
            return found

    async def has_beats(self, count: int) -> None:
        """Wait until so many heartbeats have come."""
        await self.until(lambda: len(self.beats) >= count)

    async def event(self, kind: type[EventT], count: int = 1) -> EventT:
        """Wait for the ``count``-th event of one kind and return it."""
        return (await self.until(lambda: self.of(kind)[count - 1 :]))[0]

    def observations(self, kind: type[EventT]) -> list[EventT]:
        """Return the reported observations of one kind."""
        observations = [event.observation for event in self.of(Observed)]
        return [each for each in observations if isinstance(each, kind)]

    async def observed(self, kind: type[EventT]) -> EventT:
        """Wait for the first observation of one kind and return it."""
        return (await self.until(lambda: self.observations(kind)))[0]

    async def noted(self, count: int = 1) -> str:
        """Wait for the ``count``-th note and return its text."""
        _, text = (await self.until(lambda: self.notes[count - 1 :]))[0]
        return text


def address_of(node: LocalNode, python: Path) -> NodeAddress:
    """Return how the fleet reaches ``node``; its agent is started with ``python``."""
    return replace(node.address, python=str(python))


def without_template(node: LocalNode) -> NodeAddress:
    """Return how the fleet reaches ``node``; its agent starts no template."""
    return replace(node.address, has_template=False)


def write_python(path: Path, *options: str) -> Path:
    """Make an interpreter that adds ``options`` to the command line that starts the agent."""
    path.write_text(
        f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(REPOSITORY))}\nexport PYTHONPATH\n"
        f'[ "$2" = start ] || exec {shlex.quote(sys.executable)} "$@"\n'
        f'exec {shlex.quote(sys.executable)} "$@" {shlex.join(options)}\n'
    )
    path.chmod(0o755)
    return path


class CountingClock(SystemClock):
    """The system's clock, which counts how often it was read: at least once per failed attempt."""

    def __init__(self) -> None:
        super().__init__()
        self.num_reads = 0

    @override
    def now(self) -> float:
        self.num_reads += 1
        return super().now()


@asynccontextmanager
async def running_fleet(
    addresses: Iterable[NodeAddress],
    recorder: FleetRecorder,
    *,
    run_id: str = "run-1",
    term: int = 1,
    clock: Clock | None = None,
    logins: SshLogins | None = None,
) -> AsyncIterator[SshFleet]:
    """Run a fleet for the length of the block."""
    with TemporaryDirectory() as directory:
        keeper = RendezvousFiles(Path(directory), lambda _task, text: pytest.fail(text))
        loop_clock = LoopClock(clock or SystemClock())
        fleet = SshFleet(Identity(run_id, term), recorder, loop_clock, keeper, logins=logins)
        for address in addresses:
            fleet.add(address)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop_clock.run()), group.create_task(fleet.run())]
            try:
                yield fleet
            finally:
                for task in tasks:
                    task.cancel()
        keeper.close()
