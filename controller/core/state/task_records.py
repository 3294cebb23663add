"""The records of a task about its place, its phase and its processes.

What it has been through is in ``task_history``. A record's fields are assigned by its own methods
alone; everybody may read them. ``tests/unit/core/test_own_writes.py`` holds the rule.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from controller.core.rules.placement import Placement, Worker
from controller.core.rules.regroup.replicas import ModelPart
from controller.core.specs import TaskSpec
from controller.core.state.phases import TASK_CHANGES, TaskPhase, advance
from controller.core.state.rank import RankState
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from profiles.layout import Layout

Intent = Literal["run", "stop", "hold", "remove"]
"""What becomes of a task once its ranks are gone.

It waits to run, stays stopped, is held, or is finished because it was removed.
"""


@dataclass(frozen=True)
class Target:
    """Where a task is to run next."""

    layout: Layout
    placement: Placement

    @cached_property
    def ranks(self) -> dict[Worker, int]:
        """The rank at each worker."""
        return {worker: rank for rank, worker in enumerate(self.placement)}

    @cached_property
    def nodes(self) -> frozenset[NodeId]:
        """The nodes that it uses."""
        return frozenset(worker.node for worker in self.placement)

    def uses(self, node: NodeId) -> bool:
        """Return whether a rank is to run on ``node``."""
        return node in self.nodes

    def uses_any(self, nodes: Collection[NodeId]) -> bool:
        """Return whether a rank is to run on one of these nodes."""
        fewer, more = sorted((self.nodes, nodes), key=len)
        return any(node in more for node in fewer)


@dataclass(slots=True)
class Parking:
    """The parked, or parking, generation of a task."""

    since: float
    at_boundary: bool
    broken: tuple[int, ...]
    """Ranks that are lost or can't continue, as last sent to the nodes."""
    completes_copies: bool = False
    """Whether ranks park with complete in-memory checkpoints: not all state stays at the target."""
    left: set[int] = field(default_factory=set)
    """Parked ranks that other ranks of their replica no longer wait for."""
    answered_nodes: set[NodeId] = field(default_factory=set)
    """Nodes that have sent a message since they last lost a rank: these nodes live."""
    is_settled: bool = False
    """Enough time has passed for a message from each node that lost a rank."""
    parked_at: float | None = None
    """When all ranks had reported their positions."""
    waits_for_capacity: bool = False
    is_impatient: bool = False
    """It has waited for workers of other tasks for long enough."""

    def spread(self, broken: tuple[int, ...], *, at_boundary: bool) -> None:
        """More ranks are broken, or the ranks are not to reach a boundary any more."""
        self.broken, self.at_boundary = broken, self.at_boundary and at_boundary

    def leave(self, ranks: Iterable[int]) -> None:
        """The replica peers of these parked ranks are woken: they no longer wait for them."""
        self.left.update(ranks)

    def note_answer(self, node: NodeId) -> None:
        """The node has said something that it says only while it lives."""
        self.answered_nodes.add(node)

    def note_loss(self, node: NodeId) -> None:
        """A rank is gone: its node may be dying too, until its agent answers."""
        self.answered_nodes.discard(node)

    def settle_doubts(self) -> None:
        """Time enough has passed for messages from the nodes that lost a rank."""
        self.is_settled = True

    def note_parked(self, at: float) -> None:
        """All ranks have reported their positions: what follows is no part of parking."""
        self.parked_at = at if self.parked_at is None else self.parked_at

    def await_capacity(self) -> None:
        """It waits for workers of other tasks."""
        self.waits_for_capacity = True

    def lose_patience(self) -> None:
        """The time to wait for workers of other tasks is over."""
        self.is_impatient = True

    def restart_clock(self, at: float) -> None:
        """A new controller begins: the time in which none was there is no part of parking."""
        self.since, self.parked_at = at, None


