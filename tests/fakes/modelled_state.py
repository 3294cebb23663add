"""What modelled ranks have instead of tensors: multisets of (iteration, micro-batch)."""

from collections import Counter
from dataclasses import dataclass, field

from nodeagent.protocol.ids import Generation
from tests.fakes.modelled_groups import Groups

Cell = tuple[int, int]
"""(tp, pp): whose parameters and whose buckets are the same."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """What a bucket holds: contributions, and how often it was finalised since it was reduced."""

    parts: Counter[tuple[int, int]] = field(default_factory=Counter)
    num_finalised: int = 0

    def plus(self, parts: Counter[tuple[int, int]]) -> "Gradient":
        """Return the sum."""
        return Gradient(self.parts + parts, self.num_finalised)


Parameters = dict[str, tuple[Gradient, ...]]
"""By bucket: the updates that were applied to its parameters, in order."""


def whole_update(iteration: int, num_micro_batches: int) -> Gradient:
    """Return the only gradient that may ever be applied in ``iteration``."""
    return Gradient(Counter((iteration, index) for index in range(num_micro_batches)), 1)


@dataclass(frozen=True, slots=True)
class Job:
    """What all ranks of a task have in common."""

    num_micro_batches: int
    buckets: tuple[str, ...]
    checkpoint_interval: int


@dataclass(eq=False)
class Storage:
    """Checkpoints on disk, by iteration and cell; complete when all ranks of one generation wrote."""

    complete: dict[int, dict[Cell, Parameters]] = field(default_factory=dict)
    _parts: dict[tuple[Generation, int], dict[int, tuple[Cell, Parameters]]] = field(
        default_factory=dict
    )

    def write(self, groups: Groups, rank: int, iteration: int, parameters: Parameters) -> None:
        """Write one rank's part."""
        parts = self._parts.setdefault((groups.generation, iteration), {})
        cell = groups.layout.tp_rank(rank), groups.layout.pp_rank(rank)
        parts[rank] = cell, parameters
        if len(parts) == groups.layout.num_workers:
            self.complete[iteration] = dict(parts.values())
