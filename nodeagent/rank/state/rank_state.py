"""The state of a rank: parameters, optimizer state, and numbers such as learning rates.

``tensors`` lists every tensor of the rank's shard. Its order depends only on model and optimizer,
so two ranks with the same part of the model can exchange tensors without names. Without a sharded
optimizer the shard is the whole state of the rank's part of the model. Adam makes its moments in
its first step. A rank that receives them earlier makes them before.

Gradients are in ``reduction``, the progress of the iteration is in ``ledger``. Random numbers are
no state: they are drawn anew for every micro-batch.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import MegatronOptimizer
from torch import distributed
from torch.distributed import ProcessGroup

from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.state.optimizers import MOMENTS, adams_of, new_adam_state, parameters_of
from nodeagent.rank.state.sharded_adam import ShardedOptimizer
from nodeagent.rank.tensors.packed_tensors import Extent, extents_of, num_packed_bytes, packed_over

_CHUNK_BYTES: Final = 64 * 1024 * 1024

WHOLE: Final = (0, 1)
"""The partition of state that is not sharded."""


class TrainingState:
    """All tensors and numbers of one rank that an update changes.

    Args:
        chunks: The model.
        optimizer: The optimizer over it.

    Raises:
        UnsupportedOptimizerError: On construction. The text names the optimizer.
    """

    def __init__(
        self,
        chunks: list[DistributedDataParallel],
        optimizer: MegatronOptimizer | ShardedOptimizer,
    ) -> None:
        self._chunks = chunks
        self.sharded = optimizer if isinstance(optimizer, ShardedOptimizer) else None
        """The optimizer, if its state is sharded."""
        self._adams = adams_of(
            optimizer.inner if isinstance(optimizer, ShardedOptimizer) else optimizer
        )

    @property
    def partition(self) -> tuple[int, int]:
        """The number of this rank's shard, and the number of shards."""
        return WHOLE if self.sharded is None else self.sharded.partition

    def enter(self, place: Place) -> None:
        """Keep the shard of this place. A shard that differs from the old one has no state yet."""
        if self.sharded is not None:
            self.sharded.enter(place.dp_rank, place.layout.dp)

    def tensors(self) -> list[torch.Tensor]:
        """Return all tensors without repetition.

        Make the optimizer's state if there is none yet.
        """
        return self._whole_tensors() if self.sharded is None else self.sharded.tensors()

    def numbers(self) -> list[float]:
        """Return the numbers in the optimizer's parameter groups, for instance learning rates."""
        return [group[key] for group, key in self._numeric_entries()]

    def set_numbers(self, numbers: list[float]) -> None:
        """Replace the numbers by those of another rank."""
        for (group, key), number in zip(self._numeric_entries(), numbers, strict=True):
            group[key] = type(group[key])(number)

    # --- packed --------------------------------------------------------------------------------

    def sources(self) -> list[torch.Tensor]:
        """Return the tensors of ``packed`` in its order; the last one holds the numbers."""
        return [*self.tensors(), torch.tensor(self.numbers(), dtype=torch.float64)]

    def num_bytes(self, dp_rank: int, num_shards: int) -> int:
        """Return the bytes of a packed shard."""
        return num_packed_bytes(self._extents(dp_rank, num_shards))

    def packed(self) -> torch.Tensor:
        """Return this rank's shard as bytes in host memory."""
        sources = self.sources()
        extents = extents_of(sources)
        data = torch.empty(num_packed_bytes(extents), dtype=torch.uint8)
        for source, target in zip(sources, packed_over(data, extents).tensors, strict=True):
            target.copy_(source.reshape(-1))
        return data

    def take(self, data: torch.Tensor, dp_rank: int, num_shards: int) -> None:
        """Replace the part of this rank's state that is in a packed shard."""
        *tensors, numbers = packed_over(data, self._extents(dp_rank, num_shards)).tensors
        if self.sharded is not None:
            self.sharded.take(tensors, dp_rank, num_shards)
        else:
            for own, theirs in zip(self.tensors(), tensors, strict=True):
                own.copy_(theirs.view(own.shape))
        self.set_numbers(numbers.tolist())

    def _extents(self, dp_rank: int, num_shards: int) -> list[Extent]:
        if self.sharded is None:
            extents = extents_of(self._whole_tensors())
        else:
            extents = self.sharded.extents(dp_rank, num_shards)
        return [*extents, Extent(torch.float64, len(self.numbers()))]

    def _whole_tensors(self) -> list[torch.Tensor]:
        found: dict[int, torch.Tensor] = {}
        for chunk in self._chunks:
            for tensor in [*chunk.module.parameters(), *chunk.module.buffers()]:
                found[id(tensor)] = tensor.detach()
        for adam in self._adams:
            for parameter in parameters_of(adam):
                # Mixed precision: the optimizer's own copy in float32.
                found.setdefault(id(parameter), parameter.detach())
                state: dict[str, torch.Tensor] = adam.state[parameter]
                if not state:
                    state.update(new_adam_state(parameter))
                for name in ("step", *MOMENTS):
                    found[id(state[name])] = state[name]
        return list(found.values())

    def _numeric_entries(self) -> list[tuple[dict[str, Any], str]]:
        return [
            (group, key)
            for adam in self._adams
            for group in adam.param_groups
            for key, value in sorted(group.items())
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        ]


def broadcast_state(
    state: TrainingState,
    group: ProcessGroup,
    source: int,
    wait: Callable[[distributed.Work], object],
    *,
    is_needed: bool,
) -> None:
    """Copy the state of global rank ``source`` to the ranks of ``group`` that need it.

    All ranks of the group must call it. Tensors are sent packed, in chunks that need little memory.

    Args:
        state: The state of this rank.
        group: Ranks with the same part of the model.
        source: A rank that has the state.
        wait: Waits for a collective.
        is_needed: Whether this rank takes the state. A rank that does not keeps its own state, also
            if a peer is lost meanwhile.

    Raises:
        RuntimeError: A peer was lost. The state of a rank that needed it is then undefined.
    """
    tensors = state.tensors()
    device = tensors[0].device
    for chunk in _chunks(tensors):
        # Adam's step counters may be on the CPU while all other tensors are on the GPU.
        packed = torch.cat([tensor.reshape(-1).to(device) for tensor in chunk])
        wait(distributed.broadcast(packed, src=source, group=group, async_op=True))
        if is_needed:
            _unpack(packed, chunk)
    numbers = torch.tensor(state.numbers(), dtype=torch.float64, device=device)
    wait(distributed.broadcast(numbers, src=source, group=group, async_op=True))
    if is_needed:
        state.set_numbers(numbers.tolist())


def _unpack(packed: torch.Tensor, tensors: list[torch.Tensor]) -> None:
    offset = 0
    for tensor in tensors:
        tensor.copy_(packed[offset : offset + tensor.numel()].view(tensor.shape))
        offset += tensor.numel()


def _chunks(tensors: Iterable[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yield runs of tensors of one type, of about ``_CHUNK_BYTES`` each."""
    by_type: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in tensors:
        by_type.setdefault(tensor.dtype, []).append(tensor)
    for same in by_type.values():
        chunk: list[torch.Tensor] = []
        num_bytes = 0
        for tensor in same:
            chunk.append(tensor)
            num_bytes += tensor.numel() * tensor.element_size()
            if num_bytes >= _CHUNK_BYTES:
                yield chunk
                chunk, num_bytes = [], 0
        if chunk:
            yield chunk