@dataclass(slots=True)
class Lifecycle:
    """The phase of a task.

    A change that the table in ``state.phases`` does not allow is a bug of the core: every method
    that changes the phase raises ``InvariantViolationError`` then.
    """

    task: TaskId
    """Whose it is, for the text of that error."""
    phase: TaskPhase = TaskPhase.WAITING
    note: str = ""
    """Why, for operators."""
    parking: Parking | None = None
    """Present exactly while the phase is PARKING."""

    def _change(self, phase: TaskPhase, note: str = "", parking: Parking | None = None) -> None:
        self.phase = advance(TASK_CHANGES, self.phase, phase, self.task)
        self.note, self.parking = note, parking

    def begin_starting(self) -> None:
        """The next generation begins."""
        self._change(TaskPhase.STARTING)

    def begin_training(self, note: str = "") -> None:
        """The generation is known to train."""
        self._change(TaskPhase.RUNNING, note)

    def begin_parking(self, parking: Parking, note: str) -> None:
        """The ranks are ordered to park."""
        self._change(TaskPhase.PARKING, note, parking)

    def begin_stopping(self, note: str) -> None:
        """The ranks are ordered to end."""
        self._change(TaskPhase.STOPPING, note)

    def finish(self) -> None:
        """The ranks have done all iterations, and are gone."""
        self._change(TaskPhase.FINISHED)

    def end_stopping(self, intent: Intent) -> None:
        """No rank of a stopping task is left. A stopped task keeps the reason for it."""
        why = self.note
        self._change(TaskPhase.WAITING)
        self.rest(intent)
        if self.phase is TaskPhase.STOPPED:
            self.note = why

    def rest(self, intent: Intent) -> None:
        """Put a task without ranks where its intent says."""
        resting = {
            "run": TaskPhase.WAITING,
            "stop": TaskPhase.STOPPED,
            "hold": TaskPhase.HELD,
            "remove": TaskPhase.FINISHED,
        }[intent]
        if self.phase is TaskPhase.FINISHED or self.phase is resting:
            return
        if self.phase is not TaskPhase.WAITING and resting is not TaskPhase.WAITING:
            self._change(TaskPhase.WAITING)
        self._change(resting)

    def await_plan(self, note: str) -> None:
        """A task without ranks is stopped until a plan gives it workers."""
        if self.phase is not TaskPhase.STOPPED:
            self._change(TaskPhase.STOPPED)
        self.note = note

    def explain(self, note: str) -> None:
        """Say why the phase lasts; empty if nothing keeps the task."""
        self.note = note

    def note_answer(self, node: NodeId) -> None:
        """The node of a rank lives, if the task parks: see ``Parking.note_answer``."""
        if self.parking:
            self.parking.note_answer(node)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A worker of a target that can't be used yet, or that another task's process holds."""

    target: Target
    worker: Worker
    holder: TaskId | None = None


@dataclass(slots=True)
class Assignment:
    """Where a task is to run, and where it continues meanwhile."""

    target: Target | None = None
    """Where it is to be; None until a plan decides, if the task has lost workers."""
    interim: Target | None = None
    """Where it continues meanwhile, with the ranks that it has left."""
    granted: Layout | None = None
    """What it was last given to run with; less may run where workers were lost since."""

    obstacle: Obstacle | None = None
    """What was last found to keep the task from a target."""

    def note_obstacle(self, obstacle: Obstacle | None) -> None:
        """This keeps the task from a target."""
        self.obstacle = obstacle

    def follow(self, target: Target | None) -> None:
        """The task is to run there, as a plan or its first size says; nowhere if that is None."""
        self.target, self.interim = target, None

    def can_move(self, layout: Layout | None) -> bool:
        """Return whether the task may start elsewhere with its ``layout``, without a plan.

        A plan that has given it another layout meanwhile comes first.
        """
        return self.target is not None and self.target.layout == layout

    def move(self, placement: Placement) -> None:
        """Have the task start elsewhere with the layout of its target."""
        assert self.target is not None
        self.follow(Target(self.target.layout, placement))

    def stay_at(self, place: Target | None) -> None:
        """The task is to run where it is."""
        self.target = place

    def lose_target(self) -> None:
        """The task can't run at its target: a plan has to say where it is to run."""
        self.target = None

    def withdraw_interim(self, is_out: Callable[[Target], bool]) -> None:
        """Give the interim place up if a part of it is out of service."""
        if self.interim is not None and is_out(self.interim):
            self.interim = None

    def settle_for(self, place: Target | None, fewest: int) -> Target | None:
        """Continue at ``place`` meanwhile, if that has enough workers; return it then."""
        if place is None or place.layout.num_workers < fewest:
            return None
        self.interim = place
        return place

    def arrive(self, place: Target) -> None:
        """A generation begins at ``place``; a smaller interim place grants nothing."""
        if place is self.target:
            self.granted, self.interim = place.layout, None


@dataclass(slots=True)
class Stopping:
    """The present stop of a task, or the newest."""

    intent: Intent = "run"
    is_graceful: bool = False
    since: float = 0.0
    took_s: float = 0.0
    """How long the newest stop took."""
    stopped_nodes: set[NodeId] = field(default_factory=set)
    """Nodes that have carried out the present stop; ranks that they do not list are gone."""

    def intend(self, intent: Intent) -> None:
        """Say what comes after the stop."""
        self.intent = intent

    def begin(self, *, is_graceful: bool) -> None:
        """The ranks are ordered to end, or to end at once after all."""
        self.is_graceful, self.stopped_nodes = is_graceful, set()

    def restart_clock(self, at: float) -> None:
        """The stop counts from now: it begins, or a new controller does."""
        self.since = at

    def note_stopped(self, node: NodeId) -> None:
        """A node has carried the stop out: ranks that it does not list from now on are gone."""
        self.stopped_nodes.add(node)

    def end(self, at: float) -> None:
        """No rank is left."""
        self.took_s = at - self.since


