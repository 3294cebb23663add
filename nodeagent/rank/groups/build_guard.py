"""Building a model and an optimizer while no other rank answers."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from torch import distributed


class CollectiveWhileBuildingError(Exception):
    """A program wanted to communicate where it must build alone."""


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
    """Build a model and an optimizer inside the block without waiting for any other rank.

    A replacement builds while its peers keep what they have, so nobody would answer. Megatron asks
    all ranks for the names of their parameter groups, to number them alike in checkpoints; ours name
    parameters. Inside the block a rank hears itself only, and any other collective raises at once,
    also at the first start, where it would work.

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
