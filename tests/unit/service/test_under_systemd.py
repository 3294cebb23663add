"""A real controller under a service manager: it reports ready, alive and stopping."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from tests.fakes.directories import short_directory
from tests.fakes.playgrounds import Foreground
from tests.unit.operate.test_notify import CLUSTER

LIMIT_S = 30.0


@pytest.fixture
def directory() -> Iterator[Path]:
    with short_directory() as made:
        yield made


BUGGY = """
import sys
from controller.alerts import notifier
def broken(view):
    raise ZeroDivisionError("made up")
notifier.present_alerts = broken
from controller.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_bug_beside_recovery_is_announced_and_ends_no_controller(directory: Path) -> None:
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(directory / "key"))
    path = directory / "cluster.toml"
    text = CLUSTER.replace('hosts = "n1"', 'name = "n1"\nhost = "127.0.0.1"\nport = 1')
    path.write_text(f'{text}[[notify]]\nname = "x"\nurl = "json://127.0.0.1:1"\n')
    process = subprocess.Popen(
        [sys.executable, "-c", BUGGY, "run", str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    running = Foreground(process)
    try:
        assert "please report it" in running.says("stopped by a bug")
        assert process.poll() is None
    finally:
        assert running.end() == 0


def test_systemd_hears_of_the_start_of_each_period_and_of_the_end(directory: Path) -> None:
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(directory / "key"))
    path = directory / "cluster.toml"
    # Nothing listens at the node: a controller is ready without its nodes.
    path.write_text(CLUSTER.replace('hosts = "n1"', 'name = "n1"\nhost = "127.0.0.1"\nport = 1'))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(directory / "notify"))
        manager.settimeout(LIMIT_S)
        variables = {"NOTIFY_SOCKET": str(directory / "notify"), "WATCHDOG_USEC": "300000"}
        process = subprocess.Popen(
            [sys.executable, "-m", "controller.cli", "run", str(path)],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            messages = [manager.recv(4096).decode() for _ in range(4)]
            process.terminate()
            while messages[-1] != "STOPPING=1":
                messages.append(manager.recv(4096).decode())
            assert process.wait(LIMIT_S) == 0
        finally:
            process.kill()
            process.wait()
    assert messages[:4] == [
        "READY=1",
        f"STATUS=cluster demo from {path}",
        "WATCHDOG=1",
        "WATCHDOG=1",
    ]
