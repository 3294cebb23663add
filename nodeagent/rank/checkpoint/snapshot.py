"""A copy of this rank's own blocks in host memory, taken at an iteration boundary.

This is all of a checkpoint that blocks training. The memory is used again by the next copy, so a
copy must not be taken before the last one is written.

On a GPU the copies go into pinned memory on a stream of their own; the stream of the training waits
for them on the device, and the host goes on at once. That path has not been run yet.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch

from nodeagent.rank.checkpoint.whole import Block


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Blocks in host memory.

    Attributes:
        blocks: The copies; not to be read before ``wait_until_ready`` has returned.
        wait_until_ready: Blocks until the device has filled them.
    """

    blocks: tuple[Block, ...]
    wait_until_ready: Callable[[], None]


class HostMemory:
    """Memory for one copy of the blocks that this rank saves."""

    def __init__(self) -> None:
        self._tensors: dict[tuple[str, torch.Size], torch.Tensor] = {}
        self._stream: torch.cuda.Stream | None = None

    def take(self, blocks: Iterable[Block]) -> Snapshot:
        """Copy the blocks that are saved here."""
        own = [block for block in blocks if block.is_saved_here]
        is_on_gpu = any(block.tensor.is_cuda for block in own)
        if not is_on_gpu:
            return Snapshot(self._copied(own), _do_nothing)
        training = torch.cuda.current_stream()
        if self._stream is None:
            self._stream = _stream()
        self._stream.wait_stream(training)
        with torch.cuda.stream(self._stream):
            copies = self._copied(own)
        # The next update of the parameters must not overtake the copies.
        training.wait_stream(self._stream)
        copied = _event()
        copied.record(self._stream)
        return Snapshot(copies, copied.synchronize)

    def _copied(self, blocks: list[Block]) -> tuple[Block, ...]:
        with torch.no_grad():
            return tuple(self._copy(block) for block in blocks)

    def _copy(self, block: Block) -> Block:
        place = (block.key, block.offsets)
        memory = self._tensors.get(place)
        source = block.tensor
        if memory is None or memory.size() != source.size() or memory.dtype != source.dtype:
            # A tensor of its own per block: DCP would clone a view of something larger once more.
            memory = torch.empty(source.size(), dtype=source.dtype, pin_memory=source.is_cuda)
            self._tensors[place] = memory
        memory.copy_(source, non_blocking=source.is_cuda)
        return replace(block, tensor=memory)


def _stream() -> torch.cuda.Stream:
    make: Callable[[], torch.cuda.Stream] = torch.cuda.Stream
    return make()


def _event() -> torch.cuda.Event:
    make: Callable[[], torch.cuda.Event] = torch.cuda.Event
    return make()


def _do_nothing() -> None:
    """There is nothing to wait for where the copy was synchronous."""
