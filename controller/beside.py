"""Work beside the event loop, in a thread that nobody waits for at the end.

What is worked out here is never needed to go on. So an error of ours in it is an outcome, for operators to read, and
does not end the controller.
"""

import asyncio
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no result: a fault of ours, in one line."""

    text: str


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
