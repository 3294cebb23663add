"""Copying tensors to host memory while training goes on.

On a GPU the copies go into pinned memory on a stream of their own; the stream of the training waits
for them on the device, and the host goes on at once. That path has not been run yet.
"""

from collections.abc import Callable, Sequence

import torch


class HostCopier:
    """Copies of one process, one after another."""

    def __init__(self) -> None:
        self._stream: torch.cuda.Stream | None = None

    def copy(
        self, sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]
    ) -> Callable[[], None]:
        """Copy each source to its target in host memory.

        Returns:
            A function that blocks until the targets are filled. On a CPU they are already.
        """
        is_on_gpu = any(source.is_cuda for source in sources)
        if not is_on_gpu:
            _copy_all(sources, targets)
            return _do_nothing
        training = torch.cuda.current_stream()
        if self._stream is None:
            self._stream = _stream()
        self._stream.wait_stream(training)
        with torch.cuda.stream(self._stream):
            _copy_all(sources, targets)
        # The next update of the parameters must not overtake the copies.
        training.wait_stream(self._stream)
        copied = _event()
        copied.record(self._stream)
        wait: Callable[[], None] = copied.synchronize
        return wait


def _copy_all(sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source, non_blocking=source.is_cuda)


def _stream() -> torch.cuda.Stream:
    make: Callable[[], torch.cuda.Stream] = torch.cuda.Stream
    return make()


def _event() -> torch.cuda.Event:
    make: Callable[[], torch.cuda.Event] = torch.cuda.Event
    return make()


def _do_nothing() -> None:
    """There is nothing to wait for where the copy was synchronous."""
