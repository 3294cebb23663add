"""Reads torch's flight recorder inside the rank that it records.

torch 2.13 records the collectives of gloo and of NCCL, each in a ring buffer of its own. Their size
is set before torch is imported (``warm_imports``). torch keeps the interpreter's lock while it
reads: about 7 ms for 256 collectives of gloo, and more in proportion. All of the rank waits
meanwhile. So a ring that a user made longer than ``_MAX_ENTRIES`` is not read, and that is logged.

This was run with gloo, and with NCCL in one rank on a GPU. Its JSON comes from the same code of
torch and has the same fields. There torch queries the driver for completed events without waiting.
"""

import logging
import os
from collections.abc import Iterator
from functools import cache
from typing import Final

from torch._C import _distributed_c10d

from nodeagent.detect.flight_record import newest_collectives
from nodeagent.protocol.standing import Collective

_LOG = logging.getLogger(__name__)

_READERS: Final = tuple(
    getattr(_distributed_c10d, name)
    for name in ("_dump_nccl_trace_json", "_dump_fr_trace_json")
    if hasattr(_distributed_c10d, name)
)
_SIZES: Final = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_MAX_ENTRIES: Final = 512
_WITH_COLLECTIVES: Final = True
_ONLY_ACTIVE: Final = False


def recorded_collectives(since_ns: int) -> tuple[Collective, ...]:
    """Return the newest collective of each process group; none if the recorder has no records.

    ``since_ns`` is when the generation began, nanoseconds since the epoch.
    """
    return newest_collectives(_records(), since_ns) if _is_short() else ()


def _records() -> Iterator[bytes]:
    for reader in _READERS:
        try:
            yield reader(_WITH_COLLECTIVES, _ONLY_ACTIVE)
        except (RuntimeError, TypeError) as error:
            _LOG.warning("cannot read the flight recorder: reason=%s", error)


@cache
def _is_short() -> bool:
    """Whether the ring may be read. The first call logs the reason if it may not."""
    sizes = {name: os.environ[name] for name in _SIZES if name in os.environ}
    too_long = [
        f"{name}={size}"
        for name, size in sizes.items()
        if not (size.isdecimal() and int(size) <= _MAX_ENTRIES)
    ]
    if too_long:
        _LOG.warning(
            "flight recorder not read, a hang will not name its collective:"
            " settings=%s max_entries=%d",
            " ".join(too_long),
            _MAX_ENTRIES,
        )
    return not too_long
