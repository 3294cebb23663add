"""What the core remembers of a task: what it was given, its ranks, and where it is on its way.

Plain mutable records that only the core's own modules change, one event at a time. Derived facts
are properties, so that nothing has to be kept in step.
"""

from dataclasses import dataclass, field
from typing import Literal

from controller.core.rules.actions import Cure
from controller.core.rules.placement import Placement, Worker
from controller.core.rules.regroup.replicas import ModelPart
from controller.core.rules.transitions import Experience, Transition
from controller.core.state.phases import TASK_CHANGES, TaskPhase, advance
from controller.core.state.watch import Watch
from nodeagent.protocol.ids import NO_GENERATION, Generation, NodeId, TaskId
from nodeagent.protocol.observations import RankJoined
from nodeagent.protocol.regroup import Position, RankRef, Resume
from profiles.layout import Layout
from profiles.throughput import ThroughputTable

Intent = Literal["run", "stop", "hold"]
"""What becomes of a task once its ranks are gone: it waits to run, stays stopped, or is held."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task as the core needs it; how it trains is the runtime's business.

    Attributes:
        task: Name.
        weight: Priority; multiplies the throughput in the WAF.
        workers: Size at the start.
        min_workers: Smallest size that counts.
        table: T(t, x) with the layout of every size.
        flops_per_iteration: Model FLOPs of one global batch.
        num_iterations: Iterations after which the task is finished; None trains on.
        num_micro_batches: Micro-batches of the global batch.
        is_sharded: Whether the optimizer state is sharded over the replicas.
        makes_copies: Whether its ranks make in-memory checkpoints.
        is_command: Whether it is a program that knows nothing of us: it tells its iterations by its
            log at most, and starts anew after every fault.
        start_limit_s: A start must lead to an iteration within this; None leaves it to the policy.
        stop_limit_s: A graceful stop must end within this; None leaves it to the policy.
        hang_limit_s: An iteration that takes less is never overdue, whatever the others took.
        long_intervals: The iteration after a multiple of one of these does something else besides:
            it saves a checkpoint, or evaluates.
        has_floor: Whether its iterations are slowed down to be watched: they do not tell what it achieves.
    """

    task: TaskId
    weight: float
    workers: int
    min_workers: int
    table: ThroughputTable
    flops_per_iteration: float
    num_iterations: int | None
    num_micro_batches: int
    is_sharded: bool = False
    makes_copies: bool = True
    is_command: bool = False
    start_limit_s: float | None = None
    stop_limit_s: float | None = None
    hang_limit_s: float = 0.0
    long_intervals: tuple[int, ...] = ()
    has_floor: bool = False

    @property
    def smallest_size(self) -> int:
        """Fewest workers that it can use."""
        return min((x for x in self.table.sizes if x >= self.min_workers), default=self.min_workers)

    def is_long(self, iteration: int) -> bool:
        """Return whether an iteration does something else besides, and the others do not."""
        return iteration > 1 and any(
            interval > 1 and (iteration - 1) % interval == 0 for interval in self.long_intervals
        )


@dataclass(frozen=True, slots=True)
class SeenProgress:
    """How far a task was, and when that was seen."""

    iteration: int
    seen_at: float


@dataclass(slots=True)
class RankState:
    """One rank of the task's present generation."""

    worker: Worker
    is_alive: bool = True
    """Launched, and not known to be gone."""
    is_seen: bool = False
    """Its node has told of it, as a rank of this generation."""
    pid: int | None = None
    iteration: int = 0
    rss_bytes: int | None = None
    continues: RankRef | None = None
    """The parked rank whose process it goes on in; None for a process of its own."""
    joined: RankJoined | None = None
    position: Position | None = None
    """Where it has parked."""
    is_attached: bool = False
    """It is a command whose program has attached."""
    is_broken: bool = False
    """Its process can't go on: it raised an exception of its own, or does not answer."""
    missing_since: float | None = None
    """When its node's heartbeats stopped listing it, although no exit was reported."""
    busy_s: float = 0.0
    """How long its own computing takes; 0 if that is not known."""
    busy_spread_s: float = 0.0
    """What single iterations differ from that."""
    num_slow_beats: int = 0
    """Heartbeats that showed it slower than its peers; those that did not count back."""
    done: Literal["stopped", "finished"] | None = None

    @property
    def can_go_on(self) -> bool:
        """Whether its process is parked and can be a rank of another generation."""
        is_fit = self.is_alive and not self.is_broken and self.done is None
        return is_fit and self.position is not None


