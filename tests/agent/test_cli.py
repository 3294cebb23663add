"""The node's command line: start twice, start in the place of another, status, stop, bad input."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nodeagent.probes.process_stats import read_stat
from nodeagent.protocol.observations import RankExited
from tests.fakes.fake_rank import Script, launch
from tests.fakes.node import REPOSITORY, AgentNode, record_pids, until
from tests.fakes.process_states import is_alive


@pytest.fixture
async def bare() -> AsyncIterator[AgentNode]:
    """A node without an agent."""
    node = AgentNode()
    try:
        yield node
    finally:
        node.remove()


async def ended(agent: int) -> None:
    """Wait for the agent's end: it gives up the lock, for which a stop waits, a moment before."""
    await until(lambda: not is_alive(agent), "the agent has ended")


def test_start_is_idempotent_and_detached(bare: AgentNode) -> None:
    first = bare.call("start")
    assert first.returncode == 0, first.stderr
    agent = json.loads(first.stdout)
    assert agent["is_new"]
    assert agent["node"] == "n1"
    assert agent["ready_s"] > 0
    stat = read_stat(agent["pid"])
    assert stat is not None
    assert os.getsid(agent["pid"]) == agent["pid"]
    again = json.loads(bare.call("start").stdout)
    assert not again["is_new"]
    assert (again["pid"], again["agent_id"]) == (agent["pid"], agent["agent_id"])
    status = json.loads(bare.call("status").stdout)
    assert status["pid"] == agent["pid"]
    mode = (bare.state_dir / "agent.sock").stat().st_mode & 0o777
    assert mode == 0o600
    assert bare.state_dir.stat().st_mode & 0o777 == 0o700


def test_second_run_refuses_in_one_line(bare: AgentNode) -> None:
    assert bare.call("start").returncode == 0
    second = bare.call("run")
    assert second.returncode == 1
    assert second.stderr == f"nodeagent: an agent runs in {bare.state_dir} already\n"


def test_start_as_another_node_is_refused(bare: AgentNode) -> None:
    assert bare.call("start").returncode == 0
    other = bare.call("start", "--node", "n2")
    assert other.returncode == 1
    assert "belongs to node n1, not n2" in other.stderr


async def test_copied_code_replaces_the_agent_and_adopts_its_ranks(
    bare: AgentNode, tmp_path: Path
) -> None:
    first = json.loads(bare.call("start").stdout)
    async with bare.controller() as controller:
        await controller.start_ranks(launch(Script()))
        pids = record_pids(bare)
    template = json.loads((bare.state_dir / "template.json").read_text())["pid"]
    for package in ("nodeagent", "profiles"):
        shutil.copytree(REPOSITORY / package, tmp_path / package)
    shutil.copy(tmp_path / "nodeagent" / "__main__.py", tmp_path)
    result = bare.call("start", program=[str(tmp_path)])
    assert result.returncode == 0, result.stderr
    second = json.loads(result.stdout)
    assert second["is_new"]
    assert second["pid"] != first["pid"]
    status = await bare.status()
    assert status.code_dir == str(tmp_path)
    assert {rank.pid for rank in status.ranks} == set(pids.values())
    # How they end is still known: the former template waits for them.
    (pid,) = pids.values()
    async with bare.controller() as controller:
        os.kill(pid, signal.SIGKILL)
        exited = await controller.first(RankExited)
        assert (exited.pid, exited.signal) == (pid, signal.SIGKILL)
    await ended(template)


async def test_stop_leaves_the_ranks_and_kill_ranks_does_not(bare: AgentNode) -> None:
    agent = json.loads(bare.call("start").stdout)["pid"]
    async with bare.controller() as controller:
        await controller.start_ranks(launch(Script()))
    (rank,) = record_pids(bare).values()
    template = json.loads((bare.state_dir / "template.json").read_text())["pid"]
    assert bare.call("stop").returncode == 0
    await ended(agent)
    assert is_alive(rank)
    assert is_alive(template)
    assert bare.call("stop", "--kill-ranks").returncode == 0
    await until(lambda: not is_alive(rank) and not is_alive(template), "everything is gone")
    assert not list(bare.state_dir.glob("*.sock"))


async def test_stop_ends_an_agent_that_hangs(bare: AgentNode) -> None:
    agent = json.loads(bare.call("start").stdout)["pid"]
    os.kill(agent, signal.SIGSTOP)
    result = bare.call("stop", "--kill-ranks")
    assert result.returncode == 0, result.stderr
    await ended(agent)


def test_status_without_an_agent_is_one_line(bare: AgentNode) -> None:
    result = bare.call("status")
    assert result.returncode == 1
    assert result.stderr == f"nodeagent: no agent answers in {bare.state_dir}\n"


def test_a_path_that_is_too_long_for_sockets_has_them_elsewhere(tmp_path: Path) -> None:
    directory = tmp_path / ("x" * 100)

    def call(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "nodeagent", *words, "--state-dir", str(directory)]
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)

    started = call("start", "--node", "n1", "--num-workers", "2", "--no-template")
    assert started.returncode == 0, started.stderr
    socket = Path(json.loads(started.stdout)["socket"])
    assert socket.is_relative_to("/tmp")
    assert socket.stat().st_mode & 0o777 == 0o600
    assert socket.parent.stat().st_mode & 0o777 == 0o700
    assert json.loads(call("status").stdout)["pid"] == json.loads(started.stdout)["pid"]
    assert call("stop", "--kill-ranks").returncode == 0
    assert not socket.parent.exists()


def test_failed_start_says_why_in_one_line(bare: AgentNode) -> None:
    (bare.state_dir / "outbox.jsonl").mkdir()
    result = bare.call("start")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "outbox.jsonl" in result.stderr


def test_agent_never_imports_torch_or_the_controller() -> None:
    program = "import sys, nodeagent.cli; print(sorted({m.split('.')[0] for m in sys.modules}))"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    for package in ("torch", "megatron", "numpy", "controller", "console", "psutil", "asyncssh"):
        assert f"'{package}'" not in result.stdout
