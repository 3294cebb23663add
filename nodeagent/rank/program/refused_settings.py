"""Refuses settings of Megatron that the loop can't train with, before Megatron itself complains.

Megatron checks its settings too, while they are made and while the model is built. Its errors name
other settings, or none, and don't say that the loop can't train with the option. So a configuration
is compared with ``option_table`` as soon as it has values, before Megatron's own checks.

A value that Megatron has by default is no reason to refuse: the program may change it later. The
finished loop is checked as a whole (``program_loading``).
"""

import contextlib
import dataclasses
import importlib.util
import re
import traceback
from collections.abc import Iterator
from typing import Any, Final

from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig
from megatron.core.transformer.transformer_config import TransformerConfig

from nodeagent.rank.program.in_process_support import Unsupported
from nodeagent.rank.program.megatron_option import Holder, OptionSetting
from nodeagent.rank.program.option_table import OPTIONS

WATCHED: Final[dict[Holder, type]] = {
    "model": TransformerConfig,
    "ddp": DistributedDataParallelConfig,
    "optimizer": OptimizerConfig,
}
_WITHOUT_TE: Final = (
    "layers of Transformer Engine: transformer_engine is not installed on this node; use Megatron's"
    " local layers (get_gpt_layer_local_spec), or install it"
)
_OF_TRANSFORMER_ENGINE: Final = re.compile(
    r"transformer[ _-]?engine|\bTE[A-Z]\w+|\bHAVE_TE\b", re.IGNORECASE
)


class RefusedSettingsError(Exception):
    """Settings that the loop can't train with. The text names each with its reason."""


@contextlib.contextmanager
def refusing_settings() -> Iterator[None]:
    """Check Megatron's configurations when the block makes them, and again if it fails.

    Raises:
        RefusedSettingsError: A configuration has a setting that the table refuses, or the block
            failed for want of Transformer Engine.
    """
    made: list[tuple[Holder, object]] = []
    originals: dict[Holder, Any] = {name: _hook(kind) for name, kind in WATCHED.items()}
    for holder, original in originals.items():
        setattr(WATCHED[holder], "__post_init__", _checked(holder, original, made))  # noqa: B010
    try:
        yield
    except RefusedSettingsError:
        raise
    except Exception as error:
        # Set after the configuration was made, and perhaps the reason of the failure.
        reasons = [str(one) for holder, config in made for one in refused(holder, config)]
        if not reasons and _is_for_want_of_te(error):
            reasons = [_WITHOUT_TE]
        if reasons:
            raise RefusedSettingsError("; ".join(dict.fromkeys(reasons))) from error
        raise
    finally:
        for holder, original in originals.items():
            setattr(WATCHED[holder], "__post_init__", original)  # noqa: B010 - mypy knows no such one


def refused(holder: Holder, config: object) -> list[Unsupported]:
    """Return the settings of ``config`` that the table refuses, and that are not the default."""
    defaults = {one.name: one.default for one in dataclasses.fields(WATCHED[holder])}
    return [
        Unsupported(f"{setting.name} = {value!r}", option.reason, can_train=False)
        for option in OPTIONS
        if not option.can_train
        for setting in option.settings
        if setting.holder == holder and setting.name in defaults
        if _is_refused(setting, value := getattr(config, setting.name), defaults[setting.name])
    ]


def _is_refused(setting: OptionSetting, value: object, default: object) -> bool:
    return value != default and not setting.is_fine(value)


def _hook(kind: type) -> Any:  # noqa: ANN401 - a method of Megatron's
    return kind.__post_init__  # type: ignore[attr-defined]


def _checked(holder: Holder, original: Any, made: list[tuple[Holder, object]]) -> Any:  # noqa: ANN401
    def check(config: object) -> None:
        found = refused(holder, config)
        if found:
            raise RefusedSettingsError("; ".join(map(str, found)))
        made.append((holder, config))
        original(config)

    return check


def _is_for_want_of_te(error: Exception) -> bool:
    """Return whether Megatron failed at a place or with words of a package that is missing."""
    if importlib.util.find_spec("transformer_engine") is not None:
        return False
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or "/megatron/" not in frames[-1].filename:
        return False
    last = frames[-1]
    texts = (str(error), last.name, last.line or "", last.filename)
    return any(_OF_TRANSFORMER_ENGINE.search(text) for text in texts)