@dataclass(frozen=True, slots=True)
class Target:
    """Where a task is to run next."""

    layout: Layout
    placement: Placement

    def uses(self, node: NodeId) -> bool:
        """Return whether a rank is to run on ``node``."""
        return any(worker.node == node for worker in self.placement)


@dataclass(slots=True)
class Parking:
    """The parked, or parking, generation of a task."""

    since: float
    at_boundary: bool
    broken: tuple[int, ...]
    """Ranks that are lost or can't go on, as the nodes were last told."""
    completes_copies: bool = False
    """Whether ranks were to park with complete in-memory checkpoints: where the task is to be not all state stays."""
    left: set[int] = field(default_factory=set)
    """Parked ranks, of which others of their replica were told that they answer nobody any more."""
    heard: set[NodeId] = field(default_factory=set)
    """Nodes that have said something since the newest loss of a rank there: they live."""
    is_settled: bool = False
    """Time enough has passed to hear from nodes that lost a rank."""
    parked_at: float | None = None
    """When all ranks had said where they stand."""
    waits_for_capacity: bool = False
    is_impatient: bool = False
    """It has waited for workers of other tasks for long enough."""


@dataclass(slots=True)
class Spares:
    """Processes without a part in the generation that wait, with their models, to be ranks again.

    Some were left out when their replica lost a rank, others are started for the place where their
    task is to be.
    """

    ranks: dict[int, RankState]
    """By number, beyond the ranks of the generation; with a position once they wait."""
    parts: dict[int, ModelPart]
    """The part of the model that each has."""
    target: Target | None = None
    """What new ones were last started for."""
    is_over: bool = False
    """They had time enough; nobody waits for them."""


