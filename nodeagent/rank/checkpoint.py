"""Checkpoints on disk: complete or not there, whatever happens while one is written.

Data-parallel rank 0 of every (tp, pp) writes its shard into ``iter_0000010.g3.tmp/`` (iteration 10,
generation 3). When all ranks agree that all shards are on disk, global rank 0 adds the manifest,
which lists every shard with its size and checksum, and renames the directory to ``iter_0000010``.
So a directory without ``.tmp`` was complete once. Whether it still is, the loader checks: all ranks
try the newest one, and go to the next older one together if any shard of it is damaged.

A checkpoint fits any data-parallel size. Another tp or pp, or another model, is refused. Shards are
read with ``weights_only``, which builds tensors and plain values and runs no code.
"""

import io
import json
import logging
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import MegatronOptimizer
from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Buffer

from nodeagent.protocol.training import RankLaunch
from nodeagent.rank.parallel import Place
from nodeagent.rank.store import AgentStore
from profiles.model import ModelShape

logger = logging.getLogger(__name__)

_FORMAT: Final = 1
_NUM_KEPT: Final = 3
_MANIFEST: Final = "manifest.json"
_COMPLETE: Final = re.compile(r"iter_(\d+)")
_TEMPORARY: Final = re.compile(r"iter_\d+\.g(\d+)\.(tmp|old)")
_CANDIDATES_KEY: Final = "unicron/checkpoint/candidates"


class CheckpointError(Exception):
    """A checkpoint exists that this task can't continue from. The text says why."""


class _Shard(BaseModel):
    model_config = ConfigDict(frozen=True)

    file: str
    num_bytes: int
    crc32: int


class _Manifest(BaseModel):
    model_config = ConfigDict(frozen=True)

    format: int
    iteration: int
    generation: int
    seed: int
    model: ModelShape
    tp: int
    pp: int
    shards: list[_Shard]


