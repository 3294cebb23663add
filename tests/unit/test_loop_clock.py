"""The loop's awake time: a pause counts little, and operators are told about a long one."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from controller.clock import SystemClock
from controller.loop_clock import LoopClock


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
async def clock(pauses: list[float]) -> AsyncIterator[LoopClock]:
    clock = LoopClock(SystemClock(), pauses.append)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(clock.run())
        await asyncio.sleep(0)
        yield clock
        task.cancel()


async def test_time_counts_while_the_loop_runs(clock: LoopClock, pauses: list[float]) -> None:
    awake_s, began_s = clock.awake_s(), time.perf_counter()
    await asyncio.sleep(0.35)
    passed_s = time.perf_counter() - began_s
    assert 0.3 < clock.awake_s() - awake_s <= passed_s + 0.01
    assert not pauses


@pytest.mark.parametrize("pause_s", [0.5, 1.5])
async def test_of_a_pause_almost_nothing_counts(
    clock: LoopClock, pauses: list[float], pause_s: float
) -> None:
    await asyncio.sleep(0.15)
    awake_s = clock.awake_s()
    time.sleep(pause_s)  # noqa: ASYNC251 - the loop is to be held up
    assert clock.awake_s() - awake_s <= 0.21, "before the next tick"
    await asyncio.sleep(0.15)
    assert clock.awake_s() - awake_s <= 0.5, "after it"
    assert pauses == ([pytest.approx(pause_s, abs=0.3)] if pause_s > 1.0 else [])


async def test_what_the_sockets_hold_is_read_in_a_few_rounds(clock: LoopClock) -> None:
    lines: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        _, writer = await asyncio.open_connection(host, port)
        await asyncio.sleep(0.05)
        writer.write(b"report\n")
        await clock.catch_up()
        writer.close()
    assert lines == [b"report\n"]
