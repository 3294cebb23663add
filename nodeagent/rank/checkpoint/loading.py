"""Loads a checkpoint: all ranks of a generation restore the same one, or none.

Global rank 0 publishes the candidates in the store, newest first. For each candidate every rank
verifies the checksums and reads its blocks into separate memory. The model is changed only after
all ranks have done so. If a candidate is damaged, rank 0 quarantines it, and all ranks try the next
one.

The layout may differ from the layout that saved the checkpoint. Model and seed must be the same.
"""

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import MegatronOptimizer

from nodeagent.protocol.rank_launch import TrainingSpec
from nodeagent.rank.agent_link.exception_report import first_line
from nodeagent.rank.checkpoint.block_reading import BlockReading
from nodeagent.rank.checkpoint.checkpoint_directory import CheckpointDirectory, name_of
from nodeagent.rank.checkpoint.manifest import (
    METADATA,
    CheckpointError,
    DamagedError,
    Manifest,
    check_content,
    read_manifest,
)
from nodeagent.rank.checkpoint.recorded_losses import RecordedLosses
from nodeagent.rank.checkpoint.whole_model import Block, WholeState, whole_state
from nodeagent.rank.groups.rank_place import Place
from profiles.model import ModelShape

_LOG = logging.getLogger(__name__)

_KEY: Final = "unicron/checkpoint/candidates"


class KeyValueStore(Protocol):
    """The part of the rendezvous store that loading needs. ``AgentStore`` implements it."""

    def set(self, key: str, value: str | bytes) -> None:
        """Store ``value``."""

    def get(self, key: str) -> bytes:
        """Return the value, waiting for the key."""


