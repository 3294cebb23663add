"""Ranks of all kinds meet across nodes whose control network does not lead to other nodes.

No variable tells gloo the interface: each rank finds the one that leads to its peers.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fakes.cluster_runs import controller_of, demo_tasks, pids_of, reach, view_of
from tests.fakes.playgrounds import unicron
from tests.fakes.two_networks import TwoNetworks, two_networks

pytestmark = [
    pytest.mark.drill,
    pytest.mark.ranks,
    pytest.mark.ssh,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        os.geteuid() != 0 or not (shutil.which("ip") and Path("/usr/sbin/sshd").exists()),
        reason="needs root, sshd and iproute2",
    ),
]

EXAMPLES = Path(__file__).parents[2] / "examples"
CONNECT = "import socket; print(socket.socket().connect_ex(({!r}, 22)))"


def write_file(nodes: TwoNetworks, directory: Path) -> Path:
    for name in ("own_loop", "command"):
        shutil.copytree(EXAMPLES / name, directory / name)
    path = directory / "cluster.toml"
    path.write_text(
        'include = ["own_loop/tasks.toml", "command/tasks.toml"]\n'
        '[cluster]\nname = "fleet"\nrun_dir = "run"\ncheckpoint_dir = "checkpoints"\n'
        + nodes.sections()
        + demo_tasks(1000, "gpt-a")
    )
    return path


def test_loops_and_commands_train_where_only_the_training_network_joins_nodes(
    short_tmp: Path,
) -> None:
    directory = short_tmp / "fleet"
    with two_networks(directory, 8) as nodes:  # every rank has a node of its own
        assert int(nodes.run("n1", CONNECT.format(nodes.control_address("n2")))) != 0
        assert "127.0.1.1" in nodes.run("n1", "print(open('/etc/hosts').read())")
        path = write_file(nodes, directory)
        with controller_of(path, "--auto-heal"):
            reach(path, 6)
            view = view_of(path)
            assert {task.name: task.workers for task in view.tasks} == {
                "gpt-a": 4, "own": 2, "command": 2,
            }  # fmt: skip
            assert view.incidents == []
            assert len(pids_of(path) or {}) == 8
            done = subprocess.run(
                unicron("down", str(path), "--yes"), capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
