"""One generation of a task in the modelled cluster: its processes and its progress."""

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

from controller.core.instructions import StartRanks
from controller.core.rules.placement import Worker
from controller.simulation.scenarios.estimated_tables import Profile
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.regroup import HeldCopy, Position
from profiles.layout import Layout

_NOTHING_S: Final = 1e-6
"""More than the rounding error of times after millions of seconds."""

ModelledStage = Literal["forming", "training", "paused", "stalled", "parked", "over"]


@dataclass(slots=True, eq=False)
class ModelledGeneration:
    """Processes that train together. Times are seconds of the virtual clock.

    Attributes:
        start: The instruction that began it.
        profile: The throughput of its task.
        stage: Its present stage.
        alive: Ranks that have a process, with their workers.
        stateful: Ranks whose processes hold the state.
        spares: Spares with their workers, by number.
        is_saved: Whether its newest iteration is saved on disk.
        unreported: Iterations still to be reported; they verify its recovery.
        committed: The newest iteration ever committed, at ``since_s``.
        debt_s: Seconds of iterations to run again that had been committed before, at ``since_s``.
        rerun_scale: Seconds that it takes for what took its predecessor one second.
        since_s: When it began to train, or when the two were last updated.
        slow_nodes: For each slow node, the speed as a fraction of the usual speed.
    """

    start: StartRanks
    profile: Profile
    stage: ModelledStage = "forming"
    alive: dict[int, Worker] = field(default_factory=dict)
    stateful: set[int] = field(default_factory=set)
    spares: dict[int, Worker] = field(default_factory=dict)
    is_saved: bool = False
    unreported: list[int] = field(default_factory=list)
    committed: int = 0
    debt_s: float = 0.0
    rerun_scale: float = 1.0
    since_s: float = 0.0
    slow_nodes: dict[NodeId, float] = field(default_factory=dict)
    _num_by_node: Counter[NodeId] = field(init=False)

    def __post_init__(self) -> None:
        self._num_by_node = Counter(worker.node for worker in self.start.placement)

    @property
    def layout(self) -> Layout:
        """Its layout."""
        return self.start.layout

    @property
    def num_workers(self) -> int:
        """The number of ranks of its layout."""
        return self.start.layout.num_workers

    @property
    def speed(self) -> float:
        """Its speed as a fraction of the usual speed; the slowest node decides."""
        return min(self.slow_nodes.values(), default=1.0)

    @property
    def iteration_s(self) -> float:
        """Seconds of an iteration."""
        return self.profile.iteration_s(self.num_workers) / self.speed

    @property
    def waf(self) -> float:
        """F of its size, weighted FLOP/s."""
        return self.profile.task.weight * self.profile.table.interim_flops_per_s(self.num_workers)

    def is_in(self, *stages: ModelledStage) -> bool:
        """Return whether it is in one of these stages. Any instruction may change that."""
        return self.stage in stages

    def num_on(self, node: NodeId) -> int:
        """Return the number of living ranks on a node."""
        return sum(worker.node == node for worker in self.alive.values())

    def settle(self, now_s: float) -> None:
        """Add the iterations that ran until now."""
        if self.stage == "training":
            passed_s = now_s - self.since_s
            again_s = min(passed_s, self.debt_s)
            self.debt_s = max(0.0, self.debt_s - again_s - _NOTHING_S)
            self.committed += int((passed_s - again_s) / self.iteration_s)
        self.since_s = now_s

    @property
    def iteration(self) -> int:
        """The newest iteration whose state it has."""
        return max(0, self.committed - int(self.debt_s / self.iteration_s))

    def position(self, rank: int) -> Position:
        """Return the position of a parked rank: at the start of an iteration, with empty sums."""
        if rank not in self.stateful:
            return Position(committed=0, has_state=False)
        cells = {(self.layout.tp_rank(n), self.layout.pp_rank(n)) for n in self._copies_at(rank)}
        return _position(self.iteration, frozenset(cells if self.num_workers > 1 else ()))

    def _copies_at(self, rank: int) -> tuple[int, int]:
        """Return the ranks whose in-memory checkpoints a rank holds: itself and a remote one."""
        num_here = self._num_by_node.get(self.start.placement[rank].node, 1)
        return rank, (rank - num_here) % self.num_workers


@lru_cache(maxsize=1024)
def _position(iteration: int, cells: frozenset[tuple[int, int]]) -> Position:
    """Return the position of a rank that holds copies of these (tp, pp); all replicas are alike."""
    copies = (
        HeldCopy(tp_rank=tp, pp_rank=pp, dp_rank=0, iteration=iteration) for tp, pp in sorted(cells)
    )
    return Position(committed=iteration, has_state=True, copies=tuple(copies))
