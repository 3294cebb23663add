"""Reading torch's flight recorder in the rank that it records.

torch 2.13 records the collectives of gloo and of NCCL, each in a ring of its own; how long the rings
are is set before torch is imported (``imports``). Reading is done in a thread with a time limit: for
NCCL torch asks the device whether events have passed, and a broken device may not answer.

Run with gloo. **The reading of NCCL's ring has not been run on a GPU yet**; its JSON comes from the
same code of torch, with the same fields.
"""

import logging
import threading
from typing import Final

from torch._C import _distributed_c10d

from nodeagent.detect.flight_record import newest_collectives
from nodeagent.protocol.standing import MAX_COLLECTIVES, Collective

logger = logging.getLogger(__name__)

_READERS: Final = tuple(
    getattr(_distributed_c10d, name)
    for name in ("_dump_nccl_trace_json", "_dump_fr_trace_json")
    if hasattr(_distributed_c10d, name)
)
_LIMIT_S: Final = 0.1
_WITH_COLLECTIVES: Final = True
_ONLY_ACTIVE: Final = False


def recorded_collectives(since_ns: int, limit_s: float = _LIMIT_S) -> tuple[Collective, ...]:
    """Return the newest collective of each process group; none where the recorder says nothing.

    Args:
        since_ns: When the generation began; nanoseconds since the epoch.
        limit_s: How long to wait for the recorder.
    """
    found: list[Collective] = []

    def read() -> None:
        for reader in _READERS:
            try:
                found.extend(newest_collectives(reader(_WITH_COLLECTIVES, _ONLY_ACTIVE), since_ns))
            except (RuntimeError, TypeError) as error:
                logger.warning("the flight recorder can't be read: %s", error)

    reading = threading.Thread(target=read, name="flight recorder", daemon=True)
    reading.start()
    reading.join(limit_s)
    return tuple(found[:MAX_COLLECTIVES])
