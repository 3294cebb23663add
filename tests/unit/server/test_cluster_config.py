"""From a cluster file to launches: each kind of rank gets the backend and the devices it needs."""

import asyncio
from pathlib import Path

import pytest

from controller.clock import SystemClock
from controller.clusterfile.cluster_reader import load_cluster
from controller.core.events import NodeAttached
from controller.core.machine import Machine
from controller.core.membership.file_changes import changes
from controller.loop_clock import LoopClock
from controller.server.cluster_config import cluster_config
from controller.server.controller_config import ControllerConfig
from controller.server.rank_launches import CommandLaunch
from controller.server.runtime import Runtime, RuntimeDependencies
from controller.store.journal import Journal
from nodeagent.protocol.ids import AgentId, NodeId
from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from nodeagent.rank.process.command_rank import environment
from tests.fakes.runtime_ports import Ports

_NUM_RANKS = 6
_TABLE = """\
[task.throughput]
points = [{ workers = 2, flops_per_s = 5.0e9, layout = { tp = 1, pp = 1, dp = 2 } }]
"""
_LOOP = """\
num_micro_batches = 4
[task.model]
num_layers = 2
hidden_size = 32
num_attention_heads = 2
seq_length = 32
"""
_NODES = """\
[cluster]
name = "t"
checkpoint_dir = "/ckpt"
[[nodes]]
hosts = "n[1-2]"
identity = "key"
host_key = "ssh-ed25519 AAAA"
training_address = "10.1.0.[1-2]"
"""


def _task(name: str, rest: str) -> str:
    return f'[[task]]\nname = "{name}"\nweight = 1.0\nworkers = 2\nmin_workers = 2\n{rest}{_TABLE}'


_TASKS = (
    _task("built-in", _LOOP)
    + _task("own", _LOOP + '[task.program]\nfunction = "mine:loop"\ndirectory = "src"\n')
    + _task("command", '[task.command]\nargv = ["python", "train.py"]\n')
)


def config_of(folder: Path, size: str) -> ControllerConfig:
    (folder / "key").touch()
    (folder / "cluster.toml").write_text(_NODES + size + _TASKS)
    cluster = load_cluster(folder / "cluster.toml")
    return cluster_config(cluster, cluster.policy)


async def launches_of(config: ControllerConfig, folder: Path) -> dict[str, list[RankLaunch]]:
    """Return the ranks that a controller starts once all nodes are in contact, by task."""
    machine = Machine()
    journal, ports = Journal(folder / "journal.jsonl"), Ports()
    clock = LoopClock(SystemClock())
    runtime = Runtime(machine, journal, clock, config.backend)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        services = [
            group.create_task(clock.run()),
            group.create_task(runtime.run(RuntimeDependencies(ports, ports, ports, ports))),
        ]
        for body in changes(config.wanted(), machine.state, machine.policy):
            runtime.post(body)
        for node in config.wanted().nodes:
            runtime.post(NodeAttached(node, AgentId(f"agent of {node}"), 1, ()))
        while len(_launches(ports)) < _NUM_RANKS:
            await ports.has_news.wait()
            ports.has_news.clear()
        for service in services:
            service.cancel()
    journal.close()
    found: dict[str, list[RankLaunch]] = {}
    for launch in _launches(ports):
        found.setdefault(launch.task, []).append(launch)
    return found


def _launches(ports: Ports) -> list[RankLaunch]:
    found: list[RankLaunch] = []
    for _, launches in ports.named("start_ranks"):
        assert isinstance(launches, list)
        found += launches
    return found


@pytest.mark.parametrize(("size", "backend"), [("gpus = 4\n", "nccl"), ("workers = 4\n", "gloo")])
async def test_each_kind_of_rank_has_the_backend_and_devices_of_its_nodes(
    tmp_path: Path, size: str, backend: str
) -> None:
    launches = await launches_of(config_of(tmp_path, size), tmp_path)
    assert sorted(launches) == ["built-in", "command", "own"]
    assert {each.backend for ranks in launches.values() for each in ranks} == {backend}
    # A rank of a loop takes the GPU of its slot (``prepare_device``); all slots of the node differ.
    slots = {
        (str(each.task), each.global_rank): each.worker for r in launches.values() for each in r
    }
    assert slots["built-in", 0] != slots["built-in", 1]
    for each in launches["command"]:
        assert each.command is not None
        shown = environment(each, {"CUDA_VISIBLE_DEVICES": "7"}, tmp_path, ("10.1.0.1", 29500))
        own = ",".join(map(str, each.command.local_workers))
        # Without GPUs the variable is none of ours.
        assert shown["CUDA_VISIBLE_DEVICES"] == (own if backend == "nccl" else "7")


async def test_ranks_meet_at_the_training_address(tmp_path: Path) -> None:
    launches = await launches_of(config_of(tmp_path, "workers = 4\n"), tmp_path)
    places = [each.command for each in launches["command"] if each.command is not None]
    assert {place.master_address for place in places} <= {"10.1.0.1", "10.1.0.2"}
    assert len({place.master_address for place in places}) == 1


def test_tasks_have_their_own_directories_and_data(tmp_path: Path) -> None:
    text = (
        _NODES
        + "workers = 6\n"
        + _TASKS.replace(
            'name = "own"',
            'name = "own"\ncheckpoint_dir = "mine"\ndata = "d.txt"\nnum_iterations = 9',
        )
    )
    (tmp_path / "key").touch()
    (tmp_path / "cluster.toml").write_text(text)
    cluster = load_cluster(tmp_path / "cluster.toml")
    config = cluster_config(cluster, cluster.policy)
    built_in, own, command = config.programs.values()
    assert isinstance(built_in, TrainingSpec)
    assert isinstance(own, TrainingSpec)
    assert isinstance(command, CommandLaunch)
    assert built_in.checkpoint_dir == "/ckpt/built-in"
    assert (own.checkpoint_dir, own.data_path) == (str(tmp_path / "mine"), str(tmp_path / "d.txt"))
    assert (built_in.num_iterations, own.num_iterations) == (None, 9)
    assert command.task_dir == "/ckpt/command"
    assert [task.num_iterations for task in config.tasks] == [None, 9, None]
    assert [address.node for address in config.addresses] == [NodeId("n1"), NodeId("n2")]
