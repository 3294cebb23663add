"""Compares the settings of a job with ``option_table``: does the job recover in process?

When a job starts, its options that do not recover in process are reported. After a fault such a job
gets new processes. A job with an option that the loop can't train with is refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import torch
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig
from megatron.core.transformer.transformer_config import TransformerConfig

from nodeagent.rank.program.harmless_settings import HARMLESS
from nodeagent.rank.program.megatron_option import Holder
from nodeagent.rank.program.option_table import OPTIONS, PARTLY_BFLOAT16, TRANSFORMER_ENGINE

_KINDS: Final[dict[Holder, type[Any]]] = {
    "model": TransformerConfig,
    "ddp": DistributedDataParallelConfig,
    "optimizer": OptimizerConfig,
}
_ELEMENTS_PER_REPLICA: Final = 1_000_000
_FEWEST_ELEMENTS: Final = 40_000_000
"""Megatron's own bucket size: a number of elements per replica, but at least this number."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A setting that prevents recovery in process.

    Attributes:
        name: The setting with its value, as written in Megatron's configuration.
        reason: Why it does not recover, and another value to set if there is one.
        can_train: Whether the job trains with it. If so, only its recovery needs new processes.
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
    """Return the settings that prevent recovery in process; empty if there are none.

    Args:
        config: Settings of the model.
        ddp_config: Settings of the data-parallel wrapper.
        optimizer_config: Settings of the optimizer (``optimizer.config``); None leaves them out.
        chunks: The model, if it is built. Its layers are checked too.
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
        # A setting that this version of Megatron lacks can't be used.
        if (holder := holders[setting.holder]) is not None and hasattr(holder, setting.name)
        if not setting.is_fine(value := getattr(holder, setting.name))
    ]
    found += _new_settings(holders)
    found += _of_mixed_types(config, optimizer_config)
    names = {
        type(module).__name__ for chunk in chunks for module in chunk.modules() if _is_te(module)
    }
    reason = TRANSFORMER_ENGINE.reason
    return [*found, *(Unsupported(name, reason) for name in sorted(names))]


def unknown_settings(holder: Holder) -> list[str]:
    """Return the settings of the installed Megatron that nobody has looked at."""
    known = {each.name for option in OPTIONS for each in option.settings if each.holder == holder}
    names = (each.name for each in fields(_KINDS[holder]))
    return [name for name in names if name not in known | HARMLESS[holder]]


def _new_settings(holders: Mapping[Holder, object]) -> Iterator[Unsupported]:
    """Yield settings that a newer Megatron has, and that differ from their default."""
    for holder, configuration in holders.items():
        if not isinstance(configuration, _KINDS[holder]):
            continue
        defaults = {each.name: each.default for each in fields(_KINDS[holder])}
        for name in unknown_settings(holder):
            value = getattr(configuration, name)
            if value != defaults[name]:
                reason = "this version of Megatron is newer than the table, and has a setting more"
                yield Unsupported(f"{name} = {value!r}", reason)


def _of_mixed_types(
    config: TransformerConfig, optimizer_config: OptimizerConfig | None
) -> list[Unsupported]:
    """Return the mistake if only a part of the settings says bfloat16."""
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
    """Return the wrapper's settings, with None for a bucket size that Megatron filled in.

    With few replicas Megatron's size is a constant and stays. With more it depends on their number.
    """
    own = _ELEMENTS_PER_REPLICA * num_replicas
    if own <= _FEWEST_ELEMENTS or ddp_config.bucket_size != own:
        return ddp_config
    return replace(ddp_config, bucket_size=None)


def _is_te(module: torch.nn.Module) -> bool:
    return any(kind.__module__.startswith("transformer_engine") for kind in type(module).__mro__)


def markdown_table() -> str:
    """Return the table for ``docs/in-process-support.md``: recovering options come first."""
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
