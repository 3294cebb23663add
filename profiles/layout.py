"""How a task's workers are divided into tensor, pipeline and data parallelism.

Ranks are numbered as Megatron numbers them by default (``tp-dp-pp``): neighbours in global rank
share a tensor-parallel group, and pipeline stages are farthest apart.
"""

from dataclasses import dataclass
from typing import Final

LARGEST: Final = 10**12
"""No size, count or interval of a task is larger. Products of several stay inside a float."""


@dataclass(frozen=True, slots=True, order=True)
class Layout:
    """Sizes of the parallel groups of one task.

    Attributes:
        tp: Ranks that share each matrix (tensor parallelism).
        pp: Pipeline stages.
        dp: Model replicas (data parallelism).
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1

    def __post_init__(self) -> None:
        if min(self.tp, self.pp, self.dp) < 1:
            raise ValueError(f"layout {self} has a size below 1")
        if max(self.tp, self.pp, self.dp) > LARGEST:
            raise ValueError(f"a size of a layout is above {LARGEST}")

    @property
    def num_workers(self) -> int:
        """Workers that the layout needs: one per rank."""
        return self.tp * self.pp * self.dp

    def tp_rank(self, global_rank: int) -> int:
        """Return the position of ``global_rank`` inside its tensor-parallel group."""
        return global_rank % self.tp

    def dp_rank(self, global_rank: int) -> int:
        """Return the model replica that ``global_rank`` belongs to."""
        return global_rank // self.tp % self.dp

    def pp_rank(self, global_rank: int) -> int:
        """Return the pipeline stage of ``global_rank``."""
        return global_rank // (self.tp * self.dp)

    @property
    def model(self) -> int:
        """How it splits the model: a number that layouts of equal tp and pp share.

        Among them a rank keeps its part of the state. All others load it from disk.
        """
        return (self.tp << 32) + self.pp

    def __str__(self) -> str:
        return f"tp{self.tp} pp{self.pp} dp{self.dp}"
