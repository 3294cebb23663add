"""Maps a rank's tensors to the whole model: blocks of tensors that no layout divides.

Megatron describes the mapping: ``sharded_state_dict`` of a model and of an optimizer returns trees.
Each leaf names a tensor of the whole model and the place of the local tensor in it. This module
turns such trees into blocks and *shared values*. Shared values are the optimizer's values beside
tensors of the model's shape, such as step and learning rates. They are equal on all ranks and are
kept as JSON.

Blocks refer to the tensors of the model and the optimizer: a write into a block changes the model.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from megatron.core.dist_checkpointing.mapping import (
    LocalNonpersistentObject,
    ShardedObject,
    ShardedTensor,
    ShardedTensorFactory,
    is_main_replica,
)
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import MegatronOptimizer

from nodeagent.rank.checkpoint.manifest import CheckpointError
from nodeagent.rank.tensors.tensor_boxes import boxes_of_run

StateTree = Any
"""The result of Megatron's ``sharded_state_dict``: dicts and lists with sharded leaves."""

SharedValues = Any
"""A tree of values that JSON can hold."""

_TENSOR: Final = "tensor"  # Key that marks a tensor among the shared values.
_LARGEST_SHARED_TENSOR: Final = 64
_MISSING: Final = object()
_GROUPS: Final = "param_groups"
_KIND: Final = ("wd_mult", "lr_mult", "is_expert_parallel", "is_decoupled_lr", "optimizer")
_RATES: Final = ("max_lr", "min_lr", "start_wd", "end_wd")
_METADATA: Final = {
    "distrib_optim_sharding_type": "fully_reshardable",
    "chained_optim_avoid_prefix": True,
}


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A part of one tensor of the whole model.

    Attributes:
        key: Name of that tensor.
        whole_size: Its size.
        offsets: Where the block begins in that tensor.
        tensor: The local tensor, a view with the dimensions of the whole one.
        is_saved_here: Whether this rank writes the block. Exactly one rank does.
    """

    key: str
    whole_size: torch.Size
    offsets: torch.Size
    tensor: torch.Tensor
    is_saved_here: bool


@dataclass(frozen=True, slots=True, eq=False)
class FlatSlice:
    """A leaf for optimizers whose state is sharded over data-parallel ranks.

    Megatron's own leaves can't express it: a run of consecutive elements of a parameter's state
    that no other replica has. The names on disk are the names of unsharded state. So a sharded and
    an unsharded optimizer can read each other's checkpoints.

    Attributes:
        parameter: The parameter's leaf in the model's tree.
        name: Which state, for instance ``exp_avg``.
        begin: First element of the run in the flattened local parameter.
        data: The run, of one dimension.
    """

    parameter: ShardedTensor
    name: str
    begin: int
    data: torch.Tensor

    def blocks(self) -> Iterable[Block]:
        """Yield the run as blocks of the whole tensor."""
        parameter, position = self.parameter, 0
        end = self.begin + self.data.numel()
        lead = (0,) * parameter.prepend_axis_num
        for offsets, sizes in boxes_of_run(parameter.local_shape, self.begin, end):
            num_elements = math.prod(sizes)
            run = self.data.detach()[position : position + num_elements]
            position += num_elements
            pairs = zip(parameter.global_offset, (*lead, *offsets), strict=True)
            yield Block(
                key=f"optimizer.state.{self.name}.{parameter.key}",
                whole_size=torch.Size(parameter.global_shape),
                offsets=torch.Size(base + offset for base, offset in pairs),
                tensor=run.view((*(1 for _ in lead), *sizes)),
                is_saved_here=_is_main_but_for_dp(parameter.replica_id),
            )


@dataclass(slots=True)
class WholeState:
    """The state of a rank: its blocks, and the tree of the optimizer."""

    blocks: list[Block] = field(default_factory=list)
    optimizer: StateTree = None

    @property
    def shared(self) -> SharedValues:
        """The optimizer's values beside blocks.

        Raises:
            CheckpointError: A value can't be written as JSON.
        """
        return _shared(self.optimizer, "optimizer")

    def restore_shared(self, optimizer: MegatronOptimizer, stored: SharedValues) -> None:
        """Give ``optimizer`` the ``stored`` values. Its tensors stay those of ``blocks``.

        Raises:
            CheckpointError: The values are of another optimizer.
        """
        merged = _merged(self.optimizer, stored, "optimizer")
        _take_rates(optimizer.param_groups, _groups_in(merged))
        optimizer.load_state_dict(merged)


def whole_state(
    chunks: Sequence[DistributedDataParallel], optimizer: MegatronOptimizer, *, is_loading: bool
) -> WholeState:
    """Return the state of this rank.

    Args:
        chunks: The model; several chunks with virtual pipeline stages.
        optimizer: Its optimizer.
        is_loading: Whether the state will be replaced. An optimizer without a step gets its state
            tensors then, since Adam makes them only at its first step.

    Raises:
        CheckpointError: A part of the state can't be expressed in blocks.
    """
    model: dict[str, Any] = {
        f"model{number}": chunk.module.sharded_state_dict() for number, chunk in enumerate(chunks)
    }
    # Before the blocks are taken: the optimizer finds its parameters in the model's tree.
    tree = optimizer.sharded_state_dict(model, is_loading=is_loading, metadata=dict(_METADATA))
    state = WholeState(optimizer=tree)
    for part in (model, tree):
        state.blocks.extend(_blocks(part))
    _check_distinct(state.blocks)
    return state


def _blocks(node: StateTree) -> Iterable[Block]:
    match node:
        case dict():
            for value in node.values():
                yield from _blocks(value)
        case list() | tuple():
            for value in node:
                yield from _blocks(value)
        case ShardedTensor():
            yield _block(node)
        case ShardedTensorFactory():
            yield from _built(node)
        case FlatSlice():
            yield from node.blocks()
        case ShardedObject():
            _check_empty(node)
        case _:
            pass


def _block(sharded: ShardedTensor) -> Block:
    assert sharded.data is not None, sharded.key
    tensor = sharded.data.detach()
    for _ in range(sharded.prepend_axis_num):
        tensor = tensor.unsqueeze(0)
    return Block(
        key=sharded.key,
        whole_size=torch.Size(sharded.global_shape),
        offsets=torch.Size(sharded.global_offset),
        tensor=tensor,
        is_saved_here=is_main_replica(sharded.replica_id),
    )


def _is_main_but_for_dp(replica_id: int | tuple[int, ...]) -> bool:
    # The last element is the data-parallel rank. Each data-parallel rank has a run of its own.
    return isinstance(replica_id, int) or is_main_replica((*replica_id[:-1], 0))


def _built(factory: ShardedTensorFactory) -> Iterable[Block]:
    storage = factory.data.untyped_storage().data_ptr()
    for block in _blocks(factory.build()):
        if block.tensor.untyped_storage().data_ptr() != storage:
            raise CheckpointError(
                f"{block.key} is a rearranged copy of a parameter and can't be loaded in place"
            )
        yield block


def _check_empty(sharded: ShardedObject) -> None:
    # Transformer Engine keeps the scales of FP8 here. Without FP8 the objects are empty.
    data = sharded.data
    is_empty = data is None or (isinstance(data, torch.Tensor) and data.numel() == 0)
    if not is_empty:
        raise CheckpointError(f"{sharded.key} holds state that is no tensor, for instance of FP8")


def _check_distinct(blocks: list[Block]) -> None:
    seen: set[tuple[str, torch.Size]] = set()
    for block in blocks:
        place = (block.key, block.offsets)
        if place in seen:
            raise CheckpointError(
                f"two tensors of one rank are both {block.key} at {block.offsets}"
            )
        seen.add(place)


# --- shared values -----------------------------------------------------------------------------


def _is_sharded(node: object) -> bool:
    kinds = (ShardedTensor, ShardedTensorFactory, ShardedObject, FlatSlice)
    return isinstance(node, (*kinds, LocalNonpersistentObject))


def _shared(node: StateTree, path: str) -> SharedValues:
    match node:
        case dict():
            shared = {str(key): _shared(value, f"{path}.{key}") for key, value in node.items()}
            return {key: value for key, value in shared.items() if _is_worth_storing(value)}
        case list() | tuple():
            elements = [_shared(value, f"{path}.{i}") for i, value in enumerate(node)]
            if all(value is _MISSING for value in elements):
                # Copies of parameters: their number differs from stage to stage.
                return _MISSING
            return [None if value is _MISSING else value for value in elements]
        case torch.Tensor() if node.numel() <= _LARGEST_SHARED_TENSOR:
            return {_TENSOR: str(node.dtype).removeprefix("torch."), "values": node.tolist()}
        case None | bool() | int() | float() | str():
            return node
        case _ if _is_sharded(node):
            return _MISSING
        case _:
            kind = type(node).__name__
            raise CheckpointError(f"{path} of type {kind} can't be saved in a checkpoint")


def _is_worth_storing(shared: SharedValues) -> bool:
    return shared is not _MISSING and shared != {}


def _merged(node: StateTree, stored: SharedValues, path: str) -> StateTree:
    """Return ``node`` with local tensors for the sharded leaves and ``stored`` values elsewhere."""
    match node:
        case ShardedTensor() | ShardedTensorFactory() | ShardedObject() | FlatSlice():
            return node.data
        case LocalNonpersistentObject():
            return node.unwrap()
        case dict():
            return _merged_dict(node, stored, path)
        case list() | tuple():
            if stored is _MISSING:
                stored = [_MISSING] * len(node)
            if not isinstance(stored, list) or len(stored) != len(node):
                raise CheckpointError(f"{path} has {len(node)} entries, the checkpoint has others")
            pairs = zip(node, stored, strict=True)
            return type(node)(_merged(a, b, f"{path}.{i}") for i, (a, b) in enumerate(pairs))
        case _:
            return node if stored is _MISSING else _decoded(stored)


def _merged_dict(node: dict[Any, Any], stored: SharedValues, path: str) -> dict[Any, Any]:
    if stored is _MISSING:
        stored = {}
    if not isinstance(stored, dict):
        raise CheckpointError(f"{path} has another structure in the checkpoint")
    merged = {
        key: _merged(value, stored.get(str(key), _MISSING), f"{path}.{key}")
        for key, value in node.items()
    }
    known = {str(key) for key in node}
    # Values that the optimizer gets only with its first step, such as Adam's step count.
    new = {key: _decoded(value) for key, value in stored.items() if key not in known}
    return merged | new


def _groups_in(node: StateTree) -> Iterable[dict[str, Any]]:
    """Yield the parameter groups of an optimizer's tree."""
    if isinstance(node, dict):
        yield from node.get(_GROUPS, ())
        node = list(node.values())
    if isinstance(node, list):
        for value in node:
            yield from _groups_in(value)


def _take_rates(groups: Sequence[dict[str, Any]], stored: Iterable[dict[str, Any]]) -> None:
    """Give parameter groups the limits of the stored learning rates and weight decays.

    Megatron 0.19 finds a group by these values too, and would refuse a checkpoint as soon as the
    learning rate of its task had been changed.
    """
    by_kind: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for group in stored:
        by_kind.setdefault(_kind(group), []).append(group)
    for group in groups:
        found = by_kind.get(_kind(group), [])
        if found and all(_rates(each) == _rates(found[0]) for each in found):
            group.update(_rates(found[0]))


def _kind(group: dict[str, Any]) -> tuple[object, ...]:
    return tuple(group.get(key, group.get(f"pre_{key}")) for key in _KIND)


def _rates(group: dict[str, Any]) -> dict[str, Any]:
    return {key: group[key] for key in _RATES if key in group}


def _decoded(stored: SharedValues) -> StateTree:
    if isinstance(stored, dict):
        if _TENSOR in stored:
            return torch.tensor(stored["values"], dtype=getattr(torch, stored[_TENSOR]))
        return {key: _decoded(value) for key, value in stored.items()}
    if isinstance(stored, list):
        return [_decoded(value) for value in stored]
    return stored
