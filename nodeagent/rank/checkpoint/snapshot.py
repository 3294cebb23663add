"""A copy of this rank's own blocks in host memory, taken at an iteration boundary.

Only this part of a checkpoint blocks training. The next copy reuses the memory, so it must not be
taken before the last one is written.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch

from nodeagent.rank.checkpoint.whole_model import Block
from nodeagent.rank.tensors.host_copy import copy_to_host


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """Blocks in host memory.

    Attributes:
        blocks: The copies. Read them only after ``wait_until_ready`` has returned.
        wait_until_ready: Blocks until the device has filled the copies.
    """

    blocks: tuple[Block, ...]
    wait_until_ready: Callable[[], None]


class HostMemory:
    """Memory for one copy of the blocks that this rank saves."""

    def __init__(self) -> None:
        self._tensors: dict[tuple[str, torch.Size], torch.Tensor] = {}

    def take(self, blocks: Iterable[Block]) -> HostSnapshot:
        """Copy the blocks that this rank saves."""
        own = [block for block in blocks if block.is_saved_here]
        memory = [self._memory_for(block) for block in own]
        wait = copy_to_host([block.tensor for block in own], memory)
        copies = [replace(block, tensor=copy) for block, copy in zip(own, memory, strict=True)]
        return HostSnapshot(tuple(copies), wait)

    def _memory_for(self, block: Block) -> torch.Tensor:
        place = (block.key, block.offsets)
        memory = self._tensors.get(place)
        source = block.tensor
        if memory is None or memory.size() != source.size() or memory.dtype != source.dtype:
            # One tensor per block: DCP would clone a view of a larger tensor again.
            memory = torch.empty(source.size(), dtype=source.dtype, pin_memory=source.is_cuda)
            self._tensors[place] = memory
        return memory
