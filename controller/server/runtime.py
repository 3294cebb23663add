"""The runtime: it feeds events to the core and carries out the core's instructions.

There is one queue and one consumer. An event is numbered, written to the journal and handled by the
core. All events that wait are taken in at once, and committed to the disk together. Only then are
their instructions carried out, in the same order, and the agents' reports are acknowledged. The
runtime decides nothing.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

from controller.api.view_keeper import ViewKeeper
from controller.core.events import Event, EventBody, Observed, TimerFired
from controller.core.instructions import (
    Announce,
    AnswerRequest,
    CarryOutDrill,
    ConnectNode,
    DisconnectNode,
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
from controller.loop_clock import LoopClock
from controller.ports import DrillGround, Fleet, Publisher, Tables
from controller.server.event_queue import EventQueue, Waiting
from controller.server.rank_launches import (
    Backend,
    NodeNetwork,
    decode_program,
    measured_program,
    spare_launches,
    starts,
)
from controller.store.journal import Journal
from controller.store.replay import ReplayedRun
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.rank_launch import RankLaunch

_LOG: Final = logging.getLogger(__name__)
_TAKE_IN_S: Final = 0.01
"""How long events are taken in before they are committed together."""
_LEAST_PAUSE_S: Final = 0.05
_NUM_DELAYS: Final = 10_000
_LOGGED_ELSEWHERE: Final = (Announce, AnswerRequest, SetTimer)
_FREQUENT: Final = (InspectRanks, RecordIterations)
"""Instructions that are logged at ``debug``."""


@dataclass(frozen=True, slots=True)
class RuntimeDependencies:
    """The ports of the runtime."""

    fleet: Fleet
    publisher: Publisher
    drills: DrillGround
    tables: Tables


class _Handled(NamedTuple):
    event: Event
    instructions: list[Instruction]
    since_s: float | None
    """When it came, by the loop's clock; None for the first events of a controller."""


