"""The records about a checkpoint: one part per rank, and the manifest of the whole.

Both are JSON. The manifest has all that the loader needs, with the place of every block. So no file
is unpickled to find out what a checkpoint contains. DCP's own ``.metadata`` is written for other
programs that read such checkpoints. It is not read here.
"""

import zlib
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from nodeagent.protocol.ids import Generation
from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.layout import Layout
from profiles.model import ModelShape

FORMAT: Final = 2
MANIFEST: Final = "manifest.json"
CHECKSUM: Final = "manifest.crc32"
METADATA: Final = ".metadata"
"""DCP's own description of a checkpoint."""

_WITHOUT_EFFECT_ON_LOSSES: Final = frozenset(
    {
        "bucket_size",
        "checkpoint_dir",
        "checkpoint_interval",
        "checkpoints_kept",
        "iteration_floor_s",
        "memory_interval",
        "num_iterations",
        "shard_optimizer",
    }
)


class CheckpointError(Exception):
    """A checkpoint can't be used or made, and a person must act. The text says why."""


class DamagedError(Exception):
    """A checkpoint differs from its manifest. The text says where."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")


class StoredFile(_Record):
    """One file of a checkpoint."""

    name: str
    num_bytes: int
    crc32: int


class StoredBlock(_Record):
    """One block of one tensor of the whole model, and its place in a file.

    Attributes:
        key: Name of the tensor in the whole model.
        whole_size: Size of that tensor.
        offsets: Where the block begins in that tensor.
        sizes: Size of the block, in the dimensions of the whole tensor.
        dtype: For instance ``float32``.
        file: Name of the file.
        position: First byte in the file.
        num_bytes: Bytes in the file.
    """

    key: str
    whole_size: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    dtype: str
    file: str
    position: int
    num_bytes: int


class CheckpointPart(_Record):
    """The files and blocks of one rank. A part exists only after its files are on disk."""

    files: tuple[StoredFile, ...]
    blocks: tuple[StoredBlock, ...]


class Manifest(_Record):
    """A complete checkpoint.

    Attributes:
        format: ``FORMAT`` of the program that wrote it.
        iteration: The state is that after this iteration.
        generation: Generation that wrote it.
        layout: Layout that wrote it. Any other layout can read it.
        model: Shape of the model.
        seed: Seed of weights and data.
        settings: ``settings_digest`` of the training.
        loss: Loss of ``iteration``.
        optimizer: The optimizer's values beside tensors (``whole_model.SharedValues``).
        files: All files but the manifest and its checksum.
        blocks: All blocks of all tensors.
    """

    format: int = FORMAT
    iteration: int
    generation: Generation
    layout: Layout
    model: ModelShape
    seed: int
    settings: str
    loss: float
    optimizer: Any
    files: tuple[StoredFile, ...]
    blocks: tuple[StoredBlock, ...]


class _Format(BaseModel):
    """The one field that every format has had."""

    format: int


def settings_digest(training: TrainingSpec) -> str:
    """Return a digest of all settings that change the losses."""
    content = training.model_dump_json(exclude=set(_WITHOUT_EFFECT_ON_LOSSES))
    return f"{zlib.crc32(content.encode()):08x}"


def read_manifest(directory: Path) -> Manifest:
    """Return the manifest of a checkpoint.

    Raises:
        DamagedError: The manifest is missing or damaged.
        CheckpointError: The manifest has another format.
    """
    try:
        content = (directory / MANIFEST).read_bytes()
        written = _Format.model_validate_json(content).format
        if written != FORMAT:
            raise CheckpointError(
                f"{directory} was written in format {written}, and only format {FORMAT} can be"
                " read; use another checkpoint_dir, or move it away"
            )
        expected = int((directory / CHECKSUM).read_text(encoding="ascii"), 16)
        if zlib.crc32(content) != expected:
            raise DamagedError(f"{MANIFEST} differs from its checksum")
        return Manifest.model_validate_json(content)
    except (FileNotFoundError, ValueError) as error:
        first_line = str(error).splitlines()[0]
        what = "invalid" if isinstance(error, ValidationError) else "not readable"
        raise DamagedError(f"{MANIFEST} is {what}: {first_line}") from error


def check_files(directory: Path, files: tuple[StoredFile, ...]) -> None:
    """Compare the sizes of ``files`` with what is on disk.

    Raises:
        DamagedError: A file is missing or has another size.
    """
    for file in files:
        try:
            num_bytes = (directory / file.name).stat().st_size
        except FileNotFoundError as error:
            raise DamagedError(f"{file.name} is missing") from error
        if num_bytes != file.num_bytes:
            raise DamagedError(f"{file.name} has {num_bytes} bytes instead of {file.num_bytes}")


def check_content(directory: Path, file: StoredFile) -> None:
    """Compare the checksum of ``file`` with what is on disk.

    Raises:
        DamagedError: The content differs.
        OSError: It can't be read.
    """
    crc32 = 0
    with (directory / file.name).open("rb", buffering=0) as opened:
        while chunk := opened.read(1 << 22):
            crc32 = zlib.crc32(chunk, crc32)
    if crc32 != file.crc32:
        raise DamagedError(f"{file.name} differs from its checksum")
