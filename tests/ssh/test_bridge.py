"""Sessions over a command, where the SSH server forbids forwarding."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from controller.core.events import ContactLost, NodeAttached
from controller.fleet.address import NodeAddress
from controller.localcluster.local_cluster import LocalCluster
from controller.localcluster.local_node import LocalNode
from controller.localcluster.ssh.openssh import OpenSsh
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.observations import IterationCommitted
from tests.fakes.fake_rank import Script, launch
from tests.fakes.fleet_recorder import (
    REPOSITORY,
    FleetRecorder,
    address_of,
    running_fleet,
    without_template,
    write_python,
)

pytestmark = [
    pytest.mark.ssh,
    pytest.mark.skipif(OpenSsh.find() is None, reason="no sshd installed"),
]
HARDENED = ("DisableForwarding yes", "MaxSessions 1")
N1 = NodeId("n1")
NOISY = """\
#!/bin/sh
echo 'Welcome to the cluster! {"quota": 7}'
printf 'no end of line'
eval "$SSH_ORIGINAL_COMMAND"
"""


def bridges(node: LocalNode) -> list[psutil.Process]:
    """Return the processes that bridge to the node's agent. Another test may have bridges, too."""
    found = []
    for process in psutil.process_iter():
        try:
            if {"bridge", f"{node.state_dir}/agent.sock"} <= {*process.cmdline()}:
                found.append(process)
        except psutil.Error:
            continue
    return found


async def test_a_hardened_server_is_used_over_a_bridge(tmp_path: Path) -> None:
    async with LocalCluster.start(1, 1, sshd_config=HARDENED) as cluster:
        options = ("--template-module", "tests.fakes.fake_template")
        address = address_of(cluster.nodes[0], write_python(tmp_path / "python", *options))
        recorder = FleetRecorder()
        async with running_fleet([address], recorder) as fleet:
            first = await recorder.event(NodeAttached)
            assert recorder.bridged == [N1]
            fleet.start_ranks(N1, [launch(Script(num_iterations=40, period_s=0.05))])
            await recorder.observed(IterationCommitted)
            await cluster.cut_connections(N1)
            second = await recorder.event(NodeAttached, 2)
            assert second.agent_id == first.agent_id
            await recorder.until(lambda: recorder.seqs[-1] >= 10)
            assert recorder.seqs == list(range(1, len(recorder.seqs) + 1))
            assert len(recorder.of(ContactLost)) == 1
            assert recorder.bridged == [N1], "it is said once"
            assert not recorder.notes
            [bridge] = bridges(cluster.nodes[0])
            assert bridge.memory_info().rss < 25e6
        assert psutil.wait_procs([bridge], timeout=5)[1] == [], "it ends with the session"


async def test_a_login_shell_that_prints_something_does_no_harm(tmp_path: Path) -> None:
    script, banner = tmp_path / "noisy", tmp_path / "banner"
    script.write_text(NOISY)
    script.chmod(0o755)
    banner.write_text("Authorised use only.\n")
    noise = (f"ForceCommand {script}", f"Banner {banner}")
    for lines in (noise, (*HARDENED, *noise)):
        async with LocalCluster.start(1, 1, sshd_config=lines) as cluster:
            recorder = FleetRecorder()
            async with running_fleet([without_template(cluster.nodes[0])], recorder):
                await recorder.event(NodeAttached)
            assert recorder.bridged == ([N1] if lines != noise else [])
            assert not recorder.notes


async def test_a_bridge_that_can_not_start_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text(
        f'#!/bin/sh\n[ "$2" = bridge ] && {{ echo "no bridges here" >&2; exit 3; }}\nexec {sys.executable} "$@"\n'
    )
    broken.chmod(0o755)
    async with LocalCluster.start(1, 1, sshd_config=HARDENED) as cluster:
        address: NodeAddress = replace(without_template(cluster.nodes[0]), python=str(broken))
        recorder = FleetRecorder()
        async with running_fleet([address], recorder):
            text = await recorder.noted()
    assert text == "opening a bridge to the agent on n1: no bridges here"


def bridge(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "nodeagent", "bridge", *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=REPOSITORY,
    )  # fmt: skip


def test_a_bridge_needs_an_agent(tmp_path: Path) -> None:
    done = bridge("--socket", f"{tmp_path}/agent.sock")
    assert done.returncode == 1
    assert done.stderr == (
        f"nodeagent: no agent answers at {tmp_path}/agent.sock: No such file or directory\n"
    )
    assert bridge("--help").returncode == 2
