"""The check of a job against ``option_table``: does it recover in process?

An option that is not known to is named when a job starts, and the job's faults are handled by
starting its processes anew. With some options the loop can't train at all; these jobs are refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig
from megatron.core.transformer.transformer_config import TransformerConfig

from nodeagent.rank.program.option_table import OPTIONS, PARTLY_BFLOAT16, TRANSFORMER_ENGINE, Holder

_ELEMENTS_PER_REPLICA: Final = 1_000_000
_FEWEST_ELEMENTS: Final = 40_000_000
"""Megatron's own bucket size: so many elements for every replica, but no fewer than these."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A setting that keeps a job from recovering in process.

    Attributes:
        name: The setting with its value, as written in Megatron's configuration.
        reason: What stands in the way, and what to set instead where there is something.
        can_train: Whether the job trains with it, and only its recovery takes new processes.
    """

    name: str
    reason: str
    can_train: bool = True

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def unsupported(
    config: TransformerConfig,
    ddp_config: DistributedDataParallelConfig,
    optimizer_config: OptimizerConfig | None = None,
    chunks: Sequence[torch.nn.Module] = (),
) -> list[Unsupported]:
    """Return what keeps a job with these settings from recovering in process; empty if nothing.

    Args:
        config: Settings of the model.
        ddp_config: Settings of the data-parallel wrapper.
        optimizer_config: Settings of the optimizer (``optimizer.config``); None leaves them out.
        chunks: The model, if it is built; its layers are looked at too.
    """
    holders: dict[Holder, object] = {
        "model": config,
        "ddp": ddp_config,
        "optimizer": optimizer_config,
    }
    found = [
        Unsupported(f"{setting.name} = {value!r}", option.reason, option.can_train)
        for option in OPTIONS
        for setting in option.settings
        # What this version of Megatron does not have can't be used.
        if (holder := holders[setting.holder]) is not None and hasattr(holder, setting.name)
        if not setting.is_fine(value := getattr(holder, setting.name))
    ]
    found += _of_mixed_types(config, optimizer_config)
    names = {
        type(module).__name__ for chunk in chunks for module in chunk.modules() if _is_te(module)
    }
    reason = TRANSFORMER_ENGINE.reason
    return [*found, *(Unsupported(name, reason) for name in sorted(names))]


def _of_mixed_types(
    config: TransformerConfig, optimizer_config: OptimizerConfig | None
) -> list[Unsupported]:
    """Return what is wrong where only a part of the settings says bfloat16."""
    types: dict[str, object] = {
        "bf16 of the model": getattr(config, "bf16", False),
        "params_dtype": getattr(config, "params_dtype", torch.float32) == torch.bfloat16,
    }
    if optimizer_config is not None:
        types["bf16 of the optimizer"] = optimizer_config.bf16
    if len(set(map(bool, types.values()))) == 1:
        return []
    without = ", ".join(name for name, is_set in types.items() if not is_set)
    return [Unsupported(f"bfloat16 without {without}", PARTLY_BFLOAT16.reason)]


def as_chosen(
    ddp_config: DistributedDataParallelConfig, num_replicas: int
) -> DistributedDataParallelConfig:
    """Return a wrapper's settings with None for a bucket size that Megatron filled in by itself.

    Only where that depends on the number of replicas; with few it is a constant, as good as any.
    """
    own = _ELEMENTS_PER_REPLICA * num_replicas
    if own <= _FEWEST_ELEMENTS or ddp_config.bucket_size != own:
        return ddp_config
    return replace(ddp_config, bucket_size=None)


def _is_te(module: torch.nn.Module) -> bool:
    return any(kind.__module__.startswith("transformer_engine") for kind in type(module).__mro__)


def markdown_table() -> str:
    """Return the table for ``docs/in-process-support.md``, options that recover first, refused ones last."""
    rows = [
        "| option | in process | settings | |",
        "|---|---|---|---|",
    ]
    for option in sorted(OPTIONS, key=lambda each: (not each.is_in_process, not each.can_train)):
        names = dict.fromkeys(f"`{setting.name}`" for setting in option.settings)
        restart = "no: restart" if option.can_train else "no: refused"
        verdict = "yes" if option.is_in_process else restart
        rows.append(f"| {option.title} | {verdict} | {', '.join(names)} | {option.reason} |")
    return "\n".join(rows) + "\n"