@dataclass(slots=True)
class TaskState:
    """One task. ``ranks`` are those of ``generation``, by global rank."""

    spec: TaskSpec
    phase: TaskPhase = TaskPhase.WAITING
    note: str = ""
    generation: Generation = NO_GENERATION
    layout: Layout | None = None
    placement: Placement = ()
    granted: Layout | None = None
    """What it was last given to run with; less may run where workers were lost since."""
    target: Target | None = None
    """Where it is to be; None until a plan says, if it has lost workers."""
    interim: Target | None = None
    """Where it goes on meanwhile, with what it has left."""
    parking: Parking | None = None
    spares: Spares | None = None
    next_spare: int = 0
    """Number of the next process that prepares in this generation."""
    resume: Resume = field(default_factory=Resume)
    """How the present generation took up training."""
    unsupported: tuple[str, ...] = ()
    """What its ranks said does not recover in process; then none of its processes goes on."""
    num_memory_uses: int = 0
    """Generations since the last new iteration that took state from in-memory checkpoints."""
    leaving: dict[tuple[Generation, int], Worker] = field(default_factory=dict)
    """Processes of older generations that are being ended, and where they still are."""
    transition: Transition | None = None
    """The present one, or the newest."""
    experience: Experience = field(default_factory=Experience)
    stopping_since: float = 0.0
    stop_s: float = 0.0
    """How long the newest stop took."""
    intent: Intent = "run"
    is_stop_graceful: bool = False
    ranks: dict[int, RankState] = field(default_factory=dict)
    stopped_nodes: set[NodeId] = field(default_factory=set)
    """Nodes that have carried out the present stop; what their heartbeats don't list is gone."""
    iteration: int = 0
    checkpoint_iteration: int = 0
    checkpoint_s: float = 0.0
    """How long the slowest checkpoint took to be complete on disk."""
    losses: dict[int, float] = field(default_factory=dict)
    state_iteration: int = 0
    """Iteration whose state the ranks have; behind ``iteration`` while iterations are run again."""
    num_rerun_iterations: int = 0
    redivided_after: int = 0
    """Newest iteration at the last change of tp or pp: losses up to it were recorded with other ones."""
    voted_iteration: int | None = None
    """Newest iteration that is known to be committed from its vote alone: nobody reported it."""
    committed_at: float | None = None
    advanced_at: float = 0.0
    """When a rank was first known to have finished an iteration that none had."""
    mean_iteration_s: float | None = None
    tokens_per_s: float | None = None
    reporter: int | None = None
    """Rank whose iterations count in this generation of a command, where several print them."""
    watch: Watch = field(default_factory=Watch)
    """What tells whether it goes on as it should."""
    num_recoveries: int = 0
    """Recoveries since the last new iteration."""
    last_cure: Cure | None = None
    """What was last done about a fault since then."""
    copies_failed_in: Generation | None = None
    """The generation that went on as before because copies that were to be complete were not."""
    suspects: list[NodeId | Worker] = field(default_factory=list)
    """Nodes, and workers for single GPUs, that were isolated since then: a restart there had not helped."""
    accused: list[NodeId] = field(default_factory=list)
    """Nodes that were isolated since then because its ranks, and no probe, named broken hardware there."""

    def forget_cures(self) -> None:
        """It makes progress: what was done about its faults has helped."""
        self.num_recoveries, self.last_cure = 0, None
        self.suspects.clear()
        self.accused.clear()

    def become(self, phase: TaskPhase, note: str = "") -> None:
        """Change the phase along the table, with a note for operators."""
        self.phase = advance(TASK_CHANGES, self.phase, phase, self.spec.task)
        self.note = note

    @property
    def living_ranks(self) -> dict[int, RankState]:
        """Ranks that may still have a process."""
        return {number: rank for number, rank in self.ranks.items() if rank.is_alive}

    @property
    def waiting(self) -> dict[int, RankState]:
        """Processes that wait beside the generation to be ranks, or prepare for that, by number."""
        return self.spares.ranks if self.spares else {}

    @property
    def occupied_workers(self) -> set[Worker]:
        """Workers that its processes hold, also those that are being ended."""
        processes = (*self.ranks.values(), *self.waiting.values())
        living = [rank.worker for rank in processes if rank.is_alive]
        return {*living, *self.leaving.values()}

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """Nodes of the living ranks, sorted."""
        return tuple(sorted({rank.worker.node for rank in self.living_ranks.values()}))

    @property
    def newest_iteration(self) -> int:
        """Newest iteration that any rank of this generation is known to have finished."""
        return max((rank.iteration for rank in self.ranks.values()), default=0)

    def note_iteration(self, global_rank: int, iteration: int, at: float) -> None:
        """Take in that a rank of this generation has finished an iteration."""
        if iteration > self.newest_iteration:
            self.advanced_at = at
        rank = self.ranks[global_rank]
        rank.iteration = max(rank.iteration, iteration)

    @property
    def has_all_iterations(self) -> bool:
        """Whether its last iteration is committed; what is left to do is to save and to end."""
        return self.spec.num_iterations is not None and self.iteration >= self.spec.num_iterations

    @property
    def is_active(self) -> bool:
        """Whether ranks of the present generation train, or are about to."""
        return self.phase in {TaskPhase.STARTING, TaskPhase.RUNNING}

    @property
    def can_regroup(self) -> bool:
        """Whether there is a generation that another one can follow in the same processes."""
        return self.is_active or self.phase is TaskPhase.PARKING

    @property
    def place(self) -> Target | None:
        """Where it is; None before its first start."""
        return Target(self.layout, self.placement) if self.layout else None

    @property
    def remaining_s(self) -> float | None:
        """Expected seconds to its last iteration at its present speed; None if that is not known."""
        if self.spec.num_iterations is None or self.mean_iteration_s is None:
            return None
        return max(0, self.spec.num_iterations - self.iteration) * self.mean_iteration_s

    @property
    def waf(self) -> float:
        """Weighted FLOP/s that its profile gives for what runs now; 0 while it does not train."""
        if self.phase is not TaskPhase.RUNNING or self.layout is None:
            return 0.0
        return self.spec.weight * self.spec.table.interim_flops_per_s(self.layout.num_workers)