class Checkpoints:
    """The checkpoints of one task, as one rank sees them."""

    def __init__(self, launch: RankLaunch, place: Place) -> None:
        self._directory = Path(launch.training.checkpoint_dir)
        self._launch = launch
        self._place = place

    # --- save ------------------------------------------------------------------------------

    def save(
        self, iteration: int, model: DistributedDataParallel, optimizer: MegatronOptimizer
    ) -> int:
        """Write the checkpoint of ``iteration`` and return its bytes; all ranks must call it.

        When it returns, on any rank, the checkpoint is complete and on disk.

        Raises:
            OSError: This rank can't write, for instance because the disk is full.
        """
        temporary = self._directory / f"{_name(iteration)}.g{self._launch.generation}.tmp"
        layout = self._place.layout
        # Two slots per (tp, pp), size and checksum; the sum over all ranks fills the others.
        slots = [0.0] * (2 * layout.tp * layout.pp)
        if self._place.dp_rank == 0:
            number = self._place.pp_rank * layout.tp + self._place.tp_rank
            state = {
                "iteration": iteration,
                "model": dict(_parameters(model)),
                "optimizer": optimizer.state_dict(),
            }
            slots[2 * number : 2 * number + 2] = self._write_shard(temporary, state)
        slots = self._place.sum_over_all(slots)
        if self._place.global_rank == 0:
            self._commit(temporary, iteration, [int(slot) for slot in slots])
        self._place.sum_over_all([0.0])
        return int(sum(slots[::2]))

    def _write_shard(self, temporary: Path, state: dict[str, Any]) -> tuple[float, float]:
        temporary.mkdir(parents=True, exist_ok=True)
        path = temporary / _shard_name(self._place.tp_rank, self._place.pp_rank)
        with path.open("wb") as file:
            counted = _CountedWriter(file)
            with io.BufferedWriter(counted) as buffered:
                torch.save(state, buffered)
            file.flush()
            os.fsync(file.fileno())
        return float(counted.num_bytes), float(counted.crc32)

    def _commit(self, temporary: Path, iteration: int, slots: list[int]) -> None:
        layout = self._place.layout
        shards = [
            _Shard(
                file=_shard_name(number % layout.tp, number // layout.tp),
                num_bytes=slots[2 * number],
                crc32=slots[2 * number + 1],
            )
            for number in range(layout.tp * layout.pp)
        ]
        manifest = _Manifest(
            format=_FORMAT,
            iteration=iteration,
            generation=self._launch.generation,
            seed=self._launch.training.seed,
            model=self._launch.training.model,
            tp=layout.tp,
            pp=layout.pp,
            shards=shards,
        )
        with (temporary / _MANIFEST).open("w") as file:
            file.write(manifest.model_dump_json(indent=2))
            file.flush()
            os.fsync(file.fileno())
        _sync_directory(temporary)
        self._move_into_place(temporary, self._directory / _name(iteration))
        self._prune(iteration)

    def _move_into_place(self, temporary: Path, final: Path) -> None:
        # One of this iteration exists only where it was found damaged, or was passed over.
        old = temporary.with_suffix(".old")
        if final.exists():
            final.rename(old)
        temporary.rename(final)
        _sync_directory(self._directory)
        shutil.rmtree(old, ignore_errors=True)

    def _prune(self, newest: int) -> None:
        # Damaged ones that the loader passed over are newer, and must not push out the good ones.
        good = [path for iteration, path in self._found() if iteration <= newest]
        for path in good[_NUM_KEPT:]:
            shutil.rmtree(path, ignore_errors=True)

    # --- load ------------------------------------------------------------------------------

    def load(
        self,
        model: DistributedDataParallel,
        optimizer: MegatronOptimizer,
        store: AgentStore,
    ) -> int:
        """Load the newest complete checkpoint and return its iteration; 0 if there is none.

        All ranks must call it, and all load the same one. Rank 0 also removes what older
        generations left half-written.

        Raises:
            CheckpointError: The newest complete checkpoint is of another tp, pp, model or seed.
        """
        for manifest in self._agreed_candidates(store):
            data = self._own_shard(manifest)
            num_damaged = self._place.sum_over_all([float(data is None)])[0]
            if data is not None and num_damaged == 0:
                self._restore(data, model, optimizer)
                logger.info("loaded the checkpoint of iteration %d", manifest.iteration)
                return manifest.iteration
            logger.warning("skipped %s: damaged", _name(manifest.iteration))
        return 0

    def _agreed_candidates(self, store: AgentStore) -> list[_Manifest]:
        if self._place.global_rank == 0:
            self._remove_stale()
            found = list(self._complete())
            store.set(_CANDIDATES_KEY, json.dumps([m.model_dump(mode="json") for m in found]))
        else:
            found = [_Manifest(**one) for one in json.loads(store.get(_CANDIDATES_KEY))]
        if found:
            # Every rank refuses alike; training on from an older one would lose work silently.
            self._check_fits(found[0])
        return [manifest for manifest in found if self._misfit(manifest) is None]

    def _complete(self) -> Iterator[_Manifest]:
        """Yield the manifests of complete checkpoints, newest first; log what is passed over."""
        for iteration, path in self._found():
            try:
                manifest = _Manifest.model_validate_json((path / _MANIFEST).read_bytes())
                torn = [
                    shard.file
                    for shard in manifest.shards
                    if (path / shard.file).stat().st_size != shard.num_bytes
                ]
            except (OSError, ValidationError) as error:
                logger.warning("skipped %s: %s", path.name, str(error).splitlines()[0])
                continue
            if torn or manifest.iteration != iteration or manifest.format != _FORMAT:
                logger.warning("skipped %s: torn or mislabelled %s", path.name, " ".join(torn))
                continue
            yield manifest

    def _check_fits(self, manifest: _Manifest) -> None:
        misfit = self._misfit(manifest)
        if misfit is not None:
            raise CheckpointError(
                f"{self._directory / _name(manifest.iteration)} {misfit}; use another"
                " checkpoint_dir, or the layout and model it was made with"
            )

    def _misfit(self, manifest: _Manifest) -> str | None:
        layout, training = self._place.layout, self._launch.training
        if (manifest.tp, manifest.pp) != (layout.tp, layout.pp):
            return (
                f"was saved with tp {manifest.tp} pp {manifest.pp} and can't be loaded with"
                f" tp {layout.tp} pp {layout.pp}"
            )
        if manifest.model != training.model or manifest.seed != training.seed:
            return "is of another model or seed"
        return None

    def _own_shard(self, manifest: _Manifest) -> bytes | None:
        """Return this rank's shard, or None if it is not what the manifest says."""
        name = _shard_name(self._place.tp_rank, self._place.pp_rank)
        shard = next((one for one in manifest.shards if one.file == name), None)
        try:
            data = (self._directory / _name(manifest.iteration) / name).read_bytes()
        except OSError as error:
            logger.warning("%s of %s: %s", name, _name(manifest.iteration), error)
            return None
        if shard is None or len(data) != shard.num_bytes or zlib.crc32(data) != shard.crc32:
            return None
        return data

    def _restore(
        self, data: bytes, model: DistributedDataParallel, optimizer: MegatronOptimizer
    ) -> None:
        state = torch.load(io.BytesIO(data), map_location=self._place.device, weights_only=True)
        with torch.no_grad():
            for name, parameter in _parameters(model):
                parameter.copy_(state["model"][name])
        optimizer.load_state_dict(state["optimizer"])

    def _remove_stale(self) -> None:
        if not self._directory.is_dir():
            return
        for path in self._directory.iterdir():
            match = _TEMPORARY.fullmatch(path.name)
            if match and int(match[1]) < self._launch.generation:
                shutil.rmtree(path, ignore_errors=True)

    def _found(self) -> list[tuple[int, Path]]:
        """Return iteration and path of everything named like a checkpoint, newest first."""
        if not self._directory.is_dir():
            return []
        matches = ((_COMPLETE.fullmatch(path.name), path) for path in self._directory.iterdir())
        return sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)


class _CountedWriter(io.RawIOBase):
    """Passes writes on and keeps their size and checksum, so that nothing is read back."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self.num_bytes = 0
        self.crc32 = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer) -> int:
        view = memoryview(data)
        self._file.write(view)
        self.num_bytes += len(view)
        self.crc32 = zlib.crc32(view, self.crc32)
        return len(view)


def _parameters(model: DistributedDataParallel) -> Iterator[tuple[str, torch.Tensor]]:
    for name, parameter in model.module.named_parameters():
        yield name, parameter.detach()


def _name(iteration: int) -> str:
    return f"iter_{iteration:07d}"


def _shard_name(tp_rank: int, pp_rank: int) -> str:
    return f"tp{tp_rank}_pp{pp_rank}.pt"


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
