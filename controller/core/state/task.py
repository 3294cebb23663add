"""The core's memory of a task: its specification, its generation, and its records.

``TaskState`` itself holds the present generation. Its records are in ``task_records``,
``task_history`` and ``watch``. Derived facts are properties, so that nothing has to be kept in
step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.core.rules.placement import Placement, Worker
from controller.core.specs import TaskLimits, TaskSpec
from controller.core.state.phases import AT_REST, TaskPhase
from controller.core.state.rank import RankState
from controller.core.state.task_history import (
    FaultHistory,
    RegroupLimits,
    RunProgress,
    Transitions,
)
from controller.core.state.task_orders import OrderMark, TaskOrders
from controller.core.state.task_records import (
    Assignment,
    LeavingRanks,
    Lifecycle,
    Spares,
    Stopping,
    Target,
    TaskMembership,
)
from controller.core.state.watch import Watch
from nodeagent.protocol.ids import NO_GENERATION, Generation, NodeId
from nodeagent.protocol.regroup import Resume
from profiles.layout import Layout


@dataclass(slots=True)
class TaskState:
    """One task.

    A changed spec that ranks can run with takes effect at once: a weight, a limit, another
    throughput table. Any other waits for a start with new processes only, because the processes of
    a generation must agree on their program.
    """

    spec: TaskSpec
    lifecycle: Lifecycle
    generation: Generation = NO_GENERATION
    layout: Layout | None = None
    placement: Placement = ()
    place: Target | None = None
    """Where it is, as layout and placement say too; None before its first start."""
    resume: Resume = field(default_factory=Resume)
    """How the present generation took up training."""
    ranks: dict[int, RankState] = field(default_factory=dict)
    """The ranks of the present generation, by global rank."""
    numbers_on: dict[NodeId, tuple[int, ...]] = field(default_factory=dict)
    """The global ranks of the present generation by node, also of those that are gone."""
    newest_iteration: int = 0
    """Newest iteration that any rank of this generation is known to have finished."""
    spares: Spares = field(default_factory=Spares)
    """Processes beside the present generation."""
    watch: Watch = field(default_factory=Watch)
    """What shows whether the present generation progresses as it should."""
    assignment: Assignment = field(default_factory=Assignment)
    stopping: Stopping = field(default_factory=Stopping)
    leaving: LeavingRanks = field(default_factory=LeavingRanks)
    transitions: Transitions = field(default_factory=Transitions)
    progress: RunProgress = field(default_factory=RunProgress)
    faults: FaultHistory = field(default_factory=FaultHistory)
    limits: RegroupLimits = field(default_factory=RegroupLimits)
    membership: TaskMembership = field(default_factory=TaskMembership)
    orders: TaskOrders = field(default_factory=TaskOrders)

    @property
    def is_wanted(self) -> bool:
        """Whether it is to run if a plan gives it workers."""
        orders = self.orders
        is_ordered_out = orders.stopped is not None or orders.finished is not None
        return not self.membership.is_removed and not is_ordered_out

    @property
    def has_left(self) -> bool:
        """Whether it was removed or archived, and its name may be given to another task."""
        is_out = self.membership.is_removed or self.orders.is_archived
        return is_out and self.lifecycle.phase is TaskPhase.FINISHED

    @property
    def has_settled(self) -> bool:
        """Whether it has left its workers, and does not want them back by itself."""
        phase = self.lifecycle.phase
        is_stopped = phase is TaskPhase.STOPPED and self.orders.stopped is not None
        return is_stopped or phase is TaskPhase.FINISHED

    @property
    def living_ranks(self) -> dict[int, RankState]:
        """Ranks that may still have a process."""
        return {number: rank for number, rank in self.ranks.items() if rank.is_alive}

    @property
    def occupied_workers(self) -> set[Worker]:
        """Workers that its processes hold, also processes that are being ended."""
        processes = (*self.ranks.values(), *self.spares.ranks.values())
        living = [rank.worker for rank in processes if rank.is_alive]
        return {*living, *self.leaving.workers.values()}

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """Nodes of the living ranks, sorted."""
        return tuple(sorted({rank.worker.node for rank in self.living_ranks.values()}))

    @property
    def awaits_states(self) -> bool:
        """Whether a rank of this generation has not joined with its state yet."""
        # Ranks join roughly in their order, and this is asked after each: missing ones come last.
        for rank in reversed(self.ranks.values()):  # noqa: SIM110 - a generator takes three times as long
            if rank.joined is None:
                return True
        return False

    @property
    def parked_ranks(self) -> list[int]:
        """Ranks that have parked, by number."""
        return [number for number, rank in self.ranks.items() if rank.position is not None]

    def is_at(self, target: Target | None) -> bool:
        """Return whether the present generation is where ``target`` says."""
        return self.place is target or self.place == target

    def holds(self, worker: Worker) -> bool:
        """Return whether ``worker`` is among ``occupied_workers``."""
        numbers = self.numbers_on.get(worker.node, ())
        ranks = [self.ranks[number] for number in numbers]
        processes = (*ranks, *self.spares.ranks.values())
        is_held = any(rank.is_alive and rank.worker == worker for rank in processes)
        return is_held or worker in self.leaving.workers.values()

    def runs_on(self, node: NodeId) -> bool:
        """Return whether a living rank is on ``node``."""
        return any(self.ranks[number].is_alive for number in self.numbers_on.get(node, ()))

    @property
    def has_all_iterations(self) -> bool:
        """Whether its last iteration is committed; the ranks have only to save and to end."""
        num = self.spec.num_iterations
        return num is not None and self.progress.iteration >= num

    @property
    def is_active(self) -> bool:
        """Whether ranks of the present generation train, or are about to."""
        return self.lifecycle.phase in {TaskPhase.STARTING, TaskPhase.RUNNING}

    @property
    def can_regroup(self) -> bool:
        """Whether there is a generation that another one can follow in the same processes."""
        return self.is_active or self.lifecycle.phase is TaskPhase.PARKING

    @property
    def remaining_s(self) -> float | None:
        """Expected seconds to its last iteration at its present speed.

        None if that is not known.
        """
        progress = self.progress
        if self.spec.num_iterations is None or progress.mean_iteration_s is None:
            return None
        return max(0, self.spec.num_iterations - progress.iteration) * progress.mean_iteration_s

    @property
    def waf(self) -> float:
        """Weighted FLOP/s that its profile gives for what runs now; 0 while it does not train."""
        if self.lifecycle.phase is not TaskPhase.RUNNING or self.layout is None:
            return 0.0
        return self.spec.weight * self.spec.table.interim_flops_per_s(self.layout.num_workers)

    def change_spec(self, spec: TaskSpec) -> bool:
        """Give the task another spec; return whether all of it takes effect at once."""
        is_at_once = self.lifecycle.phase in AT_REST or self.spec.takes_effect_at_once(spec)
        self.membership.await_start(None if is_at_once else spec)
        if is_at_once:
            self.spec = spec
        else:
            # Limits concern the planner alone.
            self.spec = self.spec.with_limits(spec.limits)
        return is_at_once

    def of_file(self) -> TaskSpec:
        """Return what the cluster file says of it, without the orders of operators."""
        newest = self.membership.next_spec or self.spec
        return newest.with_limits(self.orders.of_file(newest.limits))

    def limit(self, limits: TaskLimits, mark: OrderMark) -> None:
        """An operator orders other limits."""
        self.orders.limit(self.spec.limits, limits, mark)
        self.spec = self.spec.with_limits(limits)
        if self.membership.next_spec is not None:
            self.membership.await_start(self.membership.next_spec.with_limits(limits))

    def take_next_spec(self) -> None:
        """A task without ranks becomes what it was changed to."""
        self.spec = self.membership.take_next_spec() or self.spec

    def begin_program(self, layout: Layout) -> None:
        """A generation of new processes begins: they run the newest program with ``layout``."""
        following = self.membership.next_spec
        if following is not None and following.has_layout(layout):
            self.take_next_spec()
        self.membership.begin_program(self.spec.program)

    def begin_generation(
        self,
        target: Target,
        ranks: Mapping[int, RankState],
        resume: Resume,
        spares: Spares,
        watch: Watch,
    ) -> None:
        """The next generation begins at ``target``, with the spares beside it."""
        self.generation = Generation(self.generation + 1)
        self.layout, self.placement, self.place = target.layout, target.placement, target
        self.ranks, self.spares = dict(ranks), spares
        by_node: dict[NodeId, list[int]] = {}
        for number, rank in ranks.items():
            by_node.setdefault(rank.worker.node, []).append(number)
        self.numbers_on = {node: tuple(numbers) for node, numbers in by_node.items()}
        self.newest_iteration = max((rank.iteration for rank in ranks.values()), default=0)
        self.resume, self.watch = resume, watch
        self.assignment.arrive(target)
        self.lifecycle.begin_starting()

    def note_advance(self, at: float, number: int, iteration: int) -> None:
        """A rank has finished ``iteration``: the task has advanced if no other rank had."""
        self.ranks[number].note_iteration(iteration)
        if iteration > self.newest_iteration:
            self.newest_iteration = iteration
            self.progress.note_advance(at)
