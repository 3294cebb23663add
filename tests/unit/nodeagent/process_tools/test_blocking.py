"""Work that hangs holds up nobody."""

import threading

import pytest

from nodeagent.process_tools.blocking import Blocking


async def test_work_is_done_in_another_thread() -> None:
    blocking: Blocking[int] = Blocking("test")
    assert await blocking.call(threading.get_ident, 5.0) != threading.get_ident()


async def test_work_that_hangs_is_not_begun_again_and_its_answer_still_comes() -> None:
    go_on = threading.Event()
    begun: list[int] = []

    def work() -> str:
        begun.append(1)
        go_on.wait(10)
        return "done"

    blocking: Blocking[str] = Blocking("test")
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await blocking.call(work, 0.02)
    go_on.set()
    assert await blocking.call(work, 5.0) == "done"
    assert await blocking.call(lambda: "next", 5.0) == "next"
    assert len(begun) == 1


async def test_work_that_fails_is_logged_and_has_no_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def work() -> int:
        raise ValueError("a bug")

    blocking: Blocking[int] = Blocking("test")
    assert await blocking.call(work, 5.0) is None
    assert "ValueError: a bug" in caplog.text
    assert await blocking.call(lambda: 1, 5.0) == 1
