"""A make-believe cluster under a virtual clock, for the core: instructions in, events out.

It does to the machine what real nodes do: starts take a moment, ranks commit iterations, park and
go on (``tests.fakes.world_training``), some of a dead rank's peers report failed collectives, a
lost node says nothing. Nothing sleeps; time jumps from one thing to the next. The order of things
that happen at the same instant is drawn from a seed.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypedDict

from controller.core.events import (
    ContactLost,
    ControllerStarted,
    Event,
    EventBody,
    HaltCarriedOut,
    NodeAttached,
    Observed,
    PeerProbed,
    StopCarriedOut,
    TaskAdded,
    TaskSubmitted,
    TimerFired,
)
from controller.core.heartbeats.heartbeat_watch import HeartbeatWatch
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
from controller.core.membership.file_changes import changes
from controller.core.nodes.bursts import SILENT_S
from controller.core.rules.node_loss import ProbeOutcome
from controller.core.rules.placement import Worker
from controller.core.rules.regroup.copy_holders import copy_holders
from controller.core.state.phases import NodeCondition
from controller.core.timers import JoinOverdue, Timer
from controller.store.replay import replay
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import AgentId, Generation, NodeId, TaskId
from nodeagent.protocol.messages import Heartbeat
from nodeagent.protocol.observations import (
    IterationCommitted,
    LaunchFailed,
    RankDone,
    RankExited,
    RankHalted,
    RankInspected,
    RankJoined,
    RankObservation,
    RankRaised,
    RankStarted,
)
from nodeagent.protocol.orders import HaltOrder
from nodeagent.protocol.rank_status import RankStatus
from nodeagent.protocol.regroup import RankRef
from nodeagent.protocol.standing import Standing, Where
from profiles.layout import Layout
from tests.fakes.clusters import wanted_of
from tests.fakes.polling import PolledT
from tests.fakes.world_training import ITERATION_S, FakeRank, Run, loss_of

HEARTBEAT_S = 1.0
START_S = 0.2
TAKE_OVER_S = 0.02
FORM_S = 0.04
PREPARE_S = 1.5
MEASURED_END_S = 1.5


@dataclass
class FakeNode:
    """A node: its ranks, its agent, and whether the controller can see it."""

    name: NodeId
    is_up: bool = True
    is_silent: bool = False
    """Down without a word: its port refuses nobody, it says nothing."""
    is_visible: bool = True
    is_linked: bool = True
    """Whether it belongs to the cluster, so that the controller wants contact."""
    has_session: bool = False
    agent: int = 1
    seq: int = 0
    ranks: dict[int, FakeRank] = field(default_factory=dict)
    """Living processes by pid."""
    held: list[EventBody] = field(default_factory=list)
    stopped: dict[TaskId, Generation] = field(default_factory=dict)
    """Generations that were ended: what is started late of them is not started."""
    started: set[tuple[TaskId, Generation, int]] = field(default_factory=set)
    """Ranks that have had a process here, or were told to get none: none is started twice."""
    fence: dict[TaskId, Generation] = field(default_factory=dict)
    """Newest generation that was asked to start; an older one is refused."""
    halts: dict[TaskId, HaltOrder] = field(default_factory=dict)
    """The newest halt: ranks that come later are told too."""


@dataclass
class FakeTask:
    """What outlives generations: the newest checkpoint on disk."""

    checkpoint: int = 0
    stopping: Generation | None = None


class World:
    """Runs a machine against the make-believe cluster."""

    has_controller = True
    copies_arrive = True
    """Whether copies that a pause waits for get complete."""
    copies_take_s = 0.0
    """How long a pause waits for them."""
    can_probe = True
    """Whether peers can look at each other's SSH ports."""
    is_ssh_closed = False
    """Whether the ports are silent to peers although the nodes live."""
    checkpoint_interval = 5
    _term = 0
    agent_start_s = 0.1
    """How long the agent of a node that is added takes to start."""

    def __init__(
        self,
        machine: Machine,
        seed: int = 0,
        num_iterations: int = 40,
        *,
        absent: Collection[str] = (),
    ) -> None:
        self.machine = machine
        self.random = random.Random(seed)
        self.now = 0.0
        self.events: list[Event] = []
        self.announcements: list[tuple[float, Announce]] = []
        self.answers: list[AnswerRequest] = []
        self.drills: list[CarryOutDrill] = []
        self.num_iterations = num_iterations
        self.nodes = {name: FakeNode(name) for name in machine.state.nodes}
        self.tasks = {name: FakeTask() for name in machine.state.tasks}
        self.records: list[RecordIterations] = []
        self.runs: dict[tuple[TaskId, Generation], Run] = {}
        self.starts: list[tuple[float, StartRanks]] = []
        self.ended: set[tuple[TaskId, Generation]] = set()
        self.unsupported: dict[TaskId, tuple[str, ...]] = {}
        """What the ranks of a task say does not recover in process."""
        self.deaf: set[int] = set()
        """Processes that hang: they do not park."""
        self.lost_in_code: set[int] = set()
        """Deaf ones that compute for ever; the others are stopped by a signal."""
        self.dumb: set[int] = set()
        """Processes of which no agent says in time where they stand."""
        self.lingering: dict[int, bool] = {}
        """Deaf ones that have done all that they were to do and do not exit.

        Whether they say so.
        """
        self.failing_starts = dict[tuple[str, str], str]()
        """By task and node, the last words of processes that end with 1 as soon as they start."""
        self.iteration_s = ITERATION_S
        self.loss_factor = 1.0
        """What losses and gradient norms are multiplied by."""
        self.busy_s, self.waited_s = dict[int, float](), dict[int, float]()
        """By pid, how long a rank's own computing takes."""
        self._queue: list[tuple[float, float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._pids = itertools.count(1000)
        self._timers: dict[object, int] = {}
        self._begin_run()
        for node in self.nodes.values():
            node.is_up = node.name not in absent
            if node.is_up:
                self.after(0.1, partial(self._attach, node))
            self.after(1.0, partial(self._beat, node))

    # --- time --------------------------------------------------------------------------

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do ``action`` after ``delay_s``; equal times happen in an order drawn from the seed."""
        self._at(self.now + delay_s, self.random.random(), action)

    def _at(self, when: float, tie: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (when, tie, next(self._order), action))

    def run(self, until_s: float) -> None:
        """Let time pass up to ``until_s``."""
        while self._queue and self._queue[0][0] <= until_s:
            self.now, _, _, action = heapq.heappop(self._queue)
            action()
        self.now = until_s

    def run_until(self, condition: Callable[[], PolledT | None], limit_s: float = 600.0) -> PolledT:
        """Let time pass until ``condition`` returns a true value, and return that value."""
        end = self.now + limit_s
        while not (found := condition()):
            assert self._queue, "nothing happens any more"
            assert self._queue[0][0] <= end, f"not within {limit_s} s"
            self.now, _, _, action = heapq.heappop(self._queue)
            action()
        return found

    # --- events and instructions ---------------------------------------------------------

    def post(self, body: EventBody) -> None:
        """Give the machine an event and carry out what it wants; invariants are checked."""
        if not self.has_controller:
            return
        event = Event(number=len(self.events) + 1, at=self.now, body=body)
        self.events.append(event)
        self.machine.is_checked = True
        instructions = self.machine.handle(event)
        self.note_handled(event, instructions)
        for instruction in instructions:
            self._carry_out(instruction)

    def note_handled(self, event: Event, instructions: list[Instruction]) -> None:
        """An event was handled, and nothing is carried out yet; for subclasses."""

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case StartRanks():
                self._order_start(instruction)
            case PrepareSpares():
                for number, (worker, _) in instruction.spares.items():
                    begin = partial(self._prepare, instruction, number, worker)
                    self.after(START_S, begin)
            case HaltRanks():
                for name in instruction.nodes:
                    self.after(0.01, partial(self._halt, instruction, self.nodes[name]))
            case StopRanks():
                self._order_stop(instruction)
            case InspectRanks():
                self._order_inspection(instruction)
            case ProbeNode():
                for peer in instruction.by:
                    self._order_probe(instruction.node, peer)
            case SetTimer():
                self.timers_set.add(instruction.timer)
                self._set_timer(instruction.timer, instruction.after_s)
            case Announce():
                self._hear(instruction)
            case AnswerRequest() | CarryOutDrill() | RecordIterations():
                self._keep(instruction)
            case ConnectNode() | DisconnectNode():
                self._link(instruction)
            case DropRendezvous():
                pass

    def _link(self, instruction: ConnectNode | DisconnectNode) -> None:
        """Begin or end the contact with a node. One that was added after the start is there."""
        name = instruction.node
        if isinstance(instruction, DisconnectNode):
            node = self.nodes[name]
            node.is_linked = node.has_session = False
            node.held.clear()
            return
        if name in self.nodes:
            node = self.nodes[name]
            node.is_linked = True
            if not node.has_session and self.now > 0:
                self.after(0.1, partial(self._attach_once, node))
            return
        self.nodes[name] = node = FakeNode(name)
        self.after(self.agent_start_s, partial(self._attach_once, node))
        self.after(1.0, partial(self._beat, node))

    def _keep(self, instruction: AnswerRequest | CarryOutDrill | RecordIterations) -> None:
        """Keep for the test what the machine wants of its surroundings."""
        if isinstance(instruction, AnswerRequest):
            self.answers.append(instruction)
        elif isinstance(instruction, CarryOutDrill):
            self.drills.append(instruction)
        else:
            self.records.append(instruction)

    def _hear(self, announcement: Announce) -> None:
        """Keep it; whoever is named as the culprit of a stall does not go on."""
        self.announcements.append((self.now, announcement))
        if announcement.kind == "stall":
            culprits = str(dict(announcement.facts)["culprits"])
            for number in filter(None, culprits.split(", ")):
                with suppress(LookupError):  # it may have no process at all
                    _, rank = self.rank(announcement.source, int(number))
                    rank.is_faulty = True

    def _set_timer(self, timer: Timer, after_s: float) -> None:
        self._timers[timer] = stamp = next(self._order)

        def fire() -> None:
            if self._timers.get(timer) == stamp:
                self.post(TimerFired(timer))

        # Timers of nodes that are still to come are set before all else: they take no number.
        tie = 0.5 if isinstance(timer, JoinOverdue) else self.random.random()
        self._at(self.now + after_s, tie, fire)

    # --- nodes ---------------------------------------------------------------------------

    def _attach(self, node: FakeNode) -> None:
        if node.is_up and node.is_visible and node.is_linked:
            statuses = self.statuses(node)
            node.has_session = True
            self.heartbeats.begin_session(node.name, statuses, self.now)
            self.post(NodeAttached(node.name, AgentId(f"{node.name}-{node.agent}"), 1, statuses))
            held, node.held = node.held, []
            for body in held:
                self.post(body)

    def statuses(self, node: FakeNode) -> tuple[RankStatus, ...]:
        """Return what the node's agent lists."""
        return tuple(
            RankStatus(
                task=rank.task,
                generation=rank.generation,
                global_rank=rank.global_rank,
                worker=rank.worker,
                pid=rank.pid,
                iteration=rank.iteration,
                busy_s=self.busy_s.get(rank.pid, 0.2),
                busy_spread_s=0.01,
                waited_s=self.waited_s.get(rank.pid, 0.0),
            )
            for rank in node.ranks.values()
        )

    def beat(self, name: str) -> None:
        """Let a node's agent give its sign of life now."""
        node = self.nodes[NodeId(name)]
        if node.is_up and node.is_visible and node.is_linked:
            statuses = self.statuses(node)
            self.take_beat(node.name, statuses)

    def take_beat(self, name: NodeId, statuses: Sequence[RankStatus]) -> None:
        """Do with a heartbeat what the controller does."""
        if not self.has_controller:
            return
        beat = Heartbeat(
            wall_s=self.now, rss_bytes=30_000_000, is_template_ready=True, ranks=list(statuses)
        )
        policy = self.machine.policy
        for change in self.heartbeats.take(name, beat, self.now, self.now, policy):
            self.post(change)

    def _beat(self, node: FakeNode) -> None:
        self.beat(node.name)
        self.after(HEARTBEAT_S, lambda: self._beat(node))

    def observe(self, node: FakeNode, observation: RankObservation | NodeFinding) -> None:
        """Report an observation; a node that is not attached keeps it until it is."""
        if not node.is_up:
            return
        node.seq += 1
        body = Observed(node.name, node.seq, self.now, observation)
        if node.has_session:
            if isinstance(observation, RankHalted | RankRaised):
                _rank_of(node, observation).has_told = True
            self.post(body)
        else:
            node.held.append(body)

    def _order_probe(self, target: NodeId, peer: NodeId) -> None:
        is_trial = self.machine.state.nodes[target].contact.condition is NodeCondition.HEALTHY
        # A trial among nodes in contact takes no number from the seed.
        tie = 0.5 if is_trial else self.random.random()
        self._at(self.now + 0.02, tie, partial(self._probe, target, peer))

    def _probe(self, target: NodeId, peer: NodeId) -> None:
        if self.can_probe and self.nodes[peer].is_up and self.nodes[peer].is_visible:
            node = self.nodes[target]
            down: ProbeOutcome = "silent" if node.is_silent else "refused"
            up: ProbeOutcome = "silent" if self.is_ssh_closed else "answered"
            self.post(PeerProbed(target, peer, up if node.is_up else down))
        else:
            self.post(PeerProbed(target, peer, None))

    # --- ranks ---------------------------------------------------------------------------

    def _order_start(self, instruction: StartRanks) -> None:
        self.starts.append((self.now, instruction))
        key = instruction.task, instruction.generation
        self.tasks.setdefault(instruction.task, FakeTask())
        if instruction.measures is not None:
            self.tasks[instruction.task] = FakeTask()  # nothing is left of the one before
        elif key not in self.runs:
            self._check_survivors(instruction)
        spec = self.machine.state.tasks[instruction.measures or instruction.task].spec
        layout, placement = instruction.layout, instruction.placement
        holders = copy_holders(layout, placement, is_sharded=spec.is_sharded)
        run = Run(
            *key,
            layout,
            instruction.resume,
            spec.num_micro_batches,
            holders=holders if spec.makes_copies else (),
            is_sharded=spec.is_sharded,
        )
        self.runs.setdefault(key, run)
        by_node: dict[NodeId, list[int]] = {}
        for number in instruction.global_ranks:
            by_node.setdefault(instruction.placement[number].node, []).append(number)
        for number, reserve in instruction.parked_spares.items():
            by_node.setdefault(reserve.worker.node, []).append(number)
        for name, numbers in by_node.items():
            self.after(0.01, partial(self._take_start, instruction, self.nodes[name], numbers))

    def _was_added_again(self, name: TaskId) -> bool:
        bodies = [each.body for each in self.events]
        submitted = (body for body in bodies if isinstance(body, TaskSubmitted))
        if any(spec.task == name for body in submitted for spec in body.specs):
            return True
        added = [body for body in bodies if isinstance(body, TaskAdded)]
        return sum(body.spec.task == name for body in added) > 1

    def _check_survivors(self, start: StartRanks) -> None:
        """Every process that can go on at its place does, and the machine knows it by its pid."""
        known = self.machine.state.tasks[start.task].ranks
        old = self.runs.get((start.task, Generation(start.generation - 1)))
        assert start.generation == 1 or old or self._was_added_again(start.task), (
            "a generation was left out"
        )
        number_by_worker = {worker: number for number, worker in enumerate(start.placement)}
        for node, rank in self._ranks(start.task, Generation(start.generation - 1)):
            if start.task in self.unsupported:
                assert not start.continues
                continue
            number = number_by_worker.get(Worker(node.name, rank.worker))
            ref = RankRef(generation=rank.generation, global_rank=rank.global_rank)
            if number is not None and start.continues.get(number) == ref:
                assert rank.is_parked
                assert known[number].pid == rank.pid
            elif self._is_blamed(rank):
                continue  # trying again in the same processes had not helped
            elif (start.task, rank.generation) in self.ended:
                continue  # a plan stopped the task while the node was out of sight
            elif number is not None and old and rank.has_told and not rank.is_faulty:
                is_seen = (
                    self.machine.state.nodes[node.name].contact.condition is NodeCondition.HEALTHY
                )
                assert not is_seen or not _is_same_place(old.layout, rank, start.layout, number)

    def _is_blamed(self, rank: FakeRank) -> bool:
        """Return whether the machine replaces a process that has no fault."""
        return any(
            incident.cause.action == "restart"
            and incident.covers.get(rank.task) == rank.generation
            and (incident.cause.global_rank or 0) == rank.global_rank
            for incident in self.machine.state.incidents.all
        )

    def _take_start(self, instruction: StartRanks, node: FakeNode, numbers: list[int]) -> None:
        """The agent's part: raise the fence, end left-out processes, start the ranks."""
        task, generation = instruction.task, instruction.generation
        if not (node.is_up and node.is_visible) or generation < node.fence.get(task, 0):
            return
        node.fence[task] = generation
        parked_spares = instruction.parked_spares
        going_on = {
            *instruction.continues.values(),
            *(one.continues for one in parked_spares.values()),
        }
        for rank in list(node.ranks.values()):
            ref = RankRef(generation=rank.generation, global_rank=rank.global_rank)
            if rank.task == task and rank.generation < generation and ref not in going_on:
                self.end_rank(node, rank, number=9, is_expected=True)
        for number in numbers:
            ref_or_none = instruction.continues.get(number)
            if number in parked_spares:
                self._take_over(
                    instruction, node, number, parked_spares[number].continues, self._park
                )
            elif ref_or_none is not None:
                self._take_over(instruction, node, number, ref_or_none, self._arrive)
            else:
                worker = instruction.placement[number].slot
                begin = partial(self._fork, instruction, node, number, worker)
                self.after(START_S, begin)

    def _take_over(
        self,
        instruction: StartRanks,
        node: FakeNode,
        number: int,
        ref: RankRef,
        go_on: Callable[[FakeNode, FakeRank], None],
    ) -> None:
        task, generation = instruction.task, instruction.generation
        if (task, generation, number) in node.started:
            return
        node.started.add((task, generation, number))
        for rank in node.ranks.values():
            if (rank.task, rank.generation, rank.global_rank) == (task, *_pair(ref)):
                assert rank.is_parked or number in instruction.parked_spares, "it was not parked"
                rank.generation, rank.global_rank = generation, number
                rank.is_parked = rank.has_told = False
                self.after(TAKE_OVER_S, partial(go_on, node, rank))
                return
        self.observe(
            node,
            LaunchFailed(
                task=task, generation=generation, global_rank=number, reason="its process is gone"
            ),
        )

    def _fork(self, instruction: StartRanks, node: FakeNode, number: int, worker: int) -> None:
        task, generation = instruction.task, instruction.generation
        is_over = generation <= node.stopped.get(task, 0) or generation < node.fence.get(task, 0)
        if is_over or not node.is_up or (task, generation, number) in node.started:
            return
        node.started.add((task, generation, number))
        others = [each for each in node.ranks.values() if each.worker == worker]
        assert all(each.task == task for each in others), "two tasks on one worker"
        rank = FakeRank(task, generation, number, worker, next(self._pids))
        node.ranks[rank.pid] = rank
        self.observe(node, RankStarted(**_who(rank), pid=rank.pid, warm=True, start_s=0.05))
        words = self.failing_starts.get((task, node.name))
        if words is None:
            self._arrive(node, rank)
        else:
            self.end_rank(node, rank, exit_code=1, words=words)

    def _prepare(self, instruction: PrepareSpares, number: int, worker: Worker) -> None:
        """Start a process that builds its model and waits."""
        node, task, generation = self.nodes[worker.node], instruction.task, instruction.generation
        is_over = generation <= node.stopped.get(task, 0) or generation < node.fence.get(task, 0)
        if is_over or not (node.is_up and node.is_visible):
            return
        others = [each for each in node.ranks.values() if each.worker == worker.slot]
        assert all(each.task == task for each in others), "two tasks on one worker"
        rank = FakeRank(task, generation, number, worker.slot, next(self._pids))
        node.ranks[rank.pid] = rank
        self.observe(node, RankStarted(**_who(rank), pid=rank.pid, warm=True, start_s=0.05))

        def be_ready() -> None:
            # A rank that it has become meanwhile does not wait.
            if rank.generation == generation or not self._is_in_run(rank):
                self._park(node, rank)

        self.after(PREPARE_S, be_ready)

    def _arrive(self, node: FakeNode, rank: FakeRank) -> None:
        """A process is a rank of its generation now, unless that is halted or over."""
        if not rank.is_alive or rank.is_parked:
            return
        run = self.runs[rank.task, rank.generation]
        run.ranks[rank.global_rank] = rank
        halt = node.halts.get(rank.task)
        if halt and halt.generation == rank.generation and not halt.at_boundary:
            run.is_stalled = True
            self._park(node, rank)
        elif run.is_complete:
            self.after(FORM_S, partial(self._form, run))

    def _form(self, run: Run) -> None:
        if run.is_stalled or run.is_formed or not run.is_complete:
            return
        if not self.has_controller:
            self.after(FORM_S, partial(self._form, run))  # nobody answers what they ask
            return
        if any(rank.pid in self.deaf for rank in run.ranks.values()):
            return  # the others wait for it
        sources = run.form(self.tasks[run.task].checkpoint)
        self.tasks[run.task].stopping = None
        for number, rank in sorted(run.ranks.items()):
            joined = RankJoined(
                **_who(rank), iteration=rank.iteration, source=sources[number], form_s=FORM_S,
                state_s=0.01, unsupported=self.unsupported.get(run.task, ()),
            )  # fmt: skip
            self.observe(self._node_of(rank), joined)
        if run.committed >= self.num_iterations:
            self._finish(run, "finished")  # the last iteration was committed by its vote
        else:
            self._begin_iteration(run)

    def _node_of(self, rank: FakeRank) -> FakeNode:
        return next(node for node in self.nodes.values() if node.ranks.get(rank.pid) is rank)

    def _ranks(self, task: TaskId, generation: Generation) -> list[tuple[FakeNode, FakeRank]]:
        return [
            (node, rank)
            for node in self.nodes.values()
            if node.is_up
            for rank in node.ranks.values()
            if rank.task == task and rank.generation == generation
        ]

    def _begin_iteration(self, run: Run) -> None:
        run.begun_at = self.now
        self.after(self.iteration_s, partial(self._iterate, run))

    def _iterate(self, run: Run) -> None:
        if run.is_stalled:
            return
        assert run.is_complete
        task, iteration = self.tasks[run.task], run.finish_iteration()
        if iteration % self.checkpoint_interval == 0:
            task.checkpoint = max(task.checkpoint, iteration)
        self.observe(
            self._node_of(run.ranks[0]),
            IterationCommitted(
                **_who(run.ranks[0]),
                iteration=iteration,
                loss=loss_of(iteration) * self.loss_factor,
                duration_s=self.iteration_s,
                num_tokens=768,
                grad_norm=self.loss_factor,
            ),
        )
        is_finished = iteration >= self.num_iterations
        if is_finished or task.stopping == run.generation:
            task.checkpoint = max(task.checkpoint, iteration)
            self._finish(run, "finished" if is_finished else "stopped")
        elif run.wants_park:
            run.is_stalled = True
            if not run.completes_copies or not self.copies_arrive:
                run.lose_copies_under_way(self.random)
            if run.completes_copies and self.copies_take_s:
                self.after(self.copies_take_s, partial(self._park_all, run))
            else:
                self._park_all(run)
        else:
            self._begin_iteration(run)

    def _park_all(self, run: Run) -> None:
        for rank in run.ranks.values():
            self._park(self._node_of(rank), rank)

    def _finish(self, run: Run, reason: Literal["finished", "stopped"]) -> None:
        run.is_stalled = True
        if any(each.pid in self.deaf - self.lingering.keys() for each in run.ranks.values()):
            return  # nobody leaves before all is saved
        for node, rank in self._ranks(run.task, run.generation):
            rank.is_done = True
            if self.lingering.get(rank.pid, True):
                self.observe(node, RankDone(**_who(rank), iteration=rank.iteration, reason=reason))
            if rank.pid in self.lingering:
                continue
            self.end_rank(node, rank, exit_code=0)

    def _halt(self, instruction: HaltRanks, node: FakeNode) -> None:
        if not (node.is_up and node.is_visible):
            return
        node.halts[instruction.order.task] = instruction.order
        self.post(HaltCarriedOut(node.name, instruction.order.task, instruction.order.generation))
        run = self.runs[instruction.order.task, instruction.order.generation]
        if instruction.order.at_boundary:
            run.wants_park = True
            run.completes_copies |= instruction.order.completes_copies
            return
        broken = [run.ranks[number] for number in instruction.order.broken if number in run.ranks]
        run.stall(self.now, self.random, broken)
        for rank in list(node.ranks.values()):
            if (rank.task, rank.generation) == (run.task, run.generation):
                self._park(node, rank)

    def _order_inspection(self, instruction: InspectRanks) -> None:
        for name in instruction.nodes:
            self.after(0.01, partial(self._inspect, instruction, self.nodes[name]))

    def _inspect(self, instruction: InspectRanks, node: FakeNode) -> None:
        """The agent's part: a deaf rank is stopped by a signal, the others wait for it."""
        if not (node.is_up and node.is_visible):
            return
        for rank in list(node.ranks.values()):
            if (rank.task, rank.generation) != (
                instruction.order.task,
                instruction.order.generation,
            ):
                continue
            if rank.pid in self.dumb:
                continue
            is_deaf = rank.pid in self.deaf
            where: Where = "stopped" if is_deaf else "collective"
            standing = Standing(
                where="computing" if rank.pid in self.lost_in_code else where,
                place="load (program.py:7)",
                collective="" if is_deaf else "the reduction",
                iteration=rank.iteration + 1,
                phase=rank.phase,
                num_micro_batches=len(rank.counted),
                source="kernel" if is_deaf else "rank",
                stack="" if is_deaf else f"reduce (rank {rank.global_rank})",
            )
            self.observe(node, RankInspected(**_who(rank), pid=rank.pid, standing=standing))

    def _park(self, node: FakeNode, rank: FakeRank) -> None:
        """Have a rank park and say so a moment later; one that has raised waits already."""
        if rank.is_parked or rank.is_done or rank.pid in self.deaf:
            return
        rank.is_parked = True
        who, position = _who(rank), rank.position

        def tell() -> None:
            if rank.is_alive:
                reasons = self.unsupported.get(rank.task, ())
                self.observe(node, RankHalted(**who, position=position, unsupported=reasons))

        self.after(self.random.uniform(0.0, 0.05), tell)

    def end_rank(
        self,
        node: FakeNode,
        rank: FakeRank,
        *,
        exit_code: int | None = None,
        number: int | None = None,
        is_expected: bool = False,
        words: str = "",
    ) -> None:
        """End a rank's process; its peers notice unless it ended cleanly."""
        node.ranks.pop(rank.pid, None)
        rank.is_alive = False
        exited = RankExited(
            **_who(rank), pid=rank.pid, exit_code=exit_code, signal=number, is_expected=is_expected,
            stderr_tail=words, log=f"/{node.name}/{rank.task}.{rank.generation}.{rank.global_rank}.log",
        )  # fmt: skip
        self.after(self.random.uniform(0.0, 0.05), lambda: self.observe(node, exited))
        if exit_code != 0:
            self.fail_peers(rank)

    def fail_peers(self, rank: FakeRank) -> None:
        """Freeze the rank's generation, and have some of its peers report a failed collective."""
        run = self.runs.get((rank.task, rank.generation))
        if run is None or run.ranks.get(rank.global_rank) is not rank:
            return
        was_formed = run.is_formed and not run.is_stalled
        run.stall(self.now, self.random, [rank])
        for node, peer in self._ranks(rank.task, rank.generation):
            if peer is not rank and was_formed and self.random.random() < 0.6:
                self.after(
                    self.random.uniform(0.0, 0.1),
                    partial(self._fail_collective, node, peer, rank.generation),
                )

    def _fail_collective(self, node: FakeNode, rank: FakeRank, generation: Generation) -> None:
        if rank.pid in self.deaf:
            return
        if rank.is_alive and not rank.is_parked and rank.generation == generation:
            rank.is_parked = True
            self._raise(node, rank, "RuntimeError", "Connection closed by peer", is_own=False)

    def _raise(
        self, node: FakeNode, rank: FakeRank, kind: str, message: str, *, is_own: bool
    ) -> None:
        self.observe(
            node,
            RankRaised(
                **_who(rank),
                exception_type=kind,
                message=message,
                traceback="Traceback ...",
                is_in_collective=not is_own,
                iteration=rank.iteration,
                position=rank.position,
            ),
        )

    def _order_stop(self, instruction: StopRanks) -> None:
        if not instruction.order.only:
            self.ended.add((instruction.order.task, instruction.order.generation))
        for name in instruction.nodes:
            self.after(0.02, partial(self._stop, instruction, self.nodes[name]))

    def _stop(self, instruction: StopRanks, node: FakeNode) -> None:
        if not (node.is_up and node.is_visible):
            return
        if instruction.order.only:
            for rank in list(node.ranks.values()):
                is_meant = rank.global_rank in instruction.order.only
                if is_meant and rank.generation == instruction.order.generation:
                    is_over = rank.is_done or not self._is_in_run(rank)
                    assert rank.task != instruction.order.task or is_over
                    if rank.task == instruction.order.task:
                        self.end_rank(node, rank, number=9)
        elif instruction.order.is_graceful:
            self.tasks.setdefault(
                instruction.order.task, FakeTask()
            ).stopping = instruction.order.generation
        else:
            stopped = node.stopped.get(instruction.order.task, instruction.order.generation)
            node.stopped[instruction.order.task] = max(stopped, instruction.order.generation)
            for rank in list(node.ranks.values()):
                if (
                    rank.task == instruction.order.task
                    and rank.generation <= instruction.order.generation
                ):
                    self._kill(node, rank)
        self.post(StopCarriedOut(node.name, instruction.order.task, instruction.order.generation))

    def _kill(self, node: FakeNode, rank: FakeRank) -> None:
        """End a rank's process; one that is measured takes its time, as one on a GPU does."""

        def die() -> None:
            if rank.is_alive:
                self.end_rank(node, rank, number=9, is_expected=True)

        if rank.task in self.machine.state.tasks:
            self.end_rank(node, rank, number=9, is_expected=True)
        else:
            self.after(MEASURED_END_S, die)

    def _is_in_run(self, rank: FakeRank) -> bool:
        run = self.runs.get((rank.task, rank.generation))
        return run is not None and run.ranks.get(rank.global_rank) is rank

    # --- faults --------------------------------------------------------------------------

    def rank(self, task: str, global_rank: int) -> tuple[FakeNode, FakeRank]:
        """Return the living rank of the newest generation, and its node."""
        found = [
            (node, rank)
            for node in self.nodes.values()
            if node.is_up
            for rank in node.ranks.values()
            if (rank.task, rank.global_rank) == (task, global_rank)
        ]
        if not found:
            raise LookupError(f"{task} has no rank {global_rank}")
        return max(found, key=lambda pair: pair[1].generation)

    def kill_rank(self, task: str, global_rank: int) -> None:
        """SIGKILL a rank."""
        node, rank = self.rank(task, global_rank)
        self.end_rank(node, rank, number=9)

    def raise_in_rank(
        self,
        task: str,
        global_rank: int,
        kind: str = "ValueError",
        message: str = "bad batch",
        *,
        is_lasting: bool = True,
    ) -> None:
        """Have a rank raise an exception of its own; it then waits for the verdict.

        One that is not lasting leaves the process fit for another try.
        """
        node, rank = self.rank(task, global_rank)
        if rank.is_parked:
            return
        self.fail_peers(rank)
        rank.is_parked = True
        rank.is_faulty = is_lasting
        self._raise(node, rank, kind, message, is_own=True)

    def find(self, name: str, finding: NodeFinding) -> None:
        """Let a probe of a node report."""
        self.observe(self.nodes[NodeId(name)], finding)

    def vanish(self, name: str) -> None:
        """Let the ranks of a node be gone without a word, as after a restart of the machine."""
        node = self.nodes[NodeId(name)]
        victims, node.ranks = list(node.ranks.values()), {}
        for rank in victims:
            rank.is_alive = False
        for rank in filter(self._is_in_run, victims):
            self.runs[rank.task, rank.generation].stall(self.now, self.random, [rank])

    def hang_rank(self, task: str, global_rank: int) -> None:
        """Have a rank stand still, deaf to everything; its peers wait, and one gives up."""
        pid = self.deafen(task, global_rank)
        _, rank = self.rank(task, global_rank)
        run = self.runs[rank.task, rank.generation]
        run.stall(self.now, self.random, [rank])
        peers = [pair for pair in self._ranks(rank.task, rank.generation) if pair[1].pid != pid]
        for node, peer in peers[:1]:
            self.after(2.0, partial(self._fail_collective, node, peer, rank.generation))

    def lose_message(self, task: str, global_rank: int = 0) -> None:
        """Have all ranks of a task wait in a collective that never ends, if they are in any."""
        _, rank = self.rank(task, global_rank)
        run = self.runs.get((rank.task, rank.generation))
        if run is None or not run.is_formed or run.is_stalled:
            return
        run.stall(self.now, self.random, [])
        for each in run.ranks.values():
            each.phase = "reduce"

    def fail_collective(self, task: str, global_rank: int) -> None:
        """Have one rank report a failed collective that nothing explains."""
        node, rank = self.rank(task, global_rank)
        self.runs[rank.task, rank.generation].stall(self.now, self.random, [])
        self._fail_collective(node, rank, rank.generation)

    def park_now(self, task: str, global_rank: int) -> None:
        """Have a rank park that was too busy to when it was told."""
        self._park(*self.rank(task, global_rank))

    def deafen(self, task: str, global_rank: int) -> int:
        """Have a rank hang: it goes on with nothing, and does not park. Return its pid."""
        _, rank = self.rank(task, global_rank)
        self.deaf.add(rank.pid)
        return rank.pid

    def lose_node(self, name: str, *, is_silent: bool = False) -> None:
        """Take the power from a node; a silent one resets no connection."""
        node = self.nodes[NodeId(name)]
        node.is_up, node.is_silent = False, is_silent
        victims, node.ranks = list(node.ranks.values()), {}
        for rank in victims:
            rank.is_alive = False
        for rank in victims:
            self.fail_peers(rank)
        last_message_at, agent = self.now, node.agent

        def notice() -> None:
            if node.agent == agent:
                self._end_session(node, last_message_at, "connection lost")

        def fall_silent() -> None:
            if node.agent == agent and node.has_session and self.has_controller:
                for change in self.heartbeats.take_silence(node.name, last_message_at):
                    self.post(change)

        if is_silent:
            self.after(SILENT_S, fall_silent)
        self.after(3.0 if is_silent else 0.01, notice)

    def _end_session(self, node: FakeNode, last_message_at: float, reason: str) -> None:
        if node.has_session:
            node.has_session = False
            self.post(ContactLost(node.name, last_message_at, reason))

    def cut(self, name: str, for_s: float) -> None:
        """Break the connection to a node for a while; the node goes on."""
        node = self.nodes[NodeId(name)]
        node.is_visible = False
        self._end_session(node, self.now, "connection reset")

        def restore() -> None:
            node.is_visible = self.has_controller
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
        node.fence.clear()
        node.stopped.clear()
        node.started.clear()
        node.halts.clear()
        node.is_up = True
        node.agent += 1
        self._attach(node)

    def kill_controller(self, for_s: float, attach_s: float = 0.5) -> None:
        """Kill the controller; after a while the next one has its files, and nothing else.

        Its agents attach within ``attach_s`` then, in any order.
        """
        self.has_controller = False
        self._timers.clear()
        for node in self.nodes.values():
            node.is_visible = node.has_session = False
        self.after(for_s, partial(self._start_controller, attach_s))

    def _start_controller(self, attach_s: float) -> None:
        state = self.machine.state
        self.machine = Machine()
        self.heartbeats = HeartbeatWatch(self.machine.state)
        replayed = replay(self.machine, self.events)
        assert self.machine.state == state
        for timer, after_s in replayed.timers.items():
            self._set_timer(timer, after_s)
        self.has_controller = True
        self._begin_term()
        for node in self.nodes.values():
            node.is_visible = True
            self.after(self.random.uniform(0.0, attach_s), partial(self._attach_once, node))

    def _begin_run(self) -> None:
        """Begin with an empty machine, which events tell what it was made of, as a controller does.

        So the events alone rebuild its state.
        """
        self.timers_set: set[Timer] = set()  # every timer that was ever set
        wanted = wanted_of(self.machine)
        vars(self.machine).update(vars(Machine()))
        self.heartbeats = HeartbeatWatch(self.machine.state)
        self._begin_term()
        for body in changes(wanted, self.machine.state, self.machine.policy):
            self.post(body)

    def _begin_term(self) -> None:
        """Tell the machine that a controller begins its work."""
        self._term += 1
        self.post(ControllerStarted("run", self._term, 0.0))

    def _attach_once(self, node: FakeNode) -> None:
        if not node.has_session:
            self._attach(node)


class Who(TypedDict):
    """What every observation of a rank begins with."""

    task: TaskId
    generation: Generation
    global_rank: int


def _who(rank: FakeRank) -> Who:
    return {"task": rank.task, "generation": rank.generation, "global_rank": rank.global_rank}


def _rank_of(node: FakeNode, observation: RankObservation) -> FakeRank:
    """Return the living rank that reports ``observation``."""
    who = observation.task, observation.generation, observation.global_rank
    return next(
        rank
        for rank in node.ranks.values()
        if (rank.task, rank.generation, rank.global_rank) == who
    )


def _is_same_place(old: Layout, rank: FakeRank, new: Layout, number: int) -> bool:
    """Whether the rank's process would have the same part of the model as rank ``number``."""
    was = old.tp, old.pp, old.tp_rank(rank.global_rank), old.pp_rank(rank.global_rank)
    return was == (new.tp, new.pp, new.tp_rank(number), new.pp_rank(number))


def _pair(ref: RankRef) -> tuple[Generation, int]:
    return ref.generation, ref.global_rank
