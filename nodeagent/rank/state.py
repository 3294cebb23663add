"""The state of a rank: parameters, optimizer state, and the numbers that belong to them.

``tensors`` lists every tensor in an order that depends on model and optimizer alone, so that two
ranks at the same place of the model can exchange theirs without a word about names. Adam makes its
moments in its first step; a rank that is to receive them before has them made (``materialise``).

What is not here: gradients (``reduction``), the position in the data (``ledger``), and random
numbers, which are drawn anew for every micro-batch.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import MegatronOptimizer
from torch import distributed
from torch.distributed import ProcessGroup

_CHUNK_BYTES: Final = 64 * 1024 * 1024
_MOMENTS: Final = ("exp_avg", "exp_avg_sq")


class UnsupportedOptimizerError(Exception):
    """The optimizer keeps state that can't be handed to another process."""


class TrainingState:
    """Everything that an update changes, of one rank.

    Args:
        chunks: The model.
        optimizer: Megatron's optimizer over it, or a chain of them.

    Raises:
        UnsupportedOptimizerError: On construction; the text names the optimizer.
    """

    def __init__(self, chunks: list[DistributedDataParallel], optimizer: MegatronOptimizer) -> None:
        self._chunks = chunks
        self._inner = list(_inner_optimizers(optimizer))
        for inner in self._inner:
            if not isinstance(inner, (torch.optim.Adam, torch.optim.AdamW)):
                name = type(inner).__name__
                raise UnsupportedOptimizerError(f"state of {name} can't be handed over in process")

    def materialise(self) -> None:
        """Make the optimizer's state if it has none yet: that of no step taken."""
        for inner in self._inner:
            for parameter in _optimized(inner):
                state: dict[str, torch.Tensor] = inner.state[parameter]
                if not state:
                    state["step"] = torch.zeros((), dtype=torch.float32)
                    state.update({name: torch.zeros_like(parameter) for name in _MOMENTS})

    def tensors(self) -> list[torch.Tensor]:
        """Return all tensors, each once; the optimizer's state is made if it has none yet."""
        self.materialise()
        found: dict[int, torch.Tensor] = {}
        for chunk in self._chunks:
            for tensor in [*chunk.module.parameters(), *chunk.module.buffers()]:
                found[id(tensor)] = tensor.detach()
        for inner in self._inner:
            for parameter in _optimized(inner):
                # Mixed precision: the optimizer's own copy in float32.
                found.setdefault(id(parameter), parameter.detach())
                for name in ("step", *_MOMENTS):
                    tensor = inner.state[parameter][name]
                    found[id(tensor)] = tensor
        return list(found.values())

    def numbers(self) -> list[float]:
        """Return the numbers in the optimizer's parameter groups, for instance learning rates."""
        return [group[key] for group, key in self._numeric_entries()]

    def set_numbers(self, numbers: list[float]) -> None:
        """Take over another rank's ``numbers``."""
        for (group, key), number in zip(self._numeric_entries(), numbers, strict=True):
            group[key] = type(group[key])(number)

    def _numeric_entries(self) -> list[tuple[dict[str, Any], str]]:
        return [
            (group, key)
            for inner in self._inner
            for group in inner.param_groups
            for key, value in sorted(group.items())
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        ]


def broadcast_state(state: TrainingState, group: ProcessGroup, source: int) -> int:
    """Copy the state of global rank ``source`` to all ranks of ``group``; return its bytes.

    All ranks of the group must call it. Tensors travel packed, in chunks that need little memory.

    Raises:
        RuntimeError: A peer was lost; the receivers' state is then undefined.
    """
    tensors = state.tensors()
    is_source = distributed.get_rank() == source
    num_bytes = 0
    device = tensors[0].device
    for chunk in _chunks(tensors):
        # Adam's step counters may lie on the CPU although all else does not.
        packed = torch.cat([tensor.reshape(-1).to(device) for tensor in chunk])
        distributed.broadcast(packed, src=source, group=group)
        if not is_source:
            _unpack(packed, chunk)
        num_bytes += packed.numel() * packed.element_size()
    numbers = torch.tensor(state.numbers(), dtype=torch.float64, device=device)
    distributed.broadcast(numbers, src=source, group=group)
    if not is_source:
        state.set_numbers(numbers.tolist())
    return num_bytes


def _unpack(packed: torch.Tensor, tensors: list[torch.Tensor]) -> None:
    offset = 0
    for tensor in tensors:
        tensor.copy_(packed[offset : offset + tensor.numel()].view(tensor.shape))
        offset += tensor.numel()


def _chunks(tensors: Iterable[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yield runs of tensors of one type and about ``_CHUNK_BYTES``, all tensors of a type together."""
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


def _inner_optimizers(optimizer: MegatronOptimizer) -> Iterator[torch.optim.Optimizer]:
    for one in getattr(optimizer, "chained_optimizers", [optimizer]):
        if not getattr(one, "is_stub_optimizer", False):
            yield one.optimizer


def _optimized(inner: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in inner.param_groups:
        yield from group["params"]
