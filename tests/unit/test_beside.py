"""Work beside the event loop."""

import asyncio
import threading

from controller.beside import Failure, beside


async def test_what_it_returns_comes_back() -> None:
    assert await beside(lambda: 6 * 7) == 42


async def test_an_error_is_an_outcome_that_names_the_place() -> None:
    outcome = await beside(lambda: 1 // 0)
    assert isinstance(outcome, Failure)
    assert outcome.text.startswith("ZeroDivisionError: ")
    assert "test_beside.py, line" in outcome.text


async def test_nobody_waits_for_it_at_the_end() -> None:
    may_end = threading.Event()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        waiting = group.create_task(beside(lambda: may_end.wait(30)))
        await asyncio.sleep(0.05)
        waiting.cancel()
    assert waiting.cancelled()
    may_end.set()  # its result finds nobody, and that is no error
