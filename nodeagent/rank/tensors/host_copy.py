"""Copying tensors to host memory while training goes on.

On a GPU the copies go into pinned memory, on one stream of their own in the process. Training goes on
beside them: the next forward and backward passes only read what is copied, parameters and the
optimizer's state (a forward pass that changes buffers recovers nowhere). What changes it comes after ``wait_on_device``, which makes the device wait and the host go on. That path has not been run yet.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch


@dataclass(slots=True)
class _Copies:
    """What this process copies from its GPU."""

    stream: torch.cuda.Stream | None = None
    newest: torch.cuda.Event | None = None
    """Reached when the copies that were begun last, and so all before, are complete."""


_copies = _Copies()


def copy_to_host(
    sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]
) -> Callable[[], None]:
    """Copy each source to its target in host memory. Called by the training thread only.

    Returns:
        A function that blocks until the targets are filled, from any thread. On a CPU they are already.
    """
    if not any(source.is_cuda for source in sources):
        _copy_all(sources, targets)
        return _do_nothing
    if _copies.stream is None:
        _copies.stream = _stream()
    _copies.stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(_copies.stream):
        _copy_all(sources, targets)
    for source in sources:
        # One that nobody keeps must not be used again for something else before it is read. Some numbers
        # of the state are on the CPU all along.
        if source.is_cuda:
            source.record_stream(_copies.stream)
    copied = _copies.newest = _event()
    copied.record(_copies.stream)
    wait: Callable[[], None] = copied.synchronize
    return wait


def wait_on_device() -> None:
    """Have what the training's stream is given from now on begin after all copies. The host does not wait."""
    if _copies.newest is not None:
        torch.cuda.current_stream().wait_event(_copies.newest)
        _copies.newest = None


def _copy_all(sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source, non_blocking=source.is_cuda)


def _stream() -> torch.cuda.Stream:
    make: Callable[[], torch.cuda.Stream] = torch.cuda.Stream
    return make()


def _event() -> torch.cuda.Event:
    # A thread that waits for it sleeps instead of asking the device again and again.
    make: Callable[..., torch.cuda.Event] = torch.cuda.Event
    return make(blocking=True)


def _do_nothing() -> None:
    """There is nothing to wait for where the copy was synchronous."""
