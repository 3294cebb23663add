"""The place of a rank in its generation, and a small collective over all ranks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import distributed

from nodeagent.rank.groups.halting import wait_unless_halted
from profiles.layout import Layout


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a rank in its task's layout.

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

    def ranks_at(self, tp_rank: int, pp_rank: int) -> list[int]:
        """Return the global ranks with one part of the model: one per replica, in order."""
        layout = self.layout
        return [
            rank
            for rank in range(layout.num_workers)
            if (layout.tp_rank(rank), layout.pp_rank(rank)) == (tp_rank, pp_rank)
        ]

    def sum_over_all(
        self, numbers: Sequence[float], is_halted: Callable[[], bool] = lambda: False
    ) -> list[float]:
        """Return the element-wise sums of ``numbers`` over all ranks; all ranks must call it.

        In float64, so that counts and byte sizes stay exact up to 2**53.

        Raises:
            RuntimeError: A peer was lost.
            HaltedError: The generation was halted.
        """
        tensor = torch.tensor(list(numbers), dtype=torch.float64, device=self.device)
        wait_unless_halted(distributed.all_reduce(tensor, async_op=True), is_halted)
        sums: list[float] = tensor.tolist()
        return sums
