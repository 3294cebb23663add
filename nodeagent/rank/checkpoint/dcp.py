"""Blocks as ``torch.distributed.checkpoint`` (DCP) plans, writes and reads them.

DCP asks an object for its parts through ``__create_write_items__`` and ``__create_chunk_list__``,
which needs no process group. Its planners, its file format and its resharding are used as they are;
its collectives are not: whoever writes and whoever reads works alone, and what ranks have to know
of each other lies in the manifest.
"""

import io
import math
import os
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import (
    FileSystem,
    FileSystemReader,
    FileSystemWriter,
    _StorageInfo,
)
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import WriteResult
from typing_extensions import Buffer

from nodeagent.rank.checkpoint.manifest import (
    CheckpointError,
    DamagedError,
    Part,
    StoredBlock,
    StoredFile,
)
from nodeagent.rank.checkpoint.whole import Block

METADATA: Final = ".metadata"
_WRITE_SIZE: Final = 1 << 22


class AbandonedError(Exception):
    """The write was told to stop."""


class WholeTensor:
    """One tensor of the whole model, as far as this rank holds it."""

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


# --- write ---------------------------------------------------------------------------------------


def write_part(
    directory: Path, global_rank: int, blocks: Iterable[Block], check: Callable[[], None]
) -> Part:
    """Write ``blocks``, which lie in host memory, into the file of ``global_rank``, and sync it.

    Args:
        directory: Where; it exists.
        global_rank: Names the file.
        blocks: What.
        check: Called between blocks; what it raises ends the write.

    Raises:
        OSError: The file can't be written, for instance because the disk is full.
    """
    planner = _SavePlanner(check)
    planner.set_up_planner(cast("dict[str, Any]", whole_tensors(blocks)))
    plan = planner.create_local_plan()
    if not plan.items:
        return Part(files=(), blocks=())
    # With no bytes to copy ahead it reads host memory one by one, on a GPU machine too.
    writer = FileSystemWriter(directory, per_thread_copy_ahead=0)
    files = writer.fs = _CheckedFiles()
    writer.set_up_storage_writer(is_coordinator=False, rank=global_rank, use_collectives=False)
    plan = writer.prepare_local_plan(planner.finish_plan(plan))
    results = writer.write_data(plan, planner).wait()
    items = {item.index: item for item in plan.items}
    return Part(
        files=tuple(files.written),
        blocks=tuple(_stored(items[result.index], result) for result in results),
    )


def write_metadata(directory: Path, blocks: Iterable[StoredBlock]) -> StoredFile:
    """Write DCP's own ``.metadata``, so that other programs can read the checkpoint.

    Raises:
        ValueError: The blocks overlap or leave a gap.
    """
    metadata = metadata_of(blocks)
    results = [
        WriteResult(index, storage.length, storage)
        for index, storage in metadata.storage_data.items()
    ]
    writer = FileSystemWriter(directory)
    files = writer.fs = _CheckedFiles()
    writer.finish(metadata, [results])
    return files.written[0].model_copy(update={"name": METADATA})


def _stored(item: WriteItem, result: WriteResult) -> StoredBlock:
    data, place = item.tensor_data, result.storage_data
    assert data is not None
    return StoredBlock(
        key=item.index.fqn,
        whole_size=tuple(data.size),
        offsets=tuple(data.chunk.offsets),
        sizes=tuple(data.chunk.sizes),
        dtype=str(data.properties.dtype).removeprefix("torch."),
        file=place.relative_path,
        position=place.offset,
        num_bytes=place.length,
    )


class _SavePlanner(DefaultSavePlanner):
    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._check = check

    def lookup_object(self, index: MetadataIndex) -> torch.Tensor:
        self._check()
        tensor: WholeTensor = self.state_dict[index.fqn]
        return tensor.tensor_at(index.offset)


class _CheckedFiles(FileSystem):
    """Files whose size and checksum are known once they are written."""

    def __init__(self) -> None:
        self.written: list[StoredFile] = []

    @contextmanager
    def create_stream(
        self, path: str | os.PathLike[str], mode: str
    ) -> Generator[io.IOBase, None, None]:
        assert mode == "wb"
        with _CheckedFile(Path(path)) as raw:
            with io.BufferedWriter(raw, _WRITE_SIZE) as buffered:
                yield buffered
            raw.raise_error()
        self.written.append(StoredFile(name=raw.name, num_bytes=raw.num_bytes, crc32=raw.crc32))


class _CheckedFile(io.RawIOBase):
    """Counts and checks what it writes, and raises late.

    An exception inside ``torch.save`` would pass through destructors in C++ that finish the archive
    by writing again; so an error is kept, later writes are dropped, and it is raised where the file
    is synced or closed.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.name = path.name
        self.num_bytes = 0
        self.crc32 = 0
        self._path = path
        self._error: OSError | None = None
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.num_bytes

    def fileno(self) -> int:
        self.raise_error()
        return self._descriptor

    def write(self, data: Buffer) -> int:
        view = memoryview(data).cast("B")
        if self._error is None:
            try:
                self._write_all(view)
            except OSError as error:
                self._error = OSError(error.errno, error.strerror, str(self._path))
        self.crc32 = zlib.crc32(view, self.crc32)
        self.num_bytes += len(view)
        return len(view)

    def raise_error(self) -> None:
        """Raise the error that a write met, if any."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()

    def _write_all(self, view: memoryview) -> None:
        position = 0
        while position < len(view):
            position += os.write(self._descriptor, view[position : position + _WRITE_SIZE])


# --- read ----------------------------------------------------------------------------------------


class Reading:
    """What a rank has to read to fill its blocks.

    Raises:
        CheckpointError: The checkpoint has no tensor of that name, or one of another size.
        DamagedError: It has not all of it.
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
        """Names of the files that it reads from."""
        storage = self._reader.storage_data
        return {storage[item.storage_index].relative_path for item in self._plan.items}

    def read(self) -> None:
        """Fill the blocks. Verify the files before: they hold pickles, though restricted ones."""
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
