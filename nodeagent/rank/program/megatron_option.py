"""A row of the table of Megatron's options (``option_table``), and the settings in it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Holder = Literal["model", "ddp", "optimizer"]


@dataclass(frozen=True, slots=True)
class OptionSetting:
    """One field of Megatron's configuration, and the values that recover in process.

    Attributes:
        holder: The configuration object with the field: ``TransformerConfig``,
            ``DistributedDataParallelConfig`` or ``OptimizerConfig``.
        name: The field.
        is_fine: Returns whether a value recovers in process.
    """

    holder: Holder
    name: str
    is_fine: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class MegatronOption:
    """One row of the table.

    Attributes:
        title: The name of the option for operators.
        is_in_process: Whether the option recovers in process.
        reason: The tested behaviour, or the reason why the option does not recover.
        settings: Fields that turn the option on. For an option that recovers they are only listed.
        can_train: Whether the loop trains with the option as Megatron does.
    """

    title: str
    is_in_process: bool
    reason: str
    settings: tuple[OptionSetting, ...] = field(default=())
    can_train: bool = True


def model_setting(
    name: str, is_fine: Callable[[Any], bool] = lambda value: not value
) -> OptionSetting:
    """Return a field of ``TransformerConfig``."""
    return OptionSetting("model", name, is_fine)


def ddp_setting(
    name: str, is_fine: Callable[[Any], bool] = lambda value: not value
) -> OptionSetting:
    """Return a field of ``DistributedDataParallelConfig``."""
    return OptionSetting("ddp", name, is_fine)


def optimizer_setting(
    name: str, is_fine: Callable[[Any], bool] = lambda value: not value
) -> OptionSetting:
    """Return a field of ``OptimizerConfig``."""
    return OptionSetting("optimizer", name, is_fine)


def is_any(_: object) -> bool:
    """Return True: every value is fine."""
    return True


def is_at_most_one(value: int | None) -> bool:
    """Return whether a size is 1, 0 or not set."""
    return value is None or value <= 1


def is_on(value: object) -> bool:
    """Return whether an option is on, or a number is set."""
    return bool(value)
