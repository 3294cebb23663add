"""One generation of a task in the modelled cluster: its processes, and how far it has come."""

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
"""Less than what times are off by after millions of seconds."""

Stage = Literal["forming", "training", "paused", "stalled", "parked", "over"]


@dataclass(slots=True, eq=False)
class ModelledGeneration:
    """Processes that train together; times are seconds of the virtual clock.

    Attributes:
        start: The order that began it.
        profile: What its task achieves.
        stage: What it does.
        alive: Ranks that have a process.
        stateful: Ranks whose processes hold the state.
        spares: Processes that prepare to join, by number.
        is_saved: Whether it was saved on disk as it is, at the end of its last iteration.
        unreported: Iterations that are still to be told, by which its recovery is verified.
        committed: Newest iteration that was ever committed, as of ``since_s``.
        debt_s: How long it has to run iterations again that had been committed before, as of then.
        since_s: Since when it trains, or when the two were last counted.
        slow_nodes: The speed that each slow node leaves, as a part of the usual one.
    """

    start: StartRanks
    profile: Profile
    stage: Stage = "forming"
    alive: dict[int, Worker] = field(default_factory=dict)
    stateful: set[int] = field(default_factory=set)
    spares: dict[int, Worker] = field(default_factory=dict)
    is_saved: bool = False
    unreported: list[int] = field(default_factory=list)
    committed: int = 0
    debt_s: float = 0.0
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
        """Ranks that it is to have."""
        return self.start.layout.num_workers

    @property
    def speed(self) -> float:
        """As a part of the usual speed: its slowest node decides."""
        return min(self.slow_nodes.values(), default=1.0)

    @property
    def iteration_s(self) -> float:
        """How long an iteration takes."""
        return self.profile.iteration_s(self.num_workers) / self.speed

    @property
    def waf(self) -> float:
        """F of its size, weighted FLOP/s."""
        return self.profile.task.weight * self.profile.table.interim_flops_per_s(self.num_workers)

    def is_in(self, *stages: Stage) -> bool:
        """Return whether it is in one of these stages now; what the core wants may change it any time."""
        return self.stage in stages

    def num_on(self, node: NodeId) -> int:
        """Return how many living ranks are on a node."""
        return sum(worker.node == node for worker in self.alive.values())

    def settle(self, now_s: float) -> None:
        """Count the iterations that were run until now."""
        if self.stage == "training":
            passed_s = now_s - self.since_s
            again_s = min(passed_s, self.debt_s)
            self.debt_s = max(0.0, self.debt_s - again_s - _NOTHING_S)
            self.committed += int((passed_s - again_s) / self.iteration_s)
        self.since_s = now_s

    @property
    def iteration(self) -> int:
        """Newest iteration whose state it has."""
        return max(0, self.committed - int(self.debt_s / self.iteration_s))

    def position(self, rank: int) -> Position:
        """Return where a parked rank stands: at the beginning of an iteration, its sums empty."""
        if rank not in self.stateful:
            return Position(committed=0, has_state=False)
        cells = {(self.layout.tp_rank(n), self.layout.pp_rank(n)) for n in self._copies_at(rank)}
        return _position(self.iteration, frozenset(cells if self.num_workers > 1 else ()))

    def _copies_at(self, rank: int) -> tuple[int, int]:
        """Return whose in-memory checkpoints a rank holds: its own, and a rank's of another node."""
        num_here = self._num_by_node.get(self.start.placement[rank].node, 1)
        return rank, (rank - num_here) % self.num_workers


@lru_cache(maxsize=1024)
def _position(iteration: int, cells: frozenset[tuple[int, int]]) -> Position:
    """Return where a rank stands that holds copies of these (tp, pp): as one replica does, so do all."""
    copies = (
        HeldCopy(tp_rank=tp, pp_rank=pp, dp_rank=0, iteration=iteration) for tp, pp in sorted(cells)
    )
    return Position(committed=iteration, has_state=True, copies=tuple(copies))