class Runtime:
    """Drives one machine. ``run`` serves it until cancelled."""

    def __init__(
        self,
        machine: Machine,
        journal: Journal,
        clock: LoopClock,
        backend: Backend,
        replayed: ReplayedRun | None = None,
    ) -> None:
        """Resume after ``replayed``, whose events ``machine`` has handled, or begin a new run."""
        self.machine = machine
        self.views = ViewKeeper(machine.state)
        self.has_news = asyncio.Event()
        """Set when an event has been handled. The task that waits for it clears it."""
        self._journal = journal
        self._clock = clock
        self._backend: Backend = backend
        self._queue = EventQueue()
        self._timers: dict[Timer, asyncio.TimerHandle] = {}
        self._replayed = replayed or ReplayedRun()
        self.num_events = self._replayed.num_events
        self._begun: list[_Handled] = []
        self.segment_closed: Callable[[], None] = lambda: None
        """Called when a segment of the journal was closed."""
        self.followed: Callable[[Event, list[Instruction]], None] = lambda _event, _instructions: (
            None
        )
        """Called with each event that is committed, and its instructions."""
        self.delays_s: deque[float] = deque(maxlen=_NUM_DELAYS)
        """From the arrival of each of the newest events to what followed from it, the commit
        included."""

    def begin(self, bodies: Iterable[EventBody]) -> None:
        """Handle the first events now, so that the state is there; ``run`` does what follows."""
        self._begun += [self._handle(body) for body in bodies]

    def post(self, body: EventBody) -> None:
        """Put an event into the queue. Call it from the loop's thread."""
        self._queue.put(body, asyncio.get_running_loop().time())

    async def has_room(self) -> None:
        """Return once there is room for what nodes say."""
        await self._queue.has_room()

    async def run(self, dependencies: RuntimeDependencies) -> None:
        """Handle events until cancelled."""
        for timer, after_s in self._replayed.timers.items():
            self._set_timer(timer, after_s)
        try:
            if self._begun:
                await self._commit_and_follow(self._begun, dependencies)
            while True:
                handled = self._take_in(await self._queue.get())
                await self._commit_and_follow(handled, dependencies)
        finally:
            for handle in self._timers.values():
                handle.cancel()

    async def _commit_and_follow(
        self, handled: list[_Handled], dependencies: RuntimeDependencies
    ) -> None:
        """Commit events, then carry out what follows from them."""
        try:
            await self._journal.commit()
        except asyncio.CancelledError:
            # The state shows these events already: what follows from them is not left out.
            self._journal.commit_at_once()
            self._follow_all(handled, dependencies)
            raise
        self._follow_all(handled, dependencies)
        if self._journal.is_long:
            self._journal.begin_segment()
            self.segment_closed()

    def _take_in(self, waiting: Waiting) -> list[_Handled]:
        """Write and handle an event and those that wait, for a moment; return what follows."""
        time_s = asyncio.get_running_loop().time
        until_s = time_s() + _TAKE_IN_S
        handled = [self._handle(*waiting)]
        while self._queue and time_s() < until_s:
            handled.append(self._handle(*self._queue.get_nowait()))
        return handled

    def _handle(self, body: EventBody, since_s: float | None = None) -> _Handled:
        self.num_events += 1
        event = Event(number=self.num_events, at=self._clock.now(), body=body)
        self._journal.append(event)
        instructions = self.machine.handle(event)
        self.views.note(event, instructions)
        return _Handled(event, instructions, since_s)

    def _follow_all(self, handled: list[_Handled], dependencies: RuntimeDependencies) -> None:
        now_s = asyncio.get_running_loop().time()
        for event, instructions, since_s in handled:
            if since_s is not None:
                self.delays_s.append(now_s - since_s)
            self._follow(event, instructions, dependencies)

    def _follow(
        self, event: Event, instructions: list[Instruction], dependencies: RuntimeDependencies
    ) -> None:
        """Acknowledge an event, and carry out its instructions."""
        if isinstance(event.body, Observed):
            dependencies.fleet.acknowledge(event.body.node, event.body.seq)
        self.followed(event, instructions)
        for instruction in instructions:
            try:
                self._carry_out(instruction, event, dependencies)
            except Exception:
                name = type(instruction).__name__
                _LOG.exception("instruction failed: instruction=%s cause=%d", name, event.number)
                raise
            _log_instruction(instruction, event)
        dependencies.publisher.state_changed()
        self.has_news.set()

    def _carry_out(
        self, instruction: Instruction, event: Event, dependencies: RuntimeDependencies
    ) -> None:
        fleet, publisher = dependencies.fleet, dependencies.publisher
        match instruction:
            case StartRanks():
                for node, launches in self._launches(instruction).items():
                    fleet.start_ranks(node, launches)
            case PrepareSpares():
                program = decode_program(instruction.program)
                prepared = spare_launches(instruction, program, self._backend)
                for node, launches in prepared.items():
                    fleet.start_ranks(node, launches)
            case ConnectNode():
                fleet.connect(instruction.node, instruction.access)
            case DisconnectNode():
                fleet.disconnect(instruction.node)
            case HaltRanks() | StopRanks() | InspectRanks():
                fleet.order_ranks(instruction.nodes, instruction.order)
            case ProbeNode():
                fleet.probe(instruction)
            case DropRendezvous():
                fleet.drop_rendezvous(instruction.task, instruction.generation)
            case SetTimer():
                self._set_timer(instruction.timer, instruction.after_s)
            case RecordIterations():
                dependencies.tables.record(instruction)
            case Announce():
                publisher.publish(event.at, instruction)
            case AnswerRequest():
                publisher.answer(instruction)
            case CarryOutDrill():
                dependencies.drills.carry_out(instruction)
            case _:
                assert_never(instruction)

    def _launches(self, instruction: StartRanks) -> dict[NodeId, list[RankLaunch]]:
        nodes = self.machine.state.nodes
        networks = {
            name: NodeNetwork(node.spec.training_host, node.spec.training_interface)
            for name, node in nodes.items()
        }
        program = decode_program(instruction.program)
        if instruction.measures is not None:
            program = measured_program(program, instruction.generation)
        return starts(instruction, program, self._backend, networks)

    def _set_timer(self, timer: Timer, after_s: float) -> None:
        if timer in self._timers:
            self._timers[timer].cancel()
        _LOG.debug("timer set: timer=%s after_s=%.3f", timer, after_s)
        due_s = self._clock.awake_s() + after_s
        loop = asyncio.get_running_loop()
        self._timers[timer] = loop.call_later(after_s, self._fire, timer, due_s)

    def _fire(self, timer: Timer, due_s: float) -> None:
        left_s = due_s - self._clock.awake_s()
        if left_s > _LEAST_PAUSE_S:
            # This process stood still. What came meanwhile is read before anybody is judged.
            loop = asyncio.get_running_loop()
            self._timers[timer] = loop.call_later(left_s, self._fire, timer, due_s)
            return
        del self._timers[timer]
        _LOG.debug("timer fired: timer=%s", timer)
        self.post(TimerFired(timer))


def _log_instruction(instruction: Instruction, event: Event) -> None:
    level = logging.DEBUG if isinstance(instruction, _FREQUENT) else logging.INFO
    if isinstance(instruction, _LOGGED_ELSEWHERE) or not _LOG.isEnabledFor(level):
        return
    name, cause = type(instruction).__name__, event.number
    subject: object = getattr(instruction, "order", instruction)
    task: object = getattr(subject, "task", None)
    generation: object = getattr(subject, "generation", None)
    _LOG.log(
        level,
        "instruction carried out: instruction=%s cause=%d event=%s task=%s generation=%s nodes=%s",
        name, cause, type(event.body).__name__, task, generation, _nodes_of(instruction),
    )  # fmt: skip


def _nodes_of(instruction: Instruction) -> str | None:
    """Return the nodes that an instruction concerns, in one word; None if it names none."""
    match instruction:
        case StartRanks():
            nodes = {instruction.placement[number].node for number in instruction.global_ranks}
        case PrepareSpares():
            nodes = {worker.node for worker, _ in instruction.spares.values()}
        case HaltRanks() | StopRanks() | InspectRanks():
            nodes = set(instruction.nodes)
        case ProbeNode() | CarryOutDrill() | ConnectNode() | DisconnectNode():
            nodes = {instruction.node} if instruction.node else set()
        case _:
            return None
    return ",".join(sorted(nodes))
