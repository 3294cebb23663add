"""Random numbers of a forward pass: a function of which micro-batch it is, and of nothing else.

A recovery computes a micro-batch on another replica, later, or once more, and must get what the
fault-free run got, dropout included. So no generator's state is carried from one forward pass to the
next: ``reseed`` derives all of them anew before each.

Megatron draws from two kinds of generators. The default one serves what every tensor-parallel rank
computes alike (hidden dropout) and must be equal on all of them; those of its tracker serve what is
split among them (attention dropout, and all dropout with sequence parallelism) and must differ. The
tracker speaks of CUDA generators; ``CpuGenerators`` is the same over torch's generator of the CPU.

A backward pass draws nothing, except where it recomputes activations: Megatron then puts the states
back to where they were before the forward pass, and afterwards to where they were found. So it does
not matter which micro-batches a pipeline schedule has in flight between a forward and its backward.
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

    Equal arguments give equal random numbers: from run to run, on every replica, for any number of
    replicas, and in any order of micro-batches. The numbers differ between pipeline stages, and in
    Megatron's tracker between tensor-parallel ranks. A mask is drawn for the part of a tensor that
    a rank holds, so another tensor-parallel size or another number of stages gives other masks: the
    same in distribution, not the same numbers. Python's and numpy's generators are left alone.

    ``prepare_device`` has to be called before, once per process.

    Args:
        seed: Seed of the task.
        iteration: Counted from 1.
        micro_batch: Index in the global batch, over all replicas.
        place: Where this rank stands; of it the pipeline stage and the tensor-parallel rank count.
    """
    text = f"forward/{seed}/{iteration}/{micro_batch}/{place.pp_rank}"
    digest = hashlib.blake2b(text.encode(), digest_size=_SEED_BYTES).digest()
    own_seed = int.from_bytes(digest, "big")
    # For what draws on the host; on CPU this is also the default generator of the line below.
    torch.default_generator.manual_seed(own_seed)
    model_parallel_cuda_manual_seed(own_seed, tp_rank=place.tp_rank, ep_rank=0, etp_rank=0)


class CpuGenerators:
    """Megatron's ``CudaRNGStatesTracker`` for the CPU: named states of torch's default generator.

    Megatron's own can't serve: it warns whenever the state of the CPU's generator changes within
    ``fork``, which is the purpose here.
    """

    def __init__(self) -> None:
        self._states: dict[str, torch.Tensor] = {}
        self._seeds: dict[str, int] = {}
        """Of states that nobody has drawn from yet: ``reseed`` begins more than most models use."""
        self._current = _DEFAULT

    def is_initialized(self) -> bool:
        """Return whether there is any state to fork."""
        return bool(self._states or self._seeds)

    def reset(self) -> None:
        """Forget all states."""
        self._states, self._seeds = {}, {}
        self._current = _DEFAULT

    def add(self, name: str, seed: int) -> None:
        """Begin a new state; the default generator keeps its own."""
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
        """Let the default generator draw from the state ``name``, and keep how far it got.

        Nests: an inner fork of the same name goes on where the outer one is, and so does the outer
        one afterwards.

        Raises:
            KeyError: There is no such state; ``reseed`` was never called.
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
