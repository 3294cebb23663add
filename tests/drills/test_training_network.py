"""Ranks of both kinds meet across nodes whose control network does not lead to other nodes.

No variable tells gloo the interface: each rank finds the one that leads to its peers.
"""

import json
import os
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.cluster_runs import controller_of, pids_of, reach, view_of
from tests.fakes.demo_runs import demo_tasks
from tests.fakes.playgrounds import unicron
from tests.fakes.polling import wait_until
from tests.fakes.two_networks import CONTROL, TRAINING, TwoNetworks, two_networks

pytestmark = [
    pytest.mark.drill,
    pytest.mark.ranks,
    pytest.mark.ssh,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        os.geteuid() != 0 or not (shutil.which("ip") and Path("/usr/sbin/sshd").exists()),
        reason="needs root, sshd and iproute2",
    ),
]

EXAMPLES = Path(__file__).parents[2] / "examples"
SILENCE_S = 2.0
"""Longer than two looks of all peers."""
CONNECT = "import socket; print(socket.socket().connect_ex(({!r}, 22)))"


CUT_S = 60


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_minute_without_contact_costs_nothing_while_iterations_take_ten_seconds(
    short_tmp: Path,
) -> None:
    """SSH between nodes is closed. So only suffering shows that a node is lost."""
    directory = short_tmp / "slow"
    with two_networks(directory, 4) as nodes:
        path = directory / "cluster.toml"
        path.write_text(
            '[cluster]\nname = "slow"\nrun_dir = "run"\ncheckpoint_dir = "checkpoints"\n'
            + nodes.sections()
            + demo_tasks(1000, "gpt-a", 10.0, is_light=False)
        )
        assert "iteration_floor_s = 10.0" in path.read_text()
        with controller_of(path, "--auto-heal") as command:
            reach(path, 2)
            before = pids_of(path)
            for name in nodes.names:
                nodes.cut(name, CONTROL)
                wait_until(partial(is_now, path, name, "unreachable"), limit_s=20)
                time.sleep(CUT_S)
                assert not is_now(path, name, "lost")
                nodes.cut(name, CONTROL, is_up=True)
                wait_until(partial(is_now, path, name, "healthy"), limit_s=20)
            assert view_of(path).incidents == []
            assert pids_of(path) == before
            at = view_of(path).tasks[0].iteration
            nodes.lose("n2")
            # Within unreachable_limit_s (60 s), and what an iteration takes.
            wait_until(partial(is_now, path, "n2", "lost"), limit_s=75)
            command.says("applied in")
            wait_until(lambda: view_of(path).tasks[0].iteration > at + 1, limit_s=90)


def write_file(nodes: TwoNetworks, directory: Path) -> Path:
    shutil.copytree(EXAMPLES / "command", directory / "command")
    path = directory / "cluster.toml"
    path.write_text(
        'include = ["command/tasks.toml"]\n'
        '[cluster]\nname = "fleet"\nrun_dir = "run"\ncheckpoint_dir = "checkpoints"\n'
        + nodes.sections()
        + demo_tasks(1000, "gpt-a").replace("workers = 4\n", "workers = 2\n", 1)
    )
    return path


def test_loops_and_commands_train_where_only_the_training_network_joins_nodes(
    short_tmp: Path,
) -> None:
    directory = short_tmp / "fleet"
    # Every rank has a node of its own. A loop of a user's own meets like the built-in one.
    with two_networks(directory, 4) as nodes:
        assert int(nodes.run("n1", CONNECT.format(nodes.control_address("n2")))) != 0
        assert "127.0.1.1" in nodes.run("n1", "print(open('/etc/hosts').read())")
        path = write_file(nodes, directory)
        check_sees_a_cut(nodes, path)
        with controller_of(path, "--auto-heal"):
            reach(path, 6)
            view = view_of(path)
            assert {task.name: task.workers for task in view.tasks} == {"gpt-a": 2, "command": 2}
            assert view.incidents == []
            assert len(pids_of(path) or {}) == 4
            cut_control_links(nodes, path)
            cut_a_training_link(nodes, path)
            done = subprocess.run(
                unicron("down", str(path), "--yes"), capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr


def check_sees_a_cut(nodes: TwoNetworks, path: Path) -> None:
    """`unicron check` has the nodes connect to each other, as their ranks will."""
    assert network_findings(path) == []
    nodes.cut("n3", TRAINING)
    [found] = network_findings(path)
    nodes.cut("n3", TRAINING, is_up=True)
    assert found["nodes"] == ["n3"]
    assert "n2 and n4 can't connect to it" in found["text"] or "no interface" in found["text"]


def network_findings(path: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        unicron("check", str(path), "--json"), capture_output=True, text=True, check=False
    )
    found = json.loads(done.stdout)["findings"]
    return [each for each in found if each["subject"] == "training network"]


def cut_control_links(nodes: TwoNetworks, path: Path) -> None:
    """Nobody can look at a node's SSH port: no peer ever could, so that says nothing."""
    before = pids_of(path)
    for name in nodes.names[:2]:
        nodes.cut(name, CONTROL)
        wait_until(partial(is_now, path, name, "unreachable"), limit_s=20)
        time.sleep(SILENCE_S)
        nodes.cut(name, CONTROL, is_up=True)
        wait_until(partial(is_now, path, name, "healthy"), limit_s=20)
    assert view_of(path).incidents == []
    wait_until(lambda: pids_of(path) == before, limit_s=60)


def cut_a_training_link(nodes: TwoNetworks, path: Path) -> None:
    """The node stays in contact. Its ranks alone have no route: it is isolated."""
    victim = next(
        node.node
        for node in view_of(path).nodes
        if any(slot.task == "gpt-a" and slot.global_rank == 1 for slot in node.workers)
    )
    nodes.cut(victim, TRAINING)
    wait_until(partial(is_now, path, victim, "isolated"), limit_s=60)
    at = next(task.iteration for task in view_of(path).tasks if task.name == "gpt-a")

    def trains_again() -> bool:
        [task] = [each for each in view_of(path).tasks if each.name == "gpt-a"]
        return bool(task.iteration > at + 1 and task.workers == 1)

    wait_until(trains_again, limit_s=60)
    assert {incident.node for incident in view_of(path).incidents if incident.node} == {victim}


def is_now(path: Path, name: str, wanted: str) -> bool:
    [node] = [each for each in view_of(path).nodes if each.node == name]
    return ("isolated" if node.isolated else str(node.condition)) == wanted
