"""``unicron demo --nodes-only``: nodes that can be used, lost, restored and ended."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from controller.clusterfile.cluster_reader import load_cluster
from controller.fleet.address import NodeAddress
from tests.fakes.demo_runs import processes_under
from tests.fakes.playgrounds import playground, unicron
from tests.fakes.polling import wait_until


def output_of(address: NodeAddress, command: str) -> str | None:
    """Return what a command prints on a node, reached by OpenSSH's own client; None if it fails."""
    options = [
        f"UserKnownHostsFile={' '.join(address.ssh.known_hosts)}",
        "BatchMode=yes",
        "ConnectTimeout=5",
    ]
    done = subprocess.run(
        [
            "ssh", "-F", "none", "-i", address.ssh.client_key, "-p", str(address.ssh.port),
            *(word for option in options for word in ("-o", option)),
            f"{address.ssh.user}@{address.ssh.host}", command,
        ],
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    return done.stdout.strip() if done.returncode == 0 else None


@pytest.mark.ssh
def test_nodes_are_used_lost_restored_and_ended(short_tmp: Path, tmp_path: Path) -> None:
    directory = tmp_path / "play"
    lines = ("--sshd-config", "MaxSessions 1", "--sshd-config", "ClientAliveInterval 7")
    sizes = ("--nodes", "4", "--workers-per-node", "2")
    with playground(short_tmp, directory, *sizes, *lines) as nodes:
        cluster = load_cluster(nodes.path)
        addresses = [node.address for node in cluster.nodes]
        assert [address.node for address in addresses] == ["n1", "n2", "n3", "n4"]
        assert [task.name for task in cluster.tasks] == ["gpt-a", "gpt-b"]
        assert cluster.run_dir == directory / "run"
        assert output_of(addresses[1], "echo here") == "here"
        config = next(short_tmp.glob("unicron-*/ssh/n1/sshd_config")).read_text().splitlines()
        assert config[:2] == ["MaxSessions 1", "ClientAliveInterval 7"]

        output_of(addresses[1], "setsid sleep 300 >/dev/null 2>&1 & echo started")
        nodes.lose("n2")
        wait_until(lambda: output_of(addresses[1], "echo here") is None, limit_s=20)
        assert output_of(addresses[0], "echo here") == "here"
        nodes.restore()
        nodes.command.says("n2 is back")
        assert output_of(addresses[1], "echo here") == "here"

        again = subprocess.run(
            unicron("demo", "--nodes-only", "--dir", str(directory)),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert again.returncode == 2
        assert "is not empty; choose an empty or a new directory" in again.stderr
        assert nodes.command.end(signal.SIGTERM) == 128 + signal.SIGTERM
    assert processes_under(short_tmp) == []
    assert list(short_tmp.iterdir()) == []
    assert (directory / "cluster.toml").exists()


@pytest.mark.ssh
def test_a_line_that_sshd_refuses_is_one_error(short_tmp: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        unicron("demo", "--nodes-only", "--dir", str(tmp_path / "p"), "--sshd-config", "Nonsense 1"),
        capture_output=True, text=True, check=False, env={**os.environ, "TMPDIR": str(short_tmp)},
    )  # fmt: skip
    assert done.returncode == 1
    assert "Bad configuration option: Nonsense" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "p").exists()
