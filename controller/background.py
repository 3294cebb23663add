"""Work beside the event loop, in a thread that nobody waits for at the end.

What is worked out here is never needed to go on. So an error of ours in it is an outcome, for operators to read, and
does not end the controller.

Threads share one interpreter lock. numpy gives it up for moments, too short for the event loop to wake and take it: a
thread of many small steps keeps the loop waiting for up to half a second. So such work calls ``Turns`` between its
steps.
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

_TURN_S: Final = 0.005
_PAUSE_S: Final = 0.0005


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no result: a fault of ours, in one line."""

    text: str


class Turns:
    """Called often by a thread at work, it sleeps for a moment now and then: the event loop has its turn."""

    def __init__(self) -> None:
        self._since_s = time.perf_counter()

    def __call__(self) -> None:
        """Sleep, if the last time was long enough ago."""
        if time.perf_counter() - self._since_s > _TURN_S:
            time.sleep(_PAUSE_S)
            self._since_s = time.perf_counter()


async def beside(work: Callable[[], T]) -> T | Failure:
    """Return what ``work`` returns; cancelled, leave it to itself."""
    result: Future[T | Failure] = Future()

    def run() -> None:
        if result.set_running_or_notify_cancel():
            result.set_result(_outcome(work))

    threading.Thread(target=run, name="beside", daemon=True).start()
    return await asyncio.wrap_future(result)


def _outcome(work: Callable[[], T]) -> T | Failure:
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - whatever it is, the controller goes on without
        [*_, place] = traceback.extract_tb(error.__traceback__)
        return Failure(f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})")
