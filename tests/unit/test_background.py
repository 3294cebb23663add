"""Work in a background thread."""

import asyncio
import threading
import time

import pytest

from controller.background import Failure, LoopPauses, in_background


async def test_what_it_returns_comes_back() -> None:
    assert await in_background(lambda: 6 * 7) == 42


async def test_an_error_is_an_outcome_that_names_the_place() -> None:
    outcome = await in_background(lambda: 1 // 0)
    assert isinstance(outcome, Failure)
    assert outcome.text.startswith("ZeroDivisionError: ")
    assert "test_background.py, line" in outcome.text


async def test_nobody_waits_for_it_at_the_end() -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def work() -> None:
        has_begun.set()
        may_end.wait(30)

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        waiting = group.create_task(in_background(work))
        await asyncio.to_thread(has_begun.wait)
        waiting.cancel()
    assert waiting.cancelled()
    may_end.set()  # its result finds nobody, and that is no error


def test_work_that_calls_often_sleeps_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s: list[float] = [0.0]
    slept_s: list[float] = []
    monkeypatch.setattr(time, "perf_counter", lambda: now_s[0])
    monkeypatch.setattr(time, "sleep", slept_s.append)
    pauses = LoopPauses()
    for _ in range(100):
        now_s[0] += 0.004
        pauses()
    assert len(slept_s) == 50
    assert all(0 < each < 0.001 for each in slept_s)
