"""Gives a model of an earlier generation the process groups of the new one.

Megatron's modules and optimizers keep references to the process groups of their construction. Each
reference is replaced by the group with the same role in the new generation. Parameters, optimizer
state and gradient buffers stay in place.

A reference is recognised by the object that it holds, because its name differs from module to
module. That is unambiguous: two roles share a group only if they have the same ranks in every
layout with this tp and pp (``parallel_groups``).
"""

from collections.abc import Iterable
from typing import Any, Final

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import MegatronOptimizer
from megatron.core.process_groups_config import ProcessGroupCollection
from torch import distributed
from torch.distributed import ProcessGroup

_ROLE_SUFFIXES: Final = ("_GROUP", "_GROUP_WITH_CP", "_GROUP_WITH_CP_AG", "_GROUP_GLOO")
_WORLD: Final = "WORLD"


class StaleGroupError(Exception):
    """A reference to a process group of an ended generation can't be replaced."""


def groups_by_role() -> dict[str, ProcessGroup]:
    """Return Megatron's present groups and the world, each under the name of its role."""
    roles = {
        name: group
        for name, group in vars(parallel_state).items()
        if name.endswith(_ROLE_SUFFIXES) and isinstance(group, ProcessGroup)
    }
    world = distributed.group.WORLD
    return {**roles, _WORLD: world} if world is not None else roles


def rebind(
    chunks: Iterable[DistributedDataParallel],
    optimizer: MegatronOptimizer,
    old: dict[str, ProcessGroup],
    new: dict[str, ProcessGroup],
) -> int:
    """Replace every reference to a group of ``old`` and return how many there were.

    Raises:
        StaleGroupError: An old group has no counterpart, so the model can't be used.
    """
    by_old = {id(group): new.get(role) for role, group in old.items()}
    num_replaced = 0
    for holder in _holders(chunks, optimizer):
        attributes = vars(holder)
        for name, value in list(attributes.items()):
            if not isinstance(value, ProcessGroup) or id(value) not in by_old:
                continue
            group = by_old[id(value)]
            if group is None:
                raise StaleGroupError(f"{type(holder).__name__}.{name} has no new process group")
            attributes[name] = group
            num_replaced += 1
    return num_replaced


def _holders(
    chunks: Iterable[DistributedDataParallel], optimizer: MegatronOptimizer
) -> list[object]:
    """Return every object that may hold a reference, without repetition."""
    found: dict[int, object] = {}
    optimizers = getattr(optimizer, "chained_optimizers", [])
    for holder in [optimizer, *optimizers]:
        found[id(holder)] = holder
    for chunk in chunks:
        wrapper: Any = chunk
        modules: list[torch.nn.Module] = list(chunk.modules())
        for holder in [*modules, *wrapper.buffers]:
            found[id(holder)] = holder
    for holder in list(found.values()):
        for value in vars(holder).values():
            if isinstance(value, ProcessGroupCollection):
                found[id(value)] = value
    return list(found.values())
