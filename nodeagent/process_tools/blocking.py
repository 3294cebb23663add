"""Work that may block without end, in daemon threads of its own.

A call into a driver or a dead network file system can hang without end. The loop must not, and
neither must the agent's end: the threads of asyncio's own pool are waited for, these are not.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_LOG = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


class Blocking(Generic[ResultT]):
    """A kind of work that is done again and again, never twice at a time.

    The work handles its own errors; one that escapes it is logged and its answer is None.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: asyncio.Future[ResultT | None] | None = None

    async def call(self, work: Callable[[], ResultT], limit_s: float) -> ResultT | None:
        """Do ``work`` and return its result, or None if it failed.

        A call that comes while the last one still hangs waits for that one instead.

        Raises:
            TimeoutError: It takes longer than ``limit_s``; the thread continues.
        """
        if self._running is None:
            loop = asyncio.get_running_loop()
            self._running = loop.create_future()
            arguments = (work, loop, self._running)
            threading.Thread(target=self._run, args=arguments, name=self._name, daemon=True).start()
        async with asyncio.timeout(limit_s):
            return await asyncio.shield(self._running)

    def _run(
        self,
        work: Callable[[], ResultT],
        loop: asyncio.AbstractEventLoop,
        answer: "asyncio.Future[ResultT | None]",
    ) -> None:
        result: ResultT | None = None
        try:
            result = work()
        except Exception:  # noqa: BLE001 - whatever it is, the caller must not wait for ever
            _LOG.exception("blocking call failed: name=%s", self._name)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the agent has ended
            loop.call_soon_threadsafe(self._finish, answer, result)

    def _finish(self, answer: "asyncio.Future[ResultT | None]", result: ResultT | None) -> None:
        self._running = None
        if not answer.done():
            answer.set_result(result)
