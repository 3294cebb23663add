"""What the tests of the local cluster share: a daemon on a node, and a guard against leftovers."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncssh

from controller.localcluster.local_node import LocalNode
from controller.localcluster.process_tree import (
    Process,
    become_subreaper,
    find_descendants,
    find_process,
    is_running,
    kill_all,
)
from controller.localcluster.ssh.login import log_in

DAEMON = Path(__file__).parent / "fake_daemon.py"


@contextmanager
def no_leftovers() -> Iterator[None]:
    """Inherit every process that escapes from the test, kill it, and fail the test for it.

    Also where warden and hosts were killed: their orphans come to us, not to init.
    """
    before = {process.pid for process in find_descendants(os.getpid())}
    become_subreaper()
    try:
        yield
        assert not _still_running_below_us(before)
    finally:
        # Again after every kill: the children of the killed come to us.
        while left := find_descendants(os.getpid(), exclude=before):
            kill_all(left)
            _reap(left)
        become_subreaper(is_on=False)


def _still_running_below_us(before: set[int]) -> list[Process]:
    """Give a warden that is cleaning up some seconds to end; return what is left then."""
    running: list[Process] = []
    for _ in range(500):
        left = find_descendants(os.getpid(), exclude=before)
        running = [process for process in left if process.state != "Z"]
        if not running:
            break
        time.sleep(0.01)
    return running


def _reap(processes: list[Process]) -> None:
    for process in processes:
        if process.parent == os.getpid():
            os.waitpid(process.pid, 0)


async def run_daemon(node: LocalNode) -> Process:
    """Start the daemon on ``node`` over SSH, close the connection, return the daemon."""
    pid_file = node.state_dir / "daemon.pid"
    start = f"{sys.executable} -I {DAEMON} {node.state_dir}"
    async with await log_in(node) as connection:
        await run_on(connection, f"{start} && until [ -e {pid_file} ]; do sleep 0.01; done")
    daemon = find_process(int(pid_file.read_text()))
    assert daemon is not None
    assert is_running(daemon)
    return daemon


async def run_on(connection: asyncssh.SSHClientConnection, command: str) -> str:
    """Run ``command`` and return its output without the last newline."""
    result = await connection.run(command, check=True)
    return str(result.stdout).rstrip("\n")


async def ask_through(connection: asyncssh.SSHClientConnection, node: LocalNode, text: str) -> str:
    """Send a line to the daemon of ``node`` through SSH; return its answer."""
    reader, writer = await connection.open_unix_connection(str(node.state_dir / "echo.sock"))
    try:
        writer.write(text.encode() + b"\n")
        answer: bytes = await reader.readline()
        return answer.decode().rstrip("\n")
    finally:
        writer.close()
