"""Refuses collectives while a program builds its model: no other rank would answer."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from torch import distributed


class CollectiveWhileBuildingError(Exception):
    """A program called a collective while it built its loop, which it must do without peers."""


_NEEDS_PEERS: Final = (
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "new_group",
    "reduce_scatter_tensor",
)


@contextlib.contextmanager
def refusing_collectives() -> Iterator[None]:
    """Make collectives inside the block raise at once, instead of waiting for peers.

    A replacement builds its model while its peers keep theirs, so no peer would answer. The block
    refuses collectives at the first start too, where they would work.

    ``all_gather_object`` is the exception: inside the block it gathers this rank's object only.
    Megatron calls it to number parameter groups alike in checkpoints. Our checkpoints name
    parameters and don't need that.

    Raises:
        CollectiveWhileBuildingError: From a collective inside the block.
    """
    module: Any = distributed
    originals = {name: getattr(module, name) for name in ("all_gather_object", *_NEEDS_PEERS)}

    def answer_with_own(answers: list[object], own: object, *_: object, **__: object) -> None:
        answers[:] = [own] * len(answers)

    module.all_gather_object = answer_with_own
    for name in _NEEDS_PEERS:
        setattr(module, name, _refusing(name))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(module, name, original)


def _refusing(name: str) -> Callable[..., None]:
    def refuse(*_: object, **__: object) -> None:
        raise CollectiveWhileBuildingError(f"torch.distributed.{name} was called")

    return refuse
