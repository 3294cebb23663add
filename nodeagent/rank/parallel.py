"""This rank's process groups, and the small collectives of our own that go over all ranks.

Megatron makes its groups over our rendezvous store. With gloo a group costs connections and store
calls at once, and Megatron asks for the same set of ranks under many names (a dense model's
data-parallel group has four), so equal sets share one group there. NCCL connects a group at its
first use, so unused ones cost nothing and Megatron's own are left alone.

A new generation means a new process (later: new groups in the same one), so nothing here is undone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

import torch
from megatron.core import parallel_state
from torch import distributed
from torch.distributed import ProcessGroup

from nodeagent.rank.store import AgentStore
from profiles.layout import Layout

COLLECTIVE_TIMEOUT_S: Final = 600.0
"""Bound of last resort on one collective; faults are found long before by other means."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where this rank stands in its task's layout.

    Attributes:
        global_rank: Rank in the world of the generation.
        layout: Sizes of the parallel groups.
        device: Device of this rank's tensors.
    """

    global_rank: int
    layout: Layout
    device: torch.device

    @property
    def tp_rank(self) -> int:
        """Position in the tensor-parallel group."""
        return self.layout.tp_rank(self.global_rank)

    @property
    def pp_rank(self) -> int:
        """Pipeline stage."""
        return self.layout.pp_rank(self.global_rank)

    @property
    def dp_rank(self) -> int:
        """Model replica."""
        return self.layout.dp_rank(self.global_rank)

    @property
    def is_first_stage(self) -> bool:
        """Whether this stage embeds tokens."""
        return self.pp_rank == 0

    @property
    def is_last_stage(self) -> bool:
        """Whether this stage computes the loss."""
        return self.pp_rank == self.layout.pp - 1

    def sum_over_all(self, numbers: Sequence[float]) -> list[float]:
        """Return the element-wise sums of ``numbers`` over all ranks; all ranks must call it.

        In float64, so that counts and byte sizes stay exact up to 2**53.
        """
        tensor = torch.tensor(list(numbers), dtype=torch.float64, device=self.device)
        distributed.all_reduce(tensor)
        sums: list[float] = tensor.tolist()
        return sums


def form_groups(store: AgentStore, place: Place, backend: Literal["gloo", "nccl"]) -> None:
    """Meet the other ranks of the generation and make all groups that Megatron needs.

    Blocks until every rank has come, at most for the store's timeout.
    """
    distributed.init_process_group(
        backend,
        store=store,
        rank=place.global_rank,
        world_size=place.layout.num_workers,
        timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S),
    )
    if backend == "gloo":
        state: Any = parallel_state
        state.create_group = _sharing(state.create_group)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=place.layout.tp,
        pipeline_model_parallel_size=place.layout.pp,
        order="tp-cp-ep-dp-pp",  # the order that profiles.layout numbers ranks in
        create_gloo_process_groups=False,  # for saving with the distributed optimizer only
        distributed_timeout_minutes=int(COLLECTIVE_TIMEOUT_S // 60),
    )


def _sharing(create_group: Callable[..., ProcessGroup]) -> Callable[..., ProcessGroup]:
    """Return ``create_group`` that makes one group per set of ranks, the world included."""
    world = tuple(range(distributed.get_world_size()))
    group_by_ranks = {world: distributed.group.WORLD}

    def shared(ranks: Sequence[int], **options: object) -> ProcessGroup:
        key = tuple(sorted(ranks))
        if key not in group_by_ranks:
            group_by_ranks[key] = create_group(ranks, **options)
        group = group_by_ranks[key]
        assert group is not None
        return group

    return shared
