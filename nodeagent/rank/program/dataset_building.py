"""Lets Megatron's dataset builder run while a loop is built, where its barrier can't.

Megatron builds indices on rank 0, meets all ranks in a barrier, and reads the indices on the other
ranks. A replacement builds its loop alone: it may not be rank 0, and no peer comes to the barrier.
So one process of each index directory builds, of any rank. The others wait for its done-mark
(``index_directory``). Once the indices are whole, the barrier does nothing.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from torch import distributed

from nodeagent.process_tools.node_clock import SystemNodeClock
from nodeagent.rank.program.index_directory import IndexDirectory

_CLOCK: Final = SystemNodeClock()
_Build = Callable[[Any], list[Any]]

_KEYS: Final = (
    "mock",
    "blend",
    "blend_per_split",
    "mid_level_dataset_surplus",
    "add_extra_token_to_sequence",
    "drop_last_partial_validation_sequence",
)
"""Settings that change the indices, beside those that Megatron itself puts into their names."""

_PRESUMES_INDICES: Final = ("fast_cache_load", "defer_npy_index_mmap")
"""With these settings Megatron reads indices without looking, and never builds any."""


@contextlib.contextmanager
def datasets_without_peers(limit_s: float) -> Iterator[None]:
    """Make ``BlendedMegatronDatasetBuilder.build`` work inside the block without peers.

    Args:
        limit_s: How long to wait for another process that builds the same index directory.

    Raises:
        IndexDirectoryError: From ``build``: the indices were not whole in time, or can't be
            written.
    """
    kind: Any = BlendedMegatronDatasetBuilder
    original: _Build = kind.build
    kind.build = lambda builder: _build(builder, original, limit_s)
    try:
        yield
    finally:
        kind.build = original


def _build(builder: Any, original: _Build, limit_s: float) -> list[Any]:  # noqa: ANN401 - Megatron's
    config = builder.config
    path = _directory(builder)
    if path is None or not builder.is_built_on_rank():
        # Each rank has the indices in memory, or reads none: nothing is shared.
        with _replaced(distributed, barrier=_nothing):
            return original(builder)
    IndexDirectory(path, _key(builder), limit_s, _CLOCK.monotonic_s).ensure(
        lambda staging: _build_alone(builder, original, staging)
    )
    with (
        _replaced(config, path_to_cache=str(path)),
        _replaced(distributed, barrier=_nothing),
    ):
        return original(builder)


def _build_alone(builder: Any, original: _Build, staging: Path) -> None:  # noqa: ANN401 - Megatron's
    """Build as Megatron does on rank 0, the only one that writes indices."""
    with (
        _replaced(builder.config, path_to_cache=str(staging)),
        _replaced(builder, is_built_on_rank=lambda: True),
        _replaced(distributed, barrier=_nothing, get_rank=lambda *_, **__: 0),
    ):
        original(builder)


def _directory(builder: Any) -> Path | None:  # noqa: ANN401 - Megatron's
    """Return the index directory; None if no files are written."""
    config = builder.config
    if any(getattr(config, name, False) for name in _PRESUMES_INDICES):
        return None
    if config.path_to_cache:
        return Path(config.path_to_cache)
    if config.mock:
        return None
    # Megatron's own default, beside the data.
    blends = [config.blend] if config.blend else config.blend_per_split or []
    prefixes = [prefix for blend in blends if blend is not None for prefix in blend[0]]
    return Path(prefixes[0]) / "cache" / f"{builder.cls.__name__}_indices" if prefixes else None


def _key(builder: Any) -> str:  # noqa: ANN401 - Megatron's
    """Return a name for what is built. The same on all ranks, for any number of them."""
    kind, config = builder.cls, builder.config
    names = dict.fromkeys((*kind._key_config_attributes(), *_KEYS))  # noqa: SLF001 - as Megatron
    described = {name: getattr(config, name, None) for name in names}
    parts = [kind.__module__, kind.__qualname__, builder.sizes, described]
    text = json.dumps(parts, default=_identity, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _identity(value: object) -> object:
    own = getattr(value, "unique_identifiers", None)
    return own if own is not None else f"{type(value).__module__}.{type(value).__qualname__}"


def _nothing(*_: object, **__: object) -> None:
    """Stand in for a barrier whose purpose is reached: the indices are whole."""


@contextlib.contextmanager
def _replaced(holder: Any, **values: object) -> Iterator[None]:  # noqa: ANN401 - a module, an object
    originals = {name: getattr(holder, name) for name in values}
    for name, value in values.items():
        setattr(holder, name, value)
    try:
        yield
    finally:
        for name, value in originals.items():
            setattr(holder, name, value)
