"""Reads this rank's blocks from the files of any layout.

``torch.distributed.checkpoint`` plans which parts of which files to read. It would leave elements
unchanged that its plan does not cover. Here such a gap is an error.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import LoadPlan

from nodeagent.rank.checkpoint.dcp_blocks import WholeTensor, metadata_of, whole_tensors
from nodeagent.rank.checkpoint.manifest import CheckpointError, DamagedError, StoredBlock
from nodeagent.rank.checkpoint.whole_model import Block


class BlockReading:
    """The plan of a rank's reads to fill its blocks.

    Raises:
        CheckpointError: A tensor is missing in the checkpoint, or has another size.
        DamagedError: Parts of a tensor are missing.
    """

    def __init__(self, directory: Path, stored: Iterable[StoredBlock], blocks: list[Block]) -> None:
        metadata = metadata_of(stored)
        _check_sizes(metadata, blocks)
        self._reader = FileSystemReader(directory)
        self._planner = _LoadPlanner()
        self._planner.set_up_planner(cast("dict[str, Any]", whole_tensors(blocks)), metadata)
        self._reader.set_up_storage_reader(metadata, is_coordinator=False)
        plan = self._reader.prepare_local_plan(self._planner.create_local_plan())
        self._plan = self._planner.finish_plan(plan)
        _check_covered(plan, blocks)

    @property
    def files(self) -> set[str]:
        """Names of the files to read."""
        storage = self._reader.storage_data
        return {storage[item.storage_index].relative_path for item in self._plan.items}

    def read(self) -> None:
        """Fill the blocks. Verify the files before: they hold (restricted) pickles."""
        self._reader.read_data(self._plan, self._planner).wait()


class _LoadPlanner(DefaultLoadPlanner):
    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        self.state_dict = state_dict
        self.metadata = metadata
        self.is_coordinator = is_coordinator

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        tensor: WholeTensor = self.state_dict[index.fqn]
        return tensor.tensor_at(index.offset)


def _check_sizes(metadata: Metadata, blocks: list[Block]) -> None:
    stored: Mapping[str, Any] = metadata.state_dict_metadata
    for block in blocks:
        if block.key not in stored:
            raise CheckpointError(f"it has no {block.key}")
        if stored[block.key].size != block.whole_size:
            sizes = f"{tuple(stored[block.key].size)} instead of {tuple(block.whole_size)}"
            raise CheckpointError(f"its {block.key} is {sizes}")


def _check_covered(plan: LoadPlan, blocks: list[Block]) -> None:
    num_read: dict[tuple[str, torch.Size | None], int] = {}
    for item in plan.items:
        place = (item.dest_index.fqn, item.dest_index.offset)
        num_read[place] = num_read.get(place, 0) + math.prod(item.lengths)
    for block in blocks:
        if num_read.get((block.key, block.offsets), 0) != block.tensor.numel():
            raise DamagedError(f"parts of {block.key} are missing")
