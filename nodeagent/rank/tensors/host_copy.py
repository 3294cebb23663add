"""Copying tensors to host memory while training continues.

On a GPU the copies go into pinned memory, on a separate stream. Training continues meanwhile: the
next forward and backward passes only read the parameters and the optimizer's state. (A model whose
forward pass changes buffers can't recover anyway.) Call ``wait_on_device`` before a change of the
state: it makes the device wait for the copies while the host continues. The path for GPUs has
not been run yet.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch


@dataclass(slots=True)
class _Copies:
    """The copies from the GPU of this process."""

    stream: torch.cuda.Stream | None = None
    newest: torch.cuda.Event | None = None
    """Reached when the newest copies, and so all earlier ones, are complete."""


_copies = _Copies()


def copy_to_host(
    sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]
) -> Callable[[], None]:
    """Copy each source to its target in host memory. Only the training thread may call it.

    Returns:
        A function that blocks until the targets are filled. Any thread may call it. On a CPU the
        targets are filled already.
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
        # Otherwise torch could reuse the memory of a temporary source before it is copied. Some
        # numbers of the state are on the CPU, and need nothing.
        if source.is_cuda:
            source.record_stream(_copies.stream)
    copied = _copies.newest = _event()
    copied.record(_copies.stream)
    wait: Callable[[], None] = copied.synchronize
    return wait


def wait_on_device() -> None:
    """Make later operations on the training stream wait for all copies. The host does not wait."""
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
    # Blocking: a thread that waits for the event sleeps instead of polling the device.
    make: Callable[..., torch.cuda.Event] = torch.cuda.Event
    return make(blocking=True)


def _do_nothing() -> None:
    """Return at once: the copy was synchronous."""
