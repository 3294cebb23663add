"""Process descriptors: a handle on the process itself, where a pid may come to mean a stranger.

They work for any process of the same user, also for one whose parent is another or dead.
"""

import os
import signal


def open_pidfd(pid: int) -> int | None:
    """Return a descriptor of ``pid``, or None if there is no such process."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def kill(pidfd: int) -> None:
    """Send SIGKILL; nothing happens if the process has ended."""
    send(pidfd, signal.SIGKILL)


def terminate(pidfd: int) -> None:
    """Send SIGTERM; nothing happens if the process has ended."""
    send(pidfd, signal.SIGTERM)


def send(pidfd: int, number: signal.Signals) -> None:
    """Send a signal; nothing happens if the process has ended."""
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return


def stop(pidfd: int) -> None:
    """Send SIGSTOP; nothing happens if the process has ended."""
    send(pidfd, signal.SIGSTOP)


async def wait_ended(pidfd: int) -> None:
    """Wait until the process has ended; a zombie has."""
    import asyncio  # noqa: PLC0415 - commands of the node need it nowhere

    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def wake() -> None:
        # Level-triggered: it may be called again before the waiter has removed it.
        if not ended.done():
            ended.set_result(None)

    loop.add_reader(pidfd, wake)
    try:
        await ended
    finally:
        loop.remove_reader(pidfd)
