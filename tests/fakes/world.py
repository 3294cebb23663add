"""A make-believe cluster under a virtual clock, for the core: instructions in, events out.

It does to the machine what real nodes do: starts take a moment, ranks commit iterations, a dead
rank's peers report failed collectives, a lost node says nothing. Nothing sleeps; time jumps from
one thing to the next. The order of things that happen at the same instant is drawn from a seed.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypedDict

from controller.core.events import (
    ContactLost,
    Event,
    EventBody,
    HeartbeatReceived,
    NodeAttached,
    Observed,
    PeerProbed,
    StopCarriedOut,
    TimerFired,
)
from controller.core.health import ProbeOutcome
from controller.core.instructions import (
    Announce,
    AnswerRequest,
    CarryOutDrill,
    DropRendezvous,
    Instruction,
    ProbeNode,
    SetTimer,
    StartRanks,
    StopRanks,
)
from controller.core.invariants import check_invariants
from controller.core.machine import Machine
from nodeagent.protocol.ids import AgentId, Generation, NodeId, TaskId
from nodeagent.protocol.messages import RankStatus
from nodeagent.protocol.observations import (
    AnyObservation,
    IterationCommitted,
    RankDone,
    RankExited,
    RankRaised,
    RankStarted,
)

ITERATION_S = 1.0
HEARTBEAT_S = 1.0


@dataclass
class FakeRank:
    """A rank process of the make-believe cluster."""

    task: TaskId
    generation: Generation
    global_rank: int
    worker: int
    pid: int
    iteration: int = 0


@dataclass
class FakeNode:
    """A node: its ranks, its agent, and whether the controller can see it."""

    name: NodeId
    is_up: bool = True
    is_silent: bool = False
    """Down without a word: its port refuses nobody, it says nothing."""
    is_visible: bool = True
    has_session: bool = False
    agent: int = 1
    seq: int = 0
    ranks: dict[tuple[TaskId, int], FakeRank] = field(default_factory=dict)
    held: list[EventBody] = field(default_factory=list)
    stopped: dict[TaskId, Generation] = field(default_factory=dict)
    """Generations that were ended: what is started late of them is not started."""


@dataclass
class FakeTask:
    """What the training itself remembers: its checkpoint and its losses."""

    checkpoint: int = 0
    iteration: int = 0
    world_size: int = 0
    stopping: Generation | None = None


class World:
    """Runs a machine against the make-believe cluster."""

    def __init__(self, machine: Machine, seed: int = 0, num_iterations: int = 40) -> None:
        self.machine = machine
        self.random = random.Random(seed)
        self.now = 0.0
        self.events: list[Event] = []
        self.announcements: list[tuple[float, Announce]] = []
        self.answers: list[AnswerRequest] = []
        self.drills: list[CarryOutDrill] = []
        self.num_iterations = num_iterations
        self.checkpoint_interval = 5
        self.nodes = {name: FakeNode(name) for name in machine.state.nodes}
        self.tasks = {name: FakeTask() for name in machine.state.tasks}
        self._queue: list[tuple[float, float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._pids = itertools.count(1000)
        self._timers: dict[object, int] = {}
        for node in self.nodes.values():
            self.after(0.1, partial(self._attach, node))
            self.after(1.0, partial(self._beat, node))

    # --- time --------------------------------------------------------------------------

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do ``action`` after ``delay_s``; equal times happen in an order drawn from the seed."""
        heapq.heappush(
            self._queue, (self.now + delay_s, self.random.random(), next(self._order), action)
        )

    def run(self, until_s: float) -> None:
        """Let time pass up to ``until_s``."""
        while self._queue and self._queue[0][0] <= until_s:
            self.now, _, _, action = heapq.heappop(self._queue)
            action()
        self.now = until_s

    def run_until(self, condition: Callable[[], bool], limit_s: float = 600.0) -> None:
        """Let time pass until ``condition`` holds."""
        end = self.now + limit_s
        while not condition():
            assert self._queue, "nothing happens any more"
            assert self._queue[0][0] <= end, f"not within {limit_s} s"
            self.now, _, _, action = heapq.heappop(self._queue)
            action()

    # --- events and instructions ---------------------------------------------------------

    def post(self, body: EventBody) -> None:
        """Give the machine an event and carry out what it wants; invariants are checked."""
        event = Event(number=len(self.events) + 1, at=self.now, body=body)
        self.events.append(event)
        instructions = self.machine.handle(event)
        check_invariants(self.machine.state)
        for instruction in instructions:
            self._carry_out(instruction)

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case StartRanks():
                self.after(0.2, lambda: self._start(instruction))
            case StopRanks():
                for name in instruction.nodes:
                    self.after(0.02, partial(self._stop, instruction, self.nodes[name]))
            case ProbeNode():
                for peer in instruction.by:
                    self.after(0.02, partial(self._probe, instruction.node, peer))
            case SetTimer():
                self._set_timer(instruction)
            case Announce():
                self.announcements.append((self.now, instruction))
            case AnswerRequest():
                self.answers.append(instruction)
            case CarryOutDrill():
                self.drills.append(instruction)
            case DropRendezvous():
                pass

    def _set_timer(self, instruction: SetTimer) -> None:
        timer = instruction.timer
        self._timers[timer] = stamp = next(self._order)

        def fire() -> None:
            if self._timers.get(timer) == stamp:
                self.post(TimerFired(timer))

        self.after(instruction.after_s, fire)

    # --- nodes ---------------------------------------------------------------------------

    def _attach(self, node: FakeNode) -> None:
        if node.is_up and node.is_visible:
            statuses = self._statuses(node)
            node.has_session = True
            self.post(NodeAttached(node.name, AgentId(f"{node.name}-{node.agent}"), 1, statuses))
            held, node.held = node.held, []
            for body in held:
                self.post(body)

    def _statuses(self, node: FakeNode) -> tuple[RankStatus, ...]:
        return tuple(
            RankStatus(
                task=rank.task,
                generation=rank.generation,
                global_rank=rank.global_rank,
                worker=rank.worker,
                pid=rank.pid,
                iteration=rank.iteration,
            )
            for rank in node.ranks.values()
        )

    def _beat(self, node: FakeNode) -> None:
        if node.is_up and node.is_visible:
            self.post(HeartbeatReceived(node.name, 30_000_000, self._statuses(node)))
        self.after(HEARTBEAT_S, lambda: self._beat(node))

    def observe(self, node: FakeNode, observation: AnyObservation) -> None:
        """Report an observation; a node out of sight keeps it until it is back."""
        if not node.is_up:
            return
        node.seq += 1
        body = Observed(node.name, node.seq, self.now, observation)
        if node.is_visible:
            self.post(body)
        else:
            node.held.append(body)

    def _probe(self, target: NodeId, peer: NodeId) -> None:
        if self.nodes[peer].is_up and self.nodes[peer].is_visible:
            node = self.nodes[target]
            down: ProbeOutcome = "silent" if node.is_silent else "refused"
            self.post(PeerProbed(target, peer, "answered" if node.is_up else down))
        else:
            self.post(PeerProbed(target, peer, None))

    # --- ranks ---------------------------------------------------------------------------

    def _start(self, instruction: StartRanks) -> None:
        task = self.tasks[instruction.task]
        for number in instruction.global_ranks:
            worker = instruction.placement[number]
            node = self.nodes[worker.node]
            is_stopped = instruction.generation <= node.stopped.get(instruction.task, 0)
            if is_stopped or not (node.is_up and node.is_visible):
                continue
            rank = FakeRank(
                instruction.task, instruction.generation, number, worker.slot, next(self._pids)
            )
            node.ranks[instruction.task, number] = rank
            self.observe(node, RankStarted(**_who(rank), pid=rank.pid, warm=True, start_s=0.05))
        task.world_size = instruction.layout.num_workers
        if len(self._ranks(instruction.task, instruction.generation)) == task.world_size:
            task.iteration = task.checkpoint
            task.stopping = None
            self.after(ITERATION_S, lambda: self._iterate(instruction.task, instruction.generation))

    def _ranks(self, task: TaskId, generation: Generation) -> list[tuple[FakeNode, FakeRank]]:
        return [
            (node, rank)
            for node in self.nodes.values()
            if node.is_up
            for rank in node.ranks.values()
            if rank.task == task and rank.generation == generation
        ]

    def _iterate(self, name: TaskId, generation: Generation) -> None:
        task, ranks = self.tasks[name], self._ranks(name, generation)
        if len(ranks) != task.world_size:
            return
        task.iteration += 1
        if task.iteration % self.checkpoint_interval == 0:
            task.checkpoint = task.iteration
        for node, rank in sorted(ranks, key=lambda pair: pair[1].global_rank):
            rank.iteration = task.iteration
            if rank.global_rank == 0:
                self.observe(
                    node,
                    IterationCommitted(
                        **_who(rank),
                        iteration=task.iteration,
                        loss=5.5 - task.iteration / 100,
                        duration_s=ITERATION_S,
                        num_tokens=768,
                        grad_norm=1.0,
                    ),
                )
        is_finished = task.iteration >= self.num_iterations
        if is_finished or task.stopping == generation:
            task.checkpoint = task.iteration
            for node, rank in self._ranks(name, generation):
                reason: Literal["finished", "stopped"] = "finished" if is_finished else "stopped"
                self.observe(node, RankDone(**_who(rank), iteration=task.iteration, reason=reason))
                self.end_rank(node, rank, exit_code=0)
        else:
            self.after(ITERATION_S, lambda: self._iterate(name, generation))

    def end_rank(
        self,
        node: FakeNode,
        rank: FakeRank,
        *,
        exit_code: int | None = None,
        number: int | None = None,
        is_expected: bool = False,
    ) -> None:
        """End a rank's process; its peers notice unless it ended cleanly."""
        node.ranks.pop((rank.task, rank.global_rank), None)
        self.after(
            self.random.uniform(0.0, 0.05),
            lambda: self.observe(
                node,
                RankExited(
                    **_who(rank),
                    pid=rank.pid,
                    exit_code=exit_code,
                    signal=number,
                    is_expected=is_expected,
                ),
            ),
        )
        if exit_code != 0 and not is_expected:
            self.fail_peers(rank)

    def fail_peers(self, rank: FakeRank) -> None:
        """Have the rank's peers report a failed collective."""
        for node, peer in self._ranks(rank.task, rank.generation):
            if peer.global_rank != rank.global_rank:
                self.after(
                    self.random.uniform(0.0, 0.1),
                    partial(self._fail_collective, node, peer),
                )

    def _fail_collective(self, node: FakeNode, rank: FakeRank) -> None:
        if node.ranks.get((rank.task, rank.global_rank)) is rank:
            self.observe(
                node,
                RankRaised(
                    **_who(rank),
                    exception_type="RuntimeError",
                    message="Connection closed by peer",
                    traceback="",
                    is_in_collective=True,
                    iteration=rank.iteration,
                ),
            )

    def _stop(self, instruction: StopRanks, node: FakeNode) -> None:
        if not (node.is_up and node.is_visible):
            return
        if instruction.is_graceful:
            self.tasks[instruction.task].stopping = instruction.generation
        else:
            node.stopped[instruction.task] = instruction.generation
            for rank in list(node.ranks.values()):
                if rank.task == instruction.task and rank.generation <= instruction.generation:
                    self.end_rank(node, rank, number=9, is_expected=True)
        self.post(StopCarriedOut(node.name, instruction.task, instruction.generation))

    # --- faults --------------------------------------------------------------------------

    def rank(self, task: str, global_rank: int) -> tuple[FakeNode, FakeRank]:
        """Return the living rank and its node."""
        for node in self.nodes.values():
            rank = node.ranks.get((TaskId(task), global_rank))
            if rank and node.is_up:
                return node, rank
        raise LookupError(f"{task} has no rank {global_rank}")

    def kill_rank(self, task: str, global_rank: int) -> None:
        """SIGKILL a rank."""
        node, rank = self.rank(task, global_rank)
        self.end_rank(node, rank, number=9)

    def raise_in_rank(self, task: str, global_rank: int) -> None:
        """Have a rank raise an exception of its own; it then waits for the verdict."""
        node, rank = self.rank(task, global_rank)
        self.observe(
            node,
            RankRaised(
                **_who(rank),
                exception_type="ValueError",
                message="bad batch",
                traceback="Traceback ...",
                is_in_collective=False,
                iteration=rank.iteration,
            ),
        )
        self.fail_peers(rank)

    def lose_node(self, name: str, *, is_silent: bool = False) -> None:
        """Take the power from a node; a silent one resets no connection."""
        node = self.nodes[NodeId(name)]
        node.is_up, node.is_silent = False, is_silent
        victims, node.ranks = list(node.ranks.values()), {}
        for rank in victims:
            self.fail_peers(rank)
        last_heard_at, agent = self.now, node.agent

        def notice() -> None:
            if node.agent == agent:
                self._end_session(node, last_heard_at, "connection lost")

        self.after(3.0 if is_silent else 0.01, notice)

    def _end_session(self, node: FakeNode, last_heard_at: float, reason: str) -> None:
        if node.has_session:
            node.has_session = False
            self.post(ContactLost(node.name, last_heard_at, reason))

    def cut(self, name: str, for_s: float) -> None:
        """Break the connection to a node for a while; the node goes on."""
        node = self.nodes[NodeId(name)]
        node.is_visible = False
        self._end_session(node, self.now, "connection reset")

        def restore() -> None:
            node.is_visible = True
            if not node.is_up:
                return
            if not node.has_session:
                self._attach(node)

        self.after(for_s, restore)

    def kill_agent(self, name: str) -> None:
        """Kill the agent; another one adopts the ranks a second later."""
        self.nodes[NodeId(name)].agent += 1
        self.cut(name, 1.0)

    def restore_node(self, name: str) -> None:
        """Bring a lost node back, empty."""
        node = self.nodes[NodeId(name)]
        self._end_session(node, self.now, "connection lost")
        node.held.clear()
        node.is_up = True
        node.agent += 1
        self._attach(node)


class Who(TypedDict):
    """What every observation of a rank begins with."""

    task: TaskId
    generation: Generation
    global_rank: int


def _who(rank: FakeRank) -> Who:
    return {"task": rank.task, "generation": rank.generation, "global_rank": rank.global_rank}
