"""The kernel kills for memory, where this user may make a memory cgroup."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from controller.drills.memory_limit import kill_for_memory

_GROWING = (
    "b = []\nwhile True:\n    b.append(bytearray(1 << 16))\n    __import__('time').sleep(.01)"
)


def groups_of(pid: int) -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"**/unicron-drill-{pid}"))


async def test_process_ends_by_the_kernel_or_is_left_alone() -> None:
    with subprocess.Popen([sys.executable, "-c", _GROWING]) as process:  # noqa: ASYNC220 - forked
        async with asyncio.TaskGroup() as group:
            reaping = group.create_task(asyncio.to_thread(process.wait, 20))
            is_killed = await kill_for_memory(process.pid)
            if not is_killed:
                assert not reaping.done()
                process.kill()
        assert reaping.result() == -signal.SIGKILL
    assert not groups_of(process.pid)


async def test_process_that_has_ended_leaves_no_group() -> None:
    with subprocess.Popen(["true"]) as process:  # noqa: ASYNC220 - the same
        process.wait()
    assert not await kill_for_memory(process.pid)
    assert not groups_of(process.pid)
