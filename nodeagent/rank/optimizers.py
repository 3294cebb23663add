"""What is known of the inside of Megatron's optimizers: torch's Adam, and the state that it keeps."""

from collections.abc import Iterator
from typing import Final

import torch
from megatron.core.optimizer import MegatronOptimizer

MOMENTS: Final = ("exp_avg", "exp_avg_sq")


class UnsupportedOptimizerError(Exception):
    """The optimizer keeps state that can't be handed to another process."""


def adams_of(optimizer: MegatronOptimizer) -> list[torch.optim.Optimizer]:
    """Return torch's optimizers in Megatron's; a chain has one for each kind of parameters.

    Raises:
        UnsupportedOptimizerError: One is not Adam; the text names it.
    """
    found = list(_inner_optimizers(optimizer))
    for inner in found:
        if not isinstance(inner, (torch.optim.Adam, torch.optim.AdamW)):
            name = type(inner).__name__
            raise UnsupportedOptimizerError(f"state of {name} can't be handed over in process")
    return found


def parameters_of(adam: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Yield the parameters that are updated."""
    for group in adam.param_groups:
        yield from group["params"]


def new_adam_state(parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return Adam's state of a parameter for which no step was taken."""
    state = {name: torch.zeros_like(parameter) for name in MOMENTS}
    return {"step": torch.zeros((), dtype=torch.float32), **state}


def _inner_optimizers(optimizer: MegatronOptimizer) -> Iterator[torch.optim.Optimizer]:
    for one in getattr(optimizer, "chained_optimizers", [optimizer]):
        if not getattr(one, "is_stub_optimizer", False):
            yield one.optimizer
