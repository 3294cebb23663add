"""Sends shards of the state to the ranks that need them, at the start of a generation.

A shard comes from a rank that has it as its own state or as an in-memory checkpoint.

Without a sharded optimizer, only in-memory checkpoints are sent, to the first rank of each (tp,
pp). The other ranks get the state from that rank. A shard of a sharded optimizer goes to the rank
with its number. If the number of replicas has changed, it goes to all ranks at its (tp, pp), and
each takes its part.
"""

from collections.abc import Callable, Iterator
from typing import Final

import torch
from torch import distributed
from torch.distributed import P2POp, Work

from nodeagent.protocol.regroup import Resume, ShardHolder
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.state.held_copies import HeldCopies, ShardKey
from nodeagent.rank.state.rank_state import TrainingState

_PIECE_BYTES: Final = 64 * 2**20
"""A shard is sent in pieces: a GPU that trains has no memory for a second shard."""


_HOST: Final = torch.device("cpu")


class MissingShardError(Exception):
    """The ``Resume`` asks this rank for a shard that it does not have."""


def distribute_shards(
    resume: Resume,
    place: Place,
    state: TrainingState,
    copies: HeldCopies,
    wait: Callable[[Work], object],
    own: torch.Tensor | None = None,
) -> bool:
    """Send and receive the shards of ``resume``. All ranks of the generation must call it.

    Args:
        resume: Names the shards, their iteration and their holders.
        place: The place of this rank.
        state: The state of this rank, into which received shards are copied.
        copies: The in-memory checkpoints in this process.
        wait: Waits for an operation.
        own: The old shard of this rank, packed, if its new shard differs.

    Returns:
        Whether a part of this rank's state came from an in-memory checkpoint.

    Raises:
        MissingShardError: The directive does not fit this rank.
        RuntimeError: A peer was lost meanwhile.
    """
    is_divided_anew = resume.num_shards != place.layout.dp
    got_copy = False
    for shard in resume.shards:
        key = ShardKey(shard.tp_rank, shard.pp_rank, shard.dp_rank, resume.num_shards)
        data = None
        targets = _targets(shard, place, state, is_divided_anew=is_divided_anew)
        if shard.holder == place.global_rank and targets:
            if shard.is_copy:
                data = copies.data_of(key, resume.level)
            else:
                data = state.packed() if own is None else own
            if data is None:
                raise MissingShardError(f"no copy of {key} of iteration {resume.level}")
            for target in targets:
                if target != place.global_rank:
                    for piece in _pieces(data):
                        _move(distributed.isend, piece.to(_device(place)), target, wait)
        if place.global_rank in targets:
            if data is None:
                num_bytes = state.num_bytes(key.dp_rank, key.num_shards)
                data = torch.empty(num_bytes, dtype=torch.uint8)
                for piece in _pieces(data):
                    _receive(piece, shard.holder, _device(place), wait)
            state.take(data, key.dp_rank, key.num_shards)
            got_copy |= shard.is_copy
    return got_copy


def _device(place: Place) -> torch.device:
    """Return the device of tensors that the groups can send and receive."""
    return _HOST if distributed.get_backend() == "gloo" else place.device


def _pieces(data: torch.Tensor) -> Iterator[torch.Tensor]:
    for begin in range(0, data.numel(), _PIECE_BYTES):
        yield data[begin : begin + _PIECE_BYTES]


def _receive(
    piece: torch.Tensor, source: int, device: torch.device, wait: Callable[[Work], object]
) -> None:
    """Receive into host memory, through a tensor on the device of the groups."""
    received = torch.empty_like(piece, device=device)
    _move(distributed.irecv, received, source, wait)
    piece.copy_(received)


def _move(
    operation: Callable[..., Work | None],
    tensor: torch.Tensor,
    peer: int,
    wait: Callable[[Work], object],
) -> None:
    # As a batch: for a single operation NCCL would connect the two ranks, which no halt can end.
    for work in distributed.batch_isend_irecv([P2POp(operation, tensor, peer)]):
        wait(work)


def _targets(
    shard: ShardHolder, place: Place, state: TrainingState, *, is_divided_anew: bool
) -> list[int]:
    peers = place.ranks_at(shard.tp_rank, shard.pp_rank)
    if state.sharded is None:
        return peers[:1]
    if is_divided_anew:
        return peers
    owner = peers[shard.dp_rank]
    is_in_place = owner == shard.holder and not shard.is_copy
    return [] if is_in_place else [owner]
