"""A cluster file that changes while its controller runs."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from controller.core.rules.policy import Policy
from controller.core.specs import TaskSpec
from controller.server.controller_config import ControllerConfig
from controller.server.rank_launches import decode_program
from controller.server.server_hooks import ServerHooks, SubmissionError
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.served_clusters import NODES, a_task, command, served, unreached

Capture = pytest.CaptureFixture[str]
N3 = NodeId("n3")


def config_of(*tasks: TaskSpec, nodes: int = 2, policy: Policy | None = None) -> ControllerConfig:
    addresses = [unreached(node) for node in (*NODES, N3)[:nodes]]
    programs = {task.task: decode_program(task.program) for task in tasks}
    return ControllerConfig(addresses, list(tasks), programs, policy or Policy())


class File:
    """What the cluster file says now."""

    def __init__(self) -> None:
        self.config: ControllerConfig | str = config_of()

    def read(self, *, is_dry_run: bool) -> ControllerConfig:  # noqa: ARG002
        if isinstance(self.config, str):
            raise SubmissionError(self.config)
        return self.config


@pytest.fixture
def file() -> File:
    return File()


async def test_a_dry_run_says_what_reload_then_does(
    tmp_path: Path, capsys: Capture, file: File
) -> None:
    async with served(tmp_path, hooks=ServerHooks(read_config=file.read)) as server:
        assert await command(tmp_path, "reload") == 0
        assert capsys.readouterr().out == "nothing has changed\n"
        file.config = config_of(a_task("gpt-a"), nodes=3, policy=Policy(restarts=7))
        assert await command(tmp_path, "reload", "--dry-run") == 0
        told = capsys.readouterr().out
        assert told == (
            "policy restarts: 3 -> 7\nnode n3 joins, with 2 workers\ntask gpt-a joins, for 2 workers\n"
        )
        assert server.state.tasks == {}
        assert await command(tmp_path, "reload") == 0
        assert capsys.readouterr().out == f"{told}3 changes of the cluster file are taken in\n"
        assert set(server.state.nodes) == {*NODES, N3}
        assert set(server.state.tasks) == {TaskId("gpt-a")}
        assert await command(tmp_path, "reload", "--dry-run", "--json") == 0
        assert json.loads(capsys.readouterr().out) == {"changes": []}
        assert await command(tmp_path, "audit", "--json") == 0
        [row] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert (row["verb"], row["asked"]["changes"][1]) == (
            "reload",
            "node n3 joins, with 2 workers",
        )


async def test_what_operators_ordered_stays_until_the_file_changes_it(
    tmp_path: Path, capsys: Capture, file: File
) -> None:
    file.config = config_of(a_task("gpt-a"))
    async with served(tmp_path, hooks=ServerHooks(read_config=file.read)) as server:
        assert await command(tmp_path, "reload", "--yes") == 0
        assert await command(tmp_path, "weight", "gpt-a", "5") == 0
        file.config = config_of(replace(a_task("gpt-a"), min_workers=2))
        capsys.readouterr()
        assert await command(tmp_path, "reload") == 0
        assert "task gpt-a: min_workers 1 -> 2\n" in capsys.readouterr().out
        spec = server.state.tasks[TaskId("gpt-a")].spec
        assert (spec.weight, spec.min_workers) == (5.0, 2)
        file.config = config_of(replace(a_task("gpt-a", weight=3.0), min_workers=2))
        assert await command(tmp_path, "reload") == 0
        told = capsys.readouterr().out
        assert "task gpt-a: weight 1 -> 3, the order of " in told
        assert "about weight ends" in told
        assert server.state.tasks[TaskId("gpt-a")].spec.weight == 3.0


async def test_what_would_be_removed_has_to_be_confirmed(
    tmp_path: Path, capsys: Capture, file: File
) -> None:
    file.config = config_of(a_task("gpt-a"))
    async with served(tmp_path, hooks=ServerHooks(read_config=file.read)) as server:
        assert await command(tmp_path, "reload") == 0
        file.config = config_of()
        assert await command(tmp_path, "reload") == 2
        assert "this removes tasks or nodes: add --yes" in capsys.readouterr().err
        assert not server.state.tasks[TaskId("gpt-a")].has_left
        assert await command(tmp_path, "reload", "--yes") == 0
        assert server.state.tasks[TaskId("gpt-a")].has_left


async def test_a_file_with_mistakes_changes_nothing(
    tmp_path: Path, capsys: Capture, file: File
) -> None:
    async with served(tmp_path, hooks=ServerHooks(read_config=file.read)) as server:
        file.config = "cluster.toml:3: nodes: no\ncluster.toml:4: task: no"
        assert await command(tmp_path, "reload") == 2
        assert "cluster.toml:3: nodes: no; cluster.toml:4" in capsys.readouterr().err
        small = config_of()
        file.config = replace(small, addresses=[unreached(NODES[0], 1), unreached(NODES[1])])
        assert await command(tmp_path, "reload") == 1
        assert "n1 has 2 workers and can't have 1" in capsys.readouterr().err
        assert set(server.state.nodes) == set(NODES)


async def test_a_file_that_changes_between_look_and_word_is_looked_at_again(
    tmp_path: Path, capsys: Capture, file: File
) -> None:
    reads = 0

    def read(*, is_dry_run: bool) -> ControllerConfig:
        nonlocal reads
        reads += 1
        return config_of(nodes=3 if reads == 1 else 2, policy=Policy(restarts=reads))

    async with served(tmp_path, hooks=ServerHooks(read_config=read)) as server:
        assert await command(tmp_path, "reload") == 5
        assert "has changed since you looked" in capsys.readouterr().err
        assert set(server.state.nodes) == set(NODES)


async def test_the_next_controller_of_the_run_begins_with_the_new_file(
    tmp_path: Path, file: File
) -> None:
    file.config = config_of(nodes=3)
    async with served(tmp_path, hooks=ServerHooks(read_config=file.read)) as server:
        assert await command(tmp_path, "reload") == 0
        server.replace_controller(pause_s=0.0)
        await asyncio.sleep(0.2)
        await server.is_ready.wait()
        assert {node.node for node in server.view().nodes} == {*NODES, N3}


async def test_a_controller_without_a_file_says_so(tmp_path: Path, capsys: Capture) -> None:
    async with served(tmp_path):
        assert await command(tmp_path, "reload") == 1
    assert "this controller has no cluster file" in capsys.readouterr().err
