"""What modelled ranks have instead of tensors: multisets of (iteration, micro-batch)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from nodeagent.protocol.ids import Generation
from tests.fakes.modelled_groups import Groups

Cell = tuple[int, int]
"""(tp, pp): ranks of one cell have the same parameters and buckets."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """What a bucket holds: contributions, and how often it was finalised since it was reduced."""

    parts: Counter[tuple[int, int]] = field(default_factory=Counter)
    num_finalised: int = 0

    def plus(self, parts: Counter[tuple[int, int]]) -> "Gradient":
        """Return the sum."""
        return Gradient(self.parts + parts, self.num_finalised)


State = dict[str, tuple[Gradient, ...]]
"""By bucket: the updates that were applied to it, in order.

With a sharded optimizer a bucket has ``UNITS``
pieces, ``a:0`` to ``a:11``, so that it can be divided by 1 to 4."""

UNITS = 12


def pieces_of(buckets: Sequence[str], number: int, num_shards: int) -> list[str]:
    """Return the pieces of a shard."""
    size = UNITS // num_shards
    units = range(number * size, (number + 1) * size)
    return [f"{bucket}:{unit}" for bucket in buckets for unit in units]


def whole_update(iteration: int, num_micro_batches: int) -> Gradient:
    """Return the only gradient that may ever be applied in ``iteration``."""
    return Gradient(Counter((iteration, index) for index in range(num_micro_batches)), 1)


@dataclass(frozen=True, slots=True)
class Job:
    """What all ranks of a task have in common."""

    num_micro_batches: int
    buckets: tuple[str, ...]
    checkpoint_interval: int
    is_sharded: bool = False


@dataclass(eq=False)
class Storage:
    """Checkpoints on disk, by iteration and cell.

    Complete when all ranks of one generation wrote.
    """

    complete: dict[int, dict[Cell, State]] = field(default_factory=dict)
    _parts: dict[tuple[Generation, int], dict[int, tuple[Cell, State]]] = field(
        default_factory=dict
    )

    def write(self, groups: Groups, rank: int, iteration: int, state: State) -> None:
        """Write one rank's part."""
        parts = self._parts.setdefault((groups.generation, iteration), {})
        cell = groups.layout.tp_rank(rank), groups.layout.pp_rank(rank)
        parts[rank] = cell, state
        if len(parts) == groups.layout.num_workers:
            whole: dict[Cell, State] = {}
            for where, part in parts.values():
                whole[where] = whole.get(where, {}) | part
            self.complete[iteration] = whole