@dataclass(slots=True)
class Spares:
    """Processes that wait beside the generation, with their models, to be ranks again.

    Some were left out when their replica lost a rank. Others are started for the task's target.
    """

    ranks: dict[int, RankState] = field(default_factory=dict)
    """By number, beyond the ranks of the generation; with a position once they wait."""
    parts: dict[int, ModelPart] = field(default_factory=dict)
    """The part of the model that each has."""
    target: Target | None = None
    """What new ones were last started for."""
    is_over: bool = False
    """The time to prepare is over: the task waits for none of them."""
    next_number: int = 0
    """Number of the next process that prepares in this generation."""

    def prepare(self, target: Target, added: Mapping[int, tuple[Worker, ModelPart]]) -> None:
        """New processes, numbered from ``next_number``, are started for ``target``."""
        self.next_number += len(added)
        self.target, self.is_over = target, False
        for number, (worker, part) in added.items():
            self.ranks[number], self.parts[number] = RankState(worker), part

    def drop(self, numbers: Iterable[int], target: Target | None) -> None:
        """Forget spares; once none is left, new ones may be started for another ``target``."""
        for number in numbers:
            del self.ranks[number], self.parts[number]
        if not self.ranks and self.target != target:
            self.target, self.is_over = None, False

    def end_wait(self) -> None:
        """The time to prepare is over: spares that are not ready start with the generation."""
        self.is_over = True


@dataclass(slots=True)
class LeavingRanks:
    """Processes that are being ended, and the workers that they still occupy."""

    workers: dict[tuple[Generation, int], Worker] = field(default_factory=dict)
    """By generation and number, the worker that each process still occupies."""

    def begin(self, generation: Generation, workers: Mapping[int, Worker]) -> None:
        """Processes of a generation are ended: their workers are occupied until they are."""
        self.workers |= {(generation, number): worker for number, worker in workers.items()}

    def note_end(self, generation: Generation, number: int) -> None:
        """A process has ended, or was never launched: its worker is free."""
        self.workers.pop((generation, number), None)

    def forget_on(self, takes: Callable[[Worker], bool]) -> None:
        """The workers that ``takes`` names are lost with their processes."""
        self.workers = {key: worker for key, worker in self.workers.items() if not takes(worker)}

    def has_unlisted(
        self, task: TaskId, node: NodeId, listed: Collection[tuple[TaskId, Generation, int]]
    ) -> bool:
        """Return whether the node does not list a leaving process of ``task``."""
        return any(
            worker.node == node and (task, generation, number) not in listed
            for (generation, number), worker in self.workers.items()
        )

    def forget_unlisted(
        self, task: TaskId, node: NodeId, listed: Collection[tuple[TaskId, Generation, int]]
    ) -> None:
        """A leaving process of ``task`` that its node does not list is gone."""
        self.workers = {
            (generation, number): worker
            for (generation, number), worker in self.workers.items()
            if worker.node != node or (task, generation, number) in listed
        }


@dataclass(slots=True)
class TaskMembership:
    """Whether the task belongs to the cluster, and what it becomes."""

    is_removed: bool = False
    """Operators have removed it: its ranks are stopped, or gone."""
    is_rejoining: bool = False
    """It was added again while its ranks are being stopped."""
    next_spec: TaskSpec | None = None
    """What it becomes at its next start with new processes only."""
    program: str = ""
    """The program of its present processes."""

    def leave(self) -> None:
        """The task was removed from the cluster."""
        self.is_removed, self.next_spec = True, None

    def rejoin(self, spec: TaskSpec) -> None:
        """A removed task was added again, while its ranks are being stopped."""
        self.is_removed, self.is_rejoining, self.next_spec = False, True, spec

    def await_start(self, spec: TaskSpec | None) -> None:
        """Become ``spec`` at the next start with new processes only; None: nothing waits."""
        self.next_spec = spec

    def take_next_spec(self) -> TaskSpec | None:
        """Return what the task becomes now that it has no ranks; None if that is what it is."""
        following, self.next_spec, self.is_rejoining = self.next_spec, None, False
        return following

    def begin_program(self, program: str) -> None:
        """New processes run this program."""
        self.program = program
