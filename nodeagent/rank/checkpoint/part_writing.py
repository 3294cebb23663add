"""Writes this rank's blocks into one file of ``torch.distributed.checkpoint``.

The file's size and checksum are computed while it is written, so it is not read back.

Ranks report by files in the checkpoint's directory, its *parts*. A rank that has written its blocks
adds ``part_<rank>.json``. If it could not write them, or was busy with the last checkpoint, it adds
``part_<rank>.missing``, and global rank 0 gives the checkpoint up. The names contain a word of the
run, so that parts of another run are not mistaken for its own.
"""

import contextlib
import io
import logging
import os
import zlib
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import WriteItem
from torch.distributed.checkpoint.storage import WriteResult
from typing_extensions import Buffer

from nodeagent.rank.checkpoint.checkpoint_directory import sync_directory, write_durably
from nodeagent.rank.checkpoint.dcp_blocks import WholeTensor, metadata_of, whole_tensors
from nodeagent.rank.checkpoint.manifest import METADATA, CheckpointPart, StoredBlock, StoredFile
from nodeagent.rank.checkpoint.whole_model import Block

_WRITE_SIZE: Final = 1 << 22

_LOG = logging.getLogger(__name__)


class AbandonedError(Exception):
    """The write was stopped, because the generation ended."""


def write_part(
    directory: Path, global_rank: int, blocks: Iterable[Block], check: Callable[[], None]
) -> CheckpointPart:
    """Write ``blocks`` from host memory into the file of ``global_rank``, and sync it.

    Args:
        directory: An existing directory.
        global_rank: Part of the file's name.
        blocks: The blocks to write.
        check: Called between blocks. An exception in it ends the write.

    Raises:
        OSError: The file can't be written, for instance because the disk is full.
    """
    planner = _SavePlanner(check)
    planner.set_up_planner(cast("dict[str, Any]", whole_tensors(blocks)))
    plan = planner.create_local_plan()
    if not plan.items:
        return CheckpointPart(files=(), blocks=())
    # Without copy-ahead DCP reads host memory block by block, also on a machine with GPUs.
    writer = FileSystemWriter(directory, per_thread_copy_ahead=0)
    files = writer.fs = _CheckedFiles()
    writer.set_up_storage_writer(is_coordinator=False, rank=global_rank, use_collectives=False)
    plan = writer.prepare_local_plan(planner.finish_plan(plan))
    results = writer.write_data(plan, planner).wait()
    items = {item.index: item for item in plan.items}
    return CheckpointPart(
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
    """Files whose size and checksum are known after they are written."""

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
    """Counts the written bytes, computes their checksum, and raises write errors late.

    An exception inside ``torch.save`` would pass through C++ destructors, which finish the archive
    by writing again. So the first error is kept, later writes are dropped, and the error is raised
    when the file is synced or closed.
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
        """Raise the first write error, if there was one."""
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


class GivenUpError(Exception):
    """A rank has no part in this checkpoint."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one checkpoint.

    Attributes:
        directory: The directory of the unfinished checkpoint.
        run: A word of this run and generation.
    """

    directory: Path
    run: str

    def add(self, global_rank: int, part: CheckpointPart) -> None:
        """Add the part of a rank, after its files are on disk.

        Raises:
            OSError: It can't be written.
        """
        sync_directory(self.directory)
        write_durably(self._path(global_rank), part.model_dump_json().encode())

    def has(self, global_rank: int) -> bool:
        """Whether the part of a rank is there."""
        return self._path(global_rank).exists()

    def read(self, global_rank: int) -> CheckpointPart:
        """Return the part of a rank, which must exist.

        Raises:
            OSError: It can't be read.
            ValueError: The file is invalid.
        """
        return CheckpointPart.model_validate_json(self._path(global_rank).read_bytes())

    def miss(self, global_rank: int, reason: str) -> None:
        """Record that a rank has no part. If that fails too, rank 0 waits until its time limit."""
        path = self._path(global_rank).with_suffix(".missing")
        draft = path.with_suffix(".draft")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            # Created empty first: a full disk usually still has room for a name.
            draft.touch()
            with contextlib.suppress(OSError):
                draft.write_text(reason)
            # Renamed last: rank 0 may read the file as soon as it has this name.
            draft.replace(path)
        except OSError as error:
            _LOG.warning(
                "cannot record that a rank has no part: checkpoint=%s rank=%d reason=%s",
                self.directory.name,
                global_rank,
                error,
            )

    def check_missing(self) -> None:
        """Check that no rank has given up its part.

        Raises:
            GivenUpError: A rank has no part. The text names the rank and the reason.
        """
        missing = sorted(self.directory.glob(f"part_*{self._suffix}.missing"))
        if missing:
            ranks = " ".join(path.name.removeprefix("part_").partition(".")[0] for path in missing)
            reason = missing[0].read_text() or "see the logs there"
            raise GivenUpError(f"not saved by rank {ranks}: {reason}")

    def clear(self) -> None:
        """Remove all parts, also those of other runs: the manifest replaces them."""
        for path in self.directory.glob("part_*"):
            path.unlink()

    @property
    def _suffix(self) -> str:
        return f".{self.run}" if self.run else ""

    def _path(self, global_rank: int) -> Path:
        return self.directory / f"part_{global_rank}{self._suffix}.json"
