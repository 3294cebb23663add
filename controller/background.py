"""Work in a background thread, for results that the controller can do without.

At the end nobody joins the thread. A bug in such work must not end the controller: it becomes a
``Failure``, for operators to read.

Threads share the interpreter lock. numpy releases it too briefly for the event loop to take it, so
a thread of many small steps can stall the loop for up to half a second. Such work calls
``LoopPauses`` between its steps.
"""

import asyncio
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")

_WORK_S: Final = 0.005
_PAUSE_S: Final = 0.0005


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why there is no result: a bug, in one line."""

    text: str


class LoopPauses:
    """Pauses of a working thread, so that the event loop can run. Call it often."""

    def __init__(self) -> None:
        self._since_s = time.perf_counter()

    def __call__(self) -> None:
        """Sleep for a moment, if the last pause was long enough ago."""
        if time.perf_counter() - self._since_s > _WORK_S:
            time.sleep(_PAUSE_S)
            self._since_s = time.perf_counter()


async def in_background(work: Callable[[], T]) -> T | Failure:
    """Return the result of ``work``. If this is cancelled, the thread ends by itself later."""
    result: Future[T | Failure] = Future()

    def run() -> None:
        if result.set_running_or_notify_cancel():
            result.set_result(_outcome(work))

    threading.Thread(target=run, name="background", daemon=True).start()
    return await asyncio.wrap_future(result)


def _outcome(work: Callable[[], T]) -> T | Failure:
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - the controller does not need this result
        [*_, place] = traceback.extract_tb(error.__traceback__)
        return Failure(f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})")
