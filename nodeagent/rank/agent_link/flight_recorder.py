"""Reading torch's flight recorder in the rank that it records.

torch 2.13 records the collectives of gloo and of NCCL, each in a ring of its own; how long the rings
are is set before torch is imported (``imports``). torch keeps the interpreter's lock while it reads,
some 7 ms for 256 collectives of gloo, and in proportion for more. So a ring that a user has made longer
than ``_MAX_ENTRIES`` is not read, and that is logged: the whole rank would stand still meanwhile.

Run with gloo. **The reading of NCCL's ring has not been run on a GPU yet**; its JSON comes from the
same code of torch, with the same fields. There torch asks the driver, without waiting, whether events
have passed.
"""

import logging
import os
from collections.abc import Iterator
from functools import cache
from typing import Final

from torch._C import _distributed_c10d

from nodeagent.detect.flight_record import newest_collectives
from nodeagent.protocol.standing import Collective

logger = logging.getLogger(__name__)

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
    """Return the newest collective of each process group; none where the recorder says nothing.

    ``since_ns`` is when the generation began, nanoseconds since the epoch.
    """
    return newest_collectives(_records(), since_ns) if _is_short() else ()


def _records() -> Iterator[bytes]:
    for reader in _READERS:
        try:
            yield reader(_WITH_COLLECTIVES, _ONLY_ACTIVE)
        except (RuntimeError, TypeError) as error:
            logger.warning("the flight recorder can't be read: %s", error)


@cache
def _is_short() -> bool:
    """Whether the ring may be read. What forbids it is logged at the first call."""
    sizes = {name: os.environ[name] for name in _SIZES if name in os.environ}
    too_long = [
        f"{name}={size}"
        for name, size in sizes.items()
        if not (size.isdecimal() and int(size) <= _MAX_ENTRIES)
    ]
    if too_long:
        logger.warning(
            "%s: torch's flight recorder is read up to %d only, so no collective is named in a hang",
            ", ".join(too_long),
            _MAX_ENTRIES,
        )
    return not too_long
