"""What operators say about nodes and tasks, as the core needs it. Events bring new ones."""

from dataclasses import dataclass, field, replace

from nodeagent.protocol.ids import NodeId, TaskId
from profiles.layout import Layout
from profiles.rates import Rates
from profiles.throughput import ThroughputTable


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node as the cluster names it.

    Attributes:
        node: Its name.
        address: Where it is, for operators.
        num_workers: Its worker slots.
        failure_domain: What fails together with it, a rack or a switch; empty if not known.
        training_address: Where ranks of other nodes reach its ranks; empty if ``address`` has it.
        training_interface: Network interface of its ranks; empty to find it.
        access: How the controller logs in there, in words that the core does not read.
    """

    node: NodeId
    address: str
    num_workers: int
    failure_domain: str = field(default="", repr=False)
    training_address: str = field(default="", repr=False)
    training_interface: str = field(default="", repr=False)
    access: str = field(default="", repr=False)

    @property
    def training_host(self) -> str:
        """Name or address at which ranks of other nodes reach its ranks."""
        return self.training_address or self.address.rpartition(":")[0].strip("[]")


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The settings of a task that operators may change while it trains.

    Attributes:
        weight: See ``TaskSpec``, as for the others.
    """

    weight: float
    min_workers: int
    max_workers: int | None
    keeps_running: bool


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
        is_command: Whether it is a program that knows nothing of Unicron. Its iterations show in
            its log, if at all, and it starts anew after every fault.
        start_limit_s: A start must lead to an iteration within this; None leaves it to the policy.
        stop_limit_s: A graceful stop must end within this; None leaves it to the policy.
        hang_limit_s: An iteration that takes less is never overdue.
        long_intervals: The iteration after a multiple of one of these does something else besides:
            it saves a checkpoint, or evaluates.
        has_floor: Whether its iterations are slowed down to be watched. Then they are no measure of
            its throughput.
        keeps_running: Whether a plan may stop it only if ``min_workers`` have no room.
        max_workers: Largest size that a plan may give it; None for the largest of its table.
        program: What its ranks run, in words that the core does not read.
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
    keeps_running: bool = False
    max_workers: int | None = None
    program: str = field(default="", repr=False)

    @property
    def smallest_size(self) -> int:
        """Fewest workers that it can use."""
        return min((x for x in self.table.sizes if x >= self.min_workers), default=self.min_workers)

    @property
    def limits(self) -> TaskLimits:
        """What operators may change while it trains."""
        return TaskLimits(self.weight, self.min_workers, self.max_workers, self.keeps_running)

    def with_limits(self, limits: TaskLimits) -> "TaskSpec":
        """Return the task with other limits."""
        return replace(
            self,
            weight=limits.weight,
            min_workers=limits.min_workers,
            max_workers=limits.max_workers,
            keeps_running=limits.keeps_running,
        )

    @property
    def rates(self) -> Rates:
        """T(t, x) at the sizes that a plan may give it."""
        return self.table.rates_up_to(self.max_workers)

    def has_layout(self, layout: Layout) -> bool:
        """Return whether it can run with ``layout``."""
        return any(point.layout == layout for point in self.table.points)

    def takes_effect_at_once(self, other: "TaskSpec") -> bool:
        """Return whether ranks of this task can run on while it becomes ``other``."""
        now = replace(
            self,
            weight=other.weight,
            workers=other.workers,
            min_workers=other.min_workers,
            table=other.table,
            keeps_running=other.keeps_running,
            max_workers=other.max_workers,
            start_limit_s=other.start_limit_s,
            stop_limit_s=other.stop_limit_s,
            hang_limit_s=other.hang_limit_s,
        )
        return now == other

    def is_long(self, iteration: int) -> bool:
        """Return whether an iteration does something else besides, and the others do not."""
        return iteration > 1 and any(
            interval > 1 and (iteration - 1) % interval == 0 for interval in self.long_intervals
        )
