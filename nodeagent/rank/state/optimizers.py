"""Access to the inside of Megatron's optimizers: torch's Adam and its state."""

from collections.abc import Iterator
from typing import Final

import torch
from megatron.core.optimizer import MegatronOptimizer
from megatron.core.optimizer.optimizer import Float16OptimizerWithFloat16Params

MOMENTS: Final = ("exp_avg", "exp_avg_sq")


class UnsupportedOptimizerError(Exception):
    """The optimizer keeps state that can't be handed to another process."""


def adams_of(optimizer: MegatronOptimizer) -> list[torch.optim.Optimizer]:
    """Return the torch optimizers inside ``optimizer``. A chain has one per kind of parameters.

    Raises:
        UnsupportedOptimizerError: One is not Adam, or has parameters of two types.
    """
    found: list[torch.optim.Optimizer] = []
    for one in _parts(optimizer):
        inner = one.optimizer
        if not isinstance(inner, (torch.optim.Adam, torch.optim.AdamW)):
            name = type(inner).__name__
            raise UnsupportedOptimizerError(
                f"state of {name} can't be handed over in process, only that of torch's Adam; Megatron"
                " uses another Adam if Transformer Engine or Apex is installed: run without them"
            )
        if isinstance(one, Float16OptimizerWithFloat16Params) and any(one.fp32_from_fp32_groups):
            # Its ``sharded_state_dict`` numbers only the bfloat16 parameters, and mixes them up.
            raise UnsupportedOptimizerError(
                "parameters in bfloat16 and in float32 can't be told apart in Megatron's state"
            )
        found.append(inner)
    return found


def parameters_of(adam: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Yield the parameters that Adam updates: the model's own, or their copies in float32."""
    for group in adam.param_groups:
        yield from group["params"]


def model_parameters_of(optimizer: MegatronOptimizer) -> list[torch.Tensor]:
    """Return the model's parameters, in the order of ``parameters_of``."""
    if isinstance(optimizer, Float16OptimizerWithFloat16Params):
        return [one for group in optimizer.float16_groups for one in group]
    return list(parameters_of(optimizer.optimizer))


def new_adam_state(parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return Adam's state of a parameter before its first step."""
    state = {name: torch.zeros_like(parameter) for name in MOMENTS}
    return {"step": torch.zeros((), dtype=torch.float32), **state}


def _parts(optimizer: MegatronOptimizer) -> Iterator[MegatronOptimizer]:
    for one in getattr(optimizer, "chained_optimizers", [optimizer]):
        if not getattr(one, "is_stub_optimizer", False):
            yield one
