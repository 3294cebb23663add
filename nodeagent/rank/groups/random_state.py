"""Random numbers of a forward pass. They depend on the micro-batch only.

A recovery computes a micro-batch on another replica, later, or again. Its result must equal that of
the fault-free run, dropout included. So no generator keeps its state from one forward pass to the
next: ``reseed`` sets all generators before each pass.

Megatron draws from two kinds of generators. The default generator serves operations that every
tensor-parallel rank computes alike (hidden dropout), and must be equal on all of them. The
tracker's generators serve operations that are split among them: attention dropout, and with
sequence parallelism all dropout. They must differ. Megatron's tracker works with CUDA generators;
``CpuGenerators`` replaces it on the CPU.

A backward pass draws random numbers only if it recomputes activations. Megatron then restores the
states from before the forward pass, and afterwards the states that it found. So the order of
forward and backward passes in a pipeline schedule does not matter.
"""

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Final

import torch
from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed

from nodeagent.rank.groups.rank_place import Place

_SEED_BYTES: Final = 7
"""Below torch's 64 bits, since Megatron adds small numbers to a seed to derive others."""

_DEFAULT: Final = "default-rng"
_MODEL_PARALLEL: Final = "model-parallel-rng"
"""Megatron's name of the states that differ between tensor-parallel ranks."""


def reseed(seed: int, iteration: int, micro_batch: int, place: Place) -> None:
    """Set all of torch's and Megatron's generators for the forward pass of one micro-batch.

    Equal arguments give equal random numbers: in every run, on every replica, for any number of
    replicas, and in any order of micro-batches. The numbers differ between pipeline stages, and in
    Megatron's tracker between tensor-parallel ranks.

    A mask is drawn for the part of a tensor that a rank holds. So another tensor-parallel size or
    number of stages gives other masks with the same distribution. Python's and numpy's generators
    are not changed.

    Call ``prepare_device`` before, once per process.

    Args:
        seed: Seed of the task.
        iteration: Counted from 1.
        micro_batch: Index in the global batch, over all replicas.
        place: The rank's place. Only its pipeline stage and tensor-parallel rank matter.
    """
    text = f"forward/{seed}/{iteration}/{micro_batch}/{place.pp_rank}"
    digest = hashlib.blake2b(text.encode(), digest_size=_SEED_BYTES).digest()
    own_seed = int.from_bytes(digest, "big")
    # For draws on the host. On the CPU this is also the default generator of the next line.
    torch.default_generator.manual_seed(own_seed)
    model_parallel_cuda_manual_seed(own_seed, tp_rank=place.tp_rank, ep_rank=0, etp_rank=0)


class CpuGenerators:
    """Megatron's ``CudaRNGStatesTracker`` for the CPU: named states of torch's default generator.

    Megatron's own tracker warns whenever the state of the CPU's generator changes within ``fork``.
    On a CPU that is the purpose of ``fork``.
    """

    def __init__(self) -> None:
        self._states: dict[str, torch.Tensor] = {}
        self._seeds: dict[str, int] = {}
        """Seeds of states that are not drawn from yet. Most models use few of them."""
        self._current = _DEFAULT

    def is_initialized(self) -> bool:
        """Return whether there is any state to fork."""
        return bool(self._states or self._seeds)

    def reset(self) -> None:
        """Drop all states."""
        self._states, self._seeds = {}, {}
        self._current = _DEFAULT

    def add(self, name: str, seed: int) -> None:
        """Begin a new state. The default generator keeps its own state."""
        self._states.pop(name, None)
        self._seeds[name] = seed

    def _begin(self, name: str) -> None:
        seed = self._seeds.pop(name, None)
        if seed is not None:
            self._states[name] = torch.Generator().manual_seed(seed).get_state()

    def get_states(self) -> dict[str, torch.Tensor]:
        """Return the states by name. They are never changed in place."""
        for name in list(self._seeds):
            self._begin(name)
        return dict(self._states)

    def set_states(self, states: dict[str, torch.Tensor]) -> None:
        """Replace all states by those of a ``get_states``."""
        self._states, self._seeds = dict(states), {}

    @contextlib.contextmanager
    def fork(self, name: str = _MODEL_PARALLEL) -> Iterator[None]:
        """Let the default generator draw from the state ``name``, and save that state afterwards.

        Forks nest: an inner fork of the same name continues the outer state, and the outer fork
        continues the inner one.

        Raises:
            KeyError: There is no such state, because ``reseed`` was never called.
        """
        self._begin(name)
        before, outer = torch.get_rng_state(), self._current
        if outer != _DEFAULT:
            self._states[outer] = before
        torch.set_rng_state(self._states[name])
        self._current = name
        try:
            yield
        finally:
            self._states[name] = torch.get_rng_state()
            self._seeds.pop(name, None)
            torch.set_rng_state(before if outer == _DEFAULT else self._states[outer])
            self._current = outer
