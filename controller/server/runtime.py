"""The runtime: everything that happens becomes an event, every instruction is carried out.

One queue, one consumer: an event is numbered, written to the journal, handled by the core, and its
instructions are carried out before the next one is looked at. Reports of agents are acknowledged
once they are in the journal. Nothing is decided here.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from controller.clock import Clock
from controller.core.events import Event, EventBody, Observed, TimerFired
from controller.core.instructions import (
    Announce,
    AnswerRequest,
    CarryOutDrill,
    DropRendezvous,
    HaltRanks,
    InspectRanks,
    Instruction,
    PrepareSpares,
    ProbeNode,
    RecordIterations,
    SetTimer,
    StartRanks,
    StopRanks,
)
from controller.core.machine import Machine
from controller.core.timers import Timer
from controller.ports import Audience, DrillGround, Fleet, Tables
from controller.server.rank_launches import (
    Backend,
    TaskProgram,
    measured_program,
    preparations,
    starts,
)
from controller.store.journal import Journal
from controller.store.replay import ReplayedRun
from nodeagent.protocol.ids import NodeId, TaskId
from nodeagent.protocol.rank_launch import RankLaunch


@dataclass(frozen=True, slots=True)
class RuntimeDependencies:
    """What the runtime acts on."""

    fleet: Fleet
    audience: Audience
    drills: DrillGround
    tables: Tables


class Runtime:
    """Drives one machine. Post events from the loop's thread; ``run`` handles them."""

    def __init__(
        self,
        machine: Machine,
        journal: Journal,
        clock: Clock,
        programs: Mapping[TaskId, TaskProgram],
        backend: Backend = "gloo",
        replayed: ReplayedRun | None = None,
    ) -> None:
        """Go on from ``replayed``, which ``machine`` has relived, or begin with an empty journal."""
        self.machine = machine
        self.has_news = asyncio.Event()
        """Set once an event has been handled; whoever waits for that clears it."""
        self._journal = journal
        self._clock = clock
        self._programs = programs
        self._backend: Backend = backend
        self._queue: asyncio.Queue[EventBody] = asyncio.Queue()
        self._timers: dict[Timer, asyncio.TimerHandle] = {}
        self._replayed = replayed or ReplayedRun()
        self._num_events = self._replayed.num_events

    def post(self, body: EventBody) -> None:
        """Take an event; it is handled after those that came before it."""
        self._queue.put_nowait(body)

    async def run(self, dependencies: RuntimeDependencies) -> None:
        """Handle events until cancelled."""
        for timer, after_s in self._replayed.timers.items():
            self._set_timer(timer, after_s)
        try:
            while True:
                self._handle(await self._queue.get(), dependencies)
        finally:
            for handle in self._timers.values():
                handle.cancel()

    def _handle(self, body: EventBody, dependencies: RuntimeDependencies) -> None:
        self._num_events += 1
        event = Event(number=self._num_events, at=self._clock.now(), body=body)
        self._journal.append(event)
        if isinstance(body, Observed):
            dependencies.fleet.acknowledge(body.node, body.seq)
        for instruction in self.machine.handle(event):
            self._carry_out(instruction, event, dependencies)
        dependencies.audience.state_changed()
        self.has_news.set()

    def _carry_out(
        self, instruction: Instruction, event: Event, dependencies: RuntimeDependencies
    ) -> None:
        fleet, audience = dependencies.fleet, dependencies.audience
        match instruction:
            case StartRanks():
                for node, launches in self._launches(instruction).items():
                    fleet.start_ranks(node, launches)
            case PrepareSpares():
                program = self._programs[instruction.task]
                prepared = preparations(instruction, program, self._backend)
                for node, launches in prepared.items():
                    fleet.start_ranks(node, launches)
            case HaltRanks():
                fleet.halt_ranks(instruction)
            case StopRanks():
                fleet.stop_ranks(instruction)
            case InspectRanks():
                fleet.inspect_ranks(instruction)
            case ProbeNode():
                fleet.probe(instruction)
            case DropRendezvous():
                fleet.drop_rendezvous(instruction.task, instruction.generation)
            case SetTimer():
                self._set_timer(instruction.timer, instruction.after_s)
            case RecordIterations():
                dependencies.tables.record(instruction)
            case Announce():
                audience.hear(event.at, instruction)
            case AnswerRequest():
                audience.answer(instruction)
            case CarryOutDrill():
                dependencies.drills.carry_out(instruction)
            case _:
                assert_never(instruction)

    def _launches(self, instruction: StartRanks) -> dict[NodeId, list[RankLaunch]]:
        nodes = self.machine.state.nodes
        addresses = {name: node.spec.address for name, node in nodes.items()}
        if instruction.measures is None:
            program = self._programs[instruction.task]
        else:
            program = measured_program(self._programs[instruction.measures], instruction.generation)
        return starts(instruction, program, self._backend, addresses)

    def _set_timer(self, timer: Timer, after_s: float) -> None:
        if timer in self._timers:
            self._timers[timer].cancel()
        loop = asyncio.get_running_loop()
        self._timers[timer] = loop.call_later(after_s, self._fire, timer)

    def _fire(self, timer: Timer) -> None:
        del self._timers[timer]
        self.post(TimerFired(timer))