def value_of_rank_0(place: Place, store: KeyValueStore, key: str, value: str) -> str:
    """Return the ``value`` of global rank 0, on all ranks of the generation."""
    if place.global_rank == 0:
        store.set(key, value)
    return bytes(store.get(key)).decode()


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded checkpoint.

    Attributes:
        iteration: The state is that after this iteration.
        losses: Recorded losses of the first iterations after it.
    """

    iteration: int
    losses: dict[int, float]


class Loader:
    """Loads checkpoints on one rank of one generation.

    Args:
        directory: The task's checkpoints.
        place: The place of this rank in the layout.
        training: The settings of the task.
        losses: The recorded losses of the task.
        is_halted: Whether the generation was halted. Afterwards no rank waits for another.
    """

    def __init__(
        self,
        directory: CheckpointDirectory,
        place: Place,
        training: TrainingSpec,
        losses: RecordedLosses,
        is_halted: Callable[[], bool],
    ) -> None:
        self._directory = directory
        self._place = place
        self._training = training
        self._losses = losses
        self._is_halted = is_halted
        self._num_loads = self._num_refusals = self._num_findings = 0

    def load(
        self,
        chunks: Sequence[DistributedDataParallel],
        optimizer: MegatronOptimizer,
        store: KeyValueStore,
    ) -> Loaded | None:
        """Load the newest usable checkpoint on all ranks; None if there is none.

        Raises:
            CheckpointError: A person must act. All ranks raise it.
            HaltedError: The generation was halted.
            RuntimeError: A peer was lost.
        """
        candidates = self._agree(store)
        had_state = _has_state(optimizer)
        for iteration, losses in candidates:
            if self._try(iteration, chunks, optimizer, store):
                _LOG.info("loaded a checkpoint: checkpoint=%s", name_of(iteration))
                return Loaded(iteration, losses)
        if not had_state:
            _clear_state(optimizer)
        return None

    # --- agreement ---------------------------------------------------------------------------

    def _agree(self, store: KeyValueStore) -> list[tuple[int, dict[int, float]]]:
        """Return iteration and later losses of each candidate, the same on all ranks."""
        self._num_loads += 1
        key = f"{_KEY}/{self._num_loads}"
        own = json.dumps(self._proposal()) if self._place.global_rank == 0 else ""
        proposal = json.loads(value_of_rank_0(self._place, store, key, own))
        if "error" in proposal:
            raise CheckpointError(proposal["error"])
        return [
            (iteration, {int(number): loss for number, loss in losses.items()})
            for iteration, losses in proposal["candidates"]
        ]

    def _proposal(self) -> dict[str, Any]:
        try:
            self._directory.remove_stale()
            found = self._directory.candidates()
            if found:
                # Without this check, training from an older checkpoint would silently lose work.
                self._check_fits(found[0])
        except CheckpointError as error:
            return {"error": str(error)}
        fitting = [one.iteration for one in found if self._misfit(one) is None]
        return {"candidates": [(one, self._losses.after(one)) for one in fitting]}

    def _check_fits(self, manifest: Manifest) -> None:
        misfit = self._misfit(manifest)
        if misfit is not None:
            path = self._directory.path / name_of(manifest.iteration)
            raise CheckpointError(
                f"{path} was made with another {misfit}; use another checkpoint_dir, or that"
                f" {misfit}"
            )

    def _misfit(self, manifest: Manifest) -> str | None:
        if _tensors_of(manifest.model) != _tensors_of(self._training.model):
            return "model"
        return "seed" if manifest.seed != self._training.seed else None

    # --- one candidate -------------------------------------------------------------------------

    def _try(
        self,
        iteration: int,
        chunks: Sequence[DistributedDataParallel],
        optimizer: MegatronOptimizer,
        store: KeyValueStore,
    ) -> bool:
        path = self._directory.path / name_of(iteration)
        state = whole_state(chunks, optimizer, is_loading=True)
        staged: list[Block] = []
        misfit = damage = ""
        manifest: Manifest | None = None
        try:
            self._check_visible(path)
            manifest = read_manifest(path)
            staged = self._staged(manifest, state)
        except CheckpointError as error:
            misfit = f"{path} can't be loaded: {error}"
        except (DamagedError, OSError, RuntimeError, ValueError) as error:
            damage = first_line(error)
            _LOG.warning("checkpoint is damaged: path=%s reason=%s", path, damage)
        is_misfit, is_damaged = self._is_so_anywhere(bool(misfit), bool(damage))
        if is_misfit:
            raise CheckpointError(self._finding_of_any(misfit, store))
        if is_damaged:
            self._quarantine(iteration, self._finding_of_any(damage, store), store)
            return False
        assert manifest is not None
        _restore(state, staged, optimizer, manifest)
        return True

    def _check_visible(self, path: Path) -> None:
        # Rank 0 has just seen it. A problem of this node must not put the checkpoint in quarantine.
        if not os.access(path, os.R_OK | os.X_OK):
            raise CheckpointError(
                "it is missing on this rank's node, or unreadable there; checkpoint_dir"
                " must be shared by all nodes"
            )

    def _staged(self, manifest: Manifest, state: WholeState) -> list[Block]:
        """Return copies of this rank's blocks, read from disk and verified."""
        path = self._directory.path / name_of(manifest.iteration)
        staged = [
            replace(block, tensor=torch.empty(block.tensor.size(), dtype=block.tensor.dtype))
            for block in state.blocks
        ]
        reading = BlockReading(path, manifest.blocks, staged)
        needed = reading.files
        if self._place.global_rank == 0:
            needed = needed | {METADATA}
        for file in manifest.files:
            if file.name in needed:
                check_content(path, file)
        reading.read()
        return staged

    def _quarantine(self, iteration: int, reason: str, store: KeyValueStore) -> None:
        problem = ""
        if self._place.global_rank == 0:
            try:
                self._directory.quarantine(
                    self._directory.path / name_of(iteration), "checksum", reason
                )
            except CheckpointError as error:
                problem = str(error)
        self.refuse_alike(problem, store)

    def _finding_of_any(self, finding: str, store: KeyValueStore) -> str:
        """Return the finding of some rank, on all ranks. At least one rank must have one."""
        self._num_findings += 1
        key = f"{_KEY}/found/{self._num_findings}"
        if finding:
            store.set(key, f"rank {self._place.global_rank}: {finding}")
        return bytes(store.get(key)).decode()

    def refuse_alike(self, problem: str, store: KeyValueStore) -> None:
        """Raise the problem of rank 0 on all ranks. All ranks call it; an empty text is no problem.

        Raises:
            CheckpointError: Rank 0 has a problem.
            StoreError: Rank 0 did not publish its result.
        """
        self._num_refusals += 1
        key = f"{_KEY}/refused/{self._num_refusals}"
        if problem := value_of_rank_0(self._place, store, key, problem):
            raise CheckpointError(problem)

    def _is_so_anywhere(self, *findings: bool) -> list[bool]:
        """Return for each finding whether any rank has it. Sums of a broken peer are refused."""
        num_ranks, *numbers = self._place.sum_over_all([1.0, *findings], self._is_halted)
        if num_ranks != self._place.layout.num_workers:
            raise RuntimeError("NCCL: a peer broke off while a checkpoint was loaded")
        return [number > 0 for number in numbers]


def _restore(
    state: WholeState, staged: list[Block], optimizer: MegatronOptimizer, manifest: Manifest
) -> None:
    with torch.no_grad():
        for block, copy in zip(state.blocks, staged, strict=True):
            block.tensor.copy_(copy.tensor)
    state.restore_shared(optimizer, manifest.optimizer)


def _tensors_of(model: ModelShape) -> ModelShape:
    """Return ``model`` without the settings that don't change its tensors."""
    return model.model_copy(
        update={"hidden_dropout": 0.0, "attention_dropout": 0.0, "sequence_parallel": False}
    )


def _optimizers(optimizer: MegatronOptimizer) -> list[MegatronOptimizer]:
    return list(getattr(optimizer, "chained_optimizers", [optimizer]))


def _has_state(optimizer: MegatronOptimizer) -> bool:
    return any(len(one.state) > 0 for one in _optimizers(optimizer))


def _clear_state(optimizer: MegatronOptimizer) -> None:
    # The zeros that were made for loading have no step count, so Adam can't begin with them.
    for one in _optimizers(optimizer):
        one.state.clear()
