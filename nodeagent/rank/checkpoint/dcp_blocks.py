"""Blocks in the form that ``torch.distributed.checkpoint`` (DCP) understands.

DCP asks an object for its parts through ``__create_write_items__`` and ``__create_chunk_list__``,
which needs no process group. Its planners, its file format and its resharding are used as they are.
Its collectives are not used: a rank writes (``part_writing``) and reads (``block_reading``) without
its peers, and the manifest lists the blocks of all ranks.
"""

from collections.abc import Iterable

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import (
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)

from nodeagent.rank.checkpoint.manifest import StoredBlock
from nodeagent.rank.checkpoint.whole_model import Block


class WholeTensor:
    """The blocks of one tensor of the whole model that this rank holds."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._blocks = {block.offsets: block for block in blocks}

    def __create_write_items__(self, fqn: str, _: object) -> list[WriteItem]:
        return [
            write_item(
                fqn, block.whole_size, block.offsets, block.tensor.size(), block.tensor.dtype
            )
            for block in self._blocks.values()
        ]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [
            ChunkStorageMetadata(block.offsets, block.tensor.size())
            for block in self._blocks.values()
        ]

    def tensor_at(self, offsets: torch.Size | None) -> torch.Tensor:
        """Return the local tensor of the block that begins at ``offsets``."""
        assert offsets is not None
        return self._blocks[offsets].tensor


def whole_tensors(blocks: Iterable[Block]) -> dict[str, WholeTensor]:
    """Return DCP's state dict of ``blocks``."""
    by_key: dict[str, list[Block]] = {}
    for block in blocks:
        by_key.setdefault(block.key, []).append(block)
    return {key: WholeTensor(group) for key, group in by_key.items()}


def write_item(
    key: str, whole_size: torch.Size, offsets: torch.Size, sizes: torch.Size, dtype: torch.dtype
) -> WriteItem:
    """Return DCP's order to write one block."""
    return WriteItem(
        index=MetadataIndex(key, offsets),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(offsets, sizes),
            properties=TensorProperties(dtype=dtype),
            size=whole_size,
        ),
    )


def metadata_of(blocks: Iterable[StoredBlock]) -> Metadata:
    """Return DCP's metadata of a checkpoint that consists of ``blocks``.

    Raises:
        ValueError: The blocks overlap.
    """
    listed = list(blocks)
    items = [
        write_item(
            block.key,
            torch.Size(block.whole_size),
            torch.Size(block.offsets),
            torch.Size(block.sizes),
            getattr(torch, block.dtype),
        )
        for block in listed
    ]
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    _, metadata = planner.create_global_plan([SavePlan(items), SavePlan([])])
    metadata.storage_data = {
        item.index: _StorageInfo(block.file, block.position, block.num_bytes)
        for item, block in zip(items, listed, strict=True)
    }
    return metadata
