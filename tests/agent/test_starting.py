"""The ways to start an agent. No systemd runs here: small scripts stand in for its commands.

They run ``agent.sh`` as the manager would, and record their arguments.
"""

import asyncio
import os
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent import starting
from nodeagent.control import AgentChoice, ControlError, ask_agent, start_agent, stop_agent
from nodeagent.process_tools.node_clock import SystemNodeClock
from nodeagent.process_tools.service_manager import ServiceManager
from nodeagent.session.local_queries import AgentStatus, AskStatus
from tests.fakes.node import AgentNode, until

CLOCK = SystemNodeClock()
UNIT = "unicron-agent.service"
SYSTEMCTL = """\
echo "systemctl $*" >>"$PLACE/calls"
case "$*" in
  *restart*) setsid /bin/sh "$PLACE/state/agent.sh" & echo $! >"$PLACE/main.pid" ;;
  *stop*) kill "$(cat "$PLACE/main.pid")" ;;
esac
"""
SYSTEMD_RUN = """\
echo "systemd-run $*" >>"$PLACE/calls"
while [ "$1" != /bin/sh ]; do shift; done
setsid "$@" & echo $! >"$PLACE/main.pid"
"""
DETACHED = pytest.mark.filterwarnings(
    "ignore:subprocess .* is still running", "ignore::pytest.PytestUnraisableExceptionWarning"
)
"""For the agent that is a child of this process, which does not end after the start."""
REFUSES = 'echo "Failed to connect to bus: Permission denied" >&2; exit 1\n'


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with stand-ins for systemd's commands; the agent's state is in ``state``."""
    owner = AgentNode()
    place = owner.state_dir
    (place / "bin").mkdir(parents=True)
    (place / "state").mkdir()
    write(place, "systemctl", SYSTEMCTL)
    write(place, "systemd-run", SYSTEMD_RUN)
    monkeypatch.setenv("PATH", f"{place}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("PLACE", str(place))
    monkeypatch.setattr(starting, "_LINGER", place / "linger")
    monkeypatch.setattr(starting, "_RUNTIME", place / "run")
    try:
        yield place
    finally:
        stop_agent(place / "state", kill_ranks=True, clock=CLOCK)
        owner.remove()


def write(place: Path, name: str, text: str) -> None:
    path = place / "bin" / name
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)


def user_manager(place: Path) -> None:
    """Have the user's manager run without logins."""
    (place / "run" / str(os.getuid()) / "systemd").mkdir(parents=True)
    (place / "run" / str(os.getuid()) / "systemd" / "private").touch()
    (place / "linger").mkdir()
    (place / "linger" / "root").touch()
    (place / "linger" / os.environ.get("USER", "root")).touch()


def choice(place: Path, unit: str = "") -> AgentChoice:
    return AgentChoice(place / "state", "n1", 2, unit)


def start(place: Path, unit: str = "") -> tuple[str, AgentStatus]:
    started = start_agent(choice(place, unit), ["--no-template"], CLOCK)
    assert started.is_new
    return started.way, started.status


def calls(place: Path) -> list[str]:
    return (place / "calls").read_text().splitlines()


def test_the_sites_unit_runs_the_agent_and_is_stopped_with_it(node: Path) -> None:
    way, status = start(node, UNIT)
    assert way == f"unit {UNIT}"
    assert status.pid == int((node / "main.pid").read_text())
    assert stat.S_IMODE((node / "state" / "agent.sh").stat().st_mode) == 0o700
    stop_agent(node / "state", kill_ranks=False, clock=CLOCK)
    assert calls(node) == [f"systemctl restart {UNIT}", f"systemctl stop {UNIT}"]
    assert ask_agent(node / "state", AskStatus()) is None


def test_a_unit_that_does_not_start_says_what_it_has_to_run(node: Path) -> None:
    write(node, "systemctl", REFUSES)
    with pytest.raises(ControlError, match="Permission denied; the unit has to run") as refused:
        start(node, UNIT)
    assert f"{node}/state/agent.sh" in str(refused.value)
    (node / "state" / "agent.unit").unlink()


def test_a_user_manager_without_logins_runs_the_agent(node: Path) -> None:
    user_manager(node)
    way, _ = start(node)
    [line] = calls(node)
    name = way.removeprefix("user unit ")
    assert f"--unit={name}" in line
    for property_ in ("Type=notify", "KillMode=process", "Restart=always", "WatchdogSec=30"):
        assert f"--property={property_}" in line
    assert "--setenv=PATH " in line
    assert os.environ["PATH"] not in line, "values of variables must not show in lists of processes"
    stop_agent(node / "state", kill_ranks=False, clock=CLOCK)
    assert calls(node)[1:] == [f"systemctl --user stop {name}"]


@DETACHED
def test_without_a_manager_that_works_the_agent_is_detached(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user_manager(node)
    write(node, "systemd-run", REFUSES)
    way, status = start(node)
    assert way == "detached"
    assert os.getsid(status.pid) == status.pid
    assert (
        "no unit of the user's manager, so detached: Failed to connect" in capsys.readouterr().err
    )
    stop_agent(node / "state", kill_ranks=False, clock=CLOCK)
    assert not (node / "calls").exists(), "there is no unit to stop"


async def test_a_manager_that_starts_the_agent_again_gets_the_same_one(node: Path) -> None:
    _, status = start(node, UNIT)
    os.kill(status.pid, signal.SIGKILL)
    await until(lambda: ask_agent(node / "state", AskStatus()) is None, "the agent is gone")
    await asyncio.create_subprocess_exec("systemctl", "restart", UNIT)
    await until(lambda: ask_agent(node / "state", AskStatus()) is not None, "it answers")
    found = ask_agent(node / "state", AskStatus())
    assert found is not None
    assert (found.node, found.num_workers) == ("n1", 2)


def test_the_manager_is_notified_and_ranks_inherit_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "30000000")
        manager = ServiceManager()
        manager.ready()
        manager.alive()
        assert [listener.recv(64) for _ in range(2)] == [b"READY=1", b"WATCHDOG=1"]
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & os.environ.keys()
    manager.alive()  # nobody listens any more


@DETACHED
def test_a_running_agent_says_that_it_is_ready(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(node / "notify"))
        listener.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(node / "notify"))
        start(node)
        assert [listener.recv(64) for _ in range(2)] == [b"READY=1", b"WATCHDOG=1"]
