"""However the demo ends, nothing of it is left: no process, no socket, no directory."""

import asyncio
import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
import termios
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.localcluster.interpreter import module_argv, module_environment
from controller.localcluster.process_tree import Process, find_process, is_running
from tests.fakes.node import until

pytestmark = pytest.mark.ssh


@dataclass(frozen=True)
class RunningDemo:
    """A demo in a process of its own, the foreground job of a terminal of its own."""

    process: "subprocess.Popen[bytes]"
    terminal: int
    root: Path
    ports: list[int]
    warden: int
    others: list[Process]

    def is_gone(self) -> bool:
        return (
            self.process.poll() is not None
            and not any(is_running(process) for process in self.others)
            and not self.root.exists()
            and not any(_listens(port) for port in self.ports)
        )


@pytest.fixture
async def demo(request: pytest.FixtureRequest) -> AsyncIterator[RunningDemo]:
    """A running demo with daemons on its nodes."""
    master, slave = pty.openpty()
    process = _start_demo(getattr(request, "param", "auto"), slave)
    os.close(slave)
    assert process.stdout is not None
    try:
        line = await asyncio.to_thread(process.stdout.readline)
        facts = json.loads(line)
        found = [find_process(pid) for pid in facts["pids"]]
        others = [each for each in found if each is not None]  # a session may just have ended
        assert len(others) >= 9  # warden; twice a host, a server, a daemon and its child
        yield RunningDemo(
            process, master, Path(facts["root"]), facts["ports"], facts["warden"], others
        )
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(master)


def _start_demo(sshd: str, terminal: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [*module_argv("tests.fakes.demo_owner"), sshd, "loopback"],
        env={**os.environ, **module_environment()},
        stdin=terminal,
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no threads yet
    )


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _kill(demo: RunningDemo) -> None:
    demo.process.kill()


def _terminate(demo: RunningDemo) -> None:
    demo.process.terminate()


def _press_ctrl_c(demo: RunningDemo) -> None:
    os.write(demo.terminal, b"\x03")


def _hang_up(demo: RunningDemo) -> None:
    os.killpg(demo.process.pid, signal.SIGHUP)


def _kill_warden_then_demo(demo: RunningDemo) -> None:
    os.kill(demo.warden, signal.SIGKILL)
    demo.process.kill()


def _kill_demo_then_warden(demo: RunningDemo) -> None:
    demo.process.kill()
    os.kill(demo.warden, signal.SIGKILL)


@pytest.mark.parametrize(
    "end",
    [
        _kill,
        _terminate,
        _press_ctrl_c,
        _hang_up,
        _kill_warden_then_demo,
        _kill_demo_then_warden,
    ],
)
async def test_nothing_is_left_after(end: Callable[[RunningDemo], None], demo: RunningDemo) -> None:
    end(demo)
    await until(demo.is_gone, "everything of the demo is gone")


@pytest.mark.parametrize("demo", ["asyncssh"], indirect=True)
async def test_nothing_is_left_of_asyncssh_servers_after_a_kill(demo: RunningDemo) -> None:
    demo.process.kill()
    await until(demo.is_gone, "everything of the demo is gone")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_nothing_but_the_demo_itself_is_left_when_the_warden_ends(
    demo: RunningDemo, number: signal.Signals
) -> None:
    os.kill(demo.warden, number)
    await until(
        lambda: not any(is_running(each) for each in demo.others) and not demo.root.exists(),
        "everything but the demo is gone",
    )
    assert demo.process.poll() is None


async def test_the_warden_does_not_hear_the_signals_of_a_terminal(demo: RunningDemo) -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.kill(demo.warden, number)
    demo.process.kill()
    await until(demo.is_gone, "it went on until the demo's end, and then cleaned up")
