"""Orders from the shell about tasks and nodes, against a real controller."""

import json
from pathlib import Path

import pytest

from controller.api.wire import SubmitTasks
from controller.clusterfile.file_mistakes import ClusterFileError
from controller.clusterfile.task_collection import tasks_of
from controller.core.specs import TaskSpec
from controller.server.controller_server import ControllerServer
from controller.server.server_hooks import ServerHooks, SubmissionError
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.served_clusters import a_task, command, served, with_a_waiting_plan

Capture = pytest.CaptureFixture[str]
A, N1 = TaskId("gpt-a"), NodeId("n1")
FILE = """
[[task]]
name = "new"
weight = 1.0
workers = 2
min_workers = 1
[task.command]
argv = ["python", "train.py"]
[task.throughput]
points = [
    {workers = 1, flops_per_s = 1e9, layout = {dp = 1}},
    {workers = 2, flops_per_s = 2e9, layout = {dp = 2}},
]
"""


async def test_a_task_gets_a_weight_and_limits(tmp_path: Path, capsys: Capture) -> None:
    async with served(tmp_path) as server:
        await with_a_waiting_plan(server)
        assert await command(tmp_path, "weight", "gpt-a", "2.5") == 0
        assert capsys.readouterr().out == "gpt-a has weight 2.5 from now on\n"
        words = ("limits", "gpt-a", "--min", "2", "--max", "3", "--keeps-running", "yes")
        assert await command(tmp_path, *words) == 0
        spec = server.state.tasks[A].spec
        assert (spec.weight, spec.min_workers, spec.max_workers) == (2.5, 2, 3)
        assert spec.keeps_running
        assert await command(tmp_path, "limits", "gpt-a", "--max", "none") == 0
        assert server.state.tasks[A].spec.max_workers is None
        assert await command(tmp_path, "limits", "gpt-a", "--min", "9") == 1
        assert await command(tmp_path, "limits", "gpt-a") == 2
        assert await command(tmp_path, "weight", "gpt-z", "1") == 4
        capsys.readouterr()
        assert await command(tmp_path, "tasks", "--json") == 0
        [task] = json.loads(capsys.readouterr().out)
        ordered = {order["what"]: (order["value"], order["of_file"]) for order in task["orders"]}
        assert ordered == {
            "weight": (2.5, 1.0), "min_workers": (2, 1), "keeps_running": (True, False)
        }  # fmt: skip
        assert await command(tmp_path, "explain", "gpt-a") == 0
        told = capsys.readouterr().out
        assert "weight 2.5 by " in told
        assert "the file says 1\n" in told
        assert await command(tmp_path, "audit", "--json", "--name", "gpt-a") == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [row["verb"] for row in rows] == ["weight", "limits", "limits", "limits"]


@pytest.mark.parametrize("weight", ["0", "-1", "x", "inf", "1e400"])
async def test_a_weight_that_is_none_asks_nobody(tmp_path: Path, weight: str) -> None:
    async with served(tmp_path) as server:
        with pytest.raises(SystemExit):
            await command(tmp_path, "weight", "gpt-a", "--", weight)
        assert server.state.tasks == {}


async def test_a_task_is_stopped_started_ended_and_archived(
    tmp_path: Path, capsys: Capture
) -> None:
    async with served(tmp_path) as server:
        await with_a_waiting_plan(server)
        for verb, told in {
            "stop": "gpt-a is stopped",
            "start": "gpt-a starts once a plan gives it workers",
            "finish": "gpt-a is finished",
            "archive": "gpt-a is archived; its checkpoints stay",
        }.items():
            assert await command(tmp_path, verb, "gpt-a") == 0
            assert capsys.readouterr().out == f"{told}\n"
        assert await command(tmp_path, "tasks") == 0
        assert capsys.readouterr().out == "tasks: none\n"
        assert await command(tmp_path, "stop", "gpt-a") == 4


def upkeep_of(server: ControllerServer) -> str:
    return server.state.nodes[N1].upkeep.state.value


async def test_a_node_is_cordoned_drained_repaired_and_comes_back(
    tmp_path: Path, capsys: Capture
) -> None:
    async with served(tmp_path) as server:
        assert await command(tmp_path, "cordon", "n1", "--reason", "loud") == 0
        assert upkeep_of(server) == "cordoned"
        capsys.readouterr()
        assert await command(tmp_path, "nodes", "n1") == 0
        assert ": loud" in capsys.readouterr().out
        assert await command(tmp_path, "drain", "n1", "--wait") == 0
        assert capsys.readouterr().err == "n1 is drained\n"
        assert await command(tmp_path, "repair", "n1") == 0
        assert await command(tmp_path, "repair", "n1", "--force") == 2
        assert await command(tmp_path, "repair", "n1", "--done", "--force") == 0
        assert upkeep_of(server) == ""
        assert await command(tmp_path, "isolate", "n1") == 0
        assert await command(tmp_path, "isolate", "n1") == 1
        assert await command(tmp_path, "uncordon", "n1", "--force") == 0
        capsys.readouterr()
        assert await command(tmp_path, "audit", "--name", "n1", "--json") == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [row["verb"] for row in rows] == [
            "cordon", "drain", "repair", "repair --done", "isolate", "isolate", "uncordon",
        ]  # fmt: skip
        assert rows[0]["asked"]["reason"] == "loud"


# --- submit -----------------------------------------------------------------------------------


def read_tasks(submitted: SubmitTasks) -> list[TaskSpec]:
    try:
        tasks = tasks_of(Path(submitted.folder) / submitted.name, submitted.text)
    except ClusterFileError as error:
        raise SubmissionError(str(error)) from error
    return [a_task(task.name, task.workers) for task in tasks]


async def test_a_file_of_tasks_is_queued(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "new.toml"
    file.write_text(FILE)
    async with served(tmp_path, hooks=ServerHooks(read_tasks=read_tasks)) as server:
        assert await command(tmp_path, "submit", str(file), "--dry-run") == 0
        assert capsys.readouterr().out == "would be queued: new for 2 workers\n"
        assert server.state.tasks == {}
        assert await command(tmp_path, "submit", str(file)) == 0
        assert capsys.readouterr().out == "queued: new for 2 workers; a plan decides\n"
        assert server.state.tasks[TaskId("new")].orders.submitted is not None
        assert await command(tmp_path, "submit", str(file)) == 1
        assert "there is a task new already" in capsys.readouterr().err
        assert await command(tmp_path, "tasks") == 0
        assert "submitted by " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "there is no [[task]] in it; add one"),
        ("[cluster]\nname = 'x'\n", "new.toml:1: cluster: only [[task]] belongs into a file"),
        (FILE.replace("workers = 2\n", "workers = 3\n", 1), "workers = 3"),
        ("[[task]\n", "not valid TOML"),
        (FILE + FILE, "has a task of this name already"),
    ],
    ids=["empty", "section", "size", "toml", "twice"],
)
async def test_a_file_with_mistakes_asks_nobody(
    tmp_path: Path, capsys: Capture, text: str, told: str
) -> None:
    file = tmp_path / "new.toml"
    file.write_text(text)
    async with served(tmp_path, hooks=ServerHooks(read_tasks=read_tasks)) as server:
        assert await command(tmp_path, "submit", str(file)) == 2
        assert told in capsys.readouterr().err
        assert server.state.tasks == {}


async def test_a_controller_that_takes_no_tasks_says_so(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "new.toml"
    file.write_text(FILE)
    async with served(tmp_path):
        assert await command(tmp_path, "submit", str(file)) == 1
        assert capsys.readouterr().err == "this controller takes no further tasks\n"
        assert await command(tmp_path, "submit", str(tmp_path / "none.toml")) == 2
        assert "no such file" in capsys.readouterr().err


async def test_mistakes_that_only_the_controller_sees_are_told(
    tmp_path: Path, capsys: Capture
) -> None:
    reasons: list[Exception] = [SubmissionError("task new: /x is not there"), KeyError("a bug")]

    def refusing(_: SubmitTasks) -> list[TaskSpec]:
        raise reasons.pop(0)

    file = tmp_path / "new.toml"
    file.write_text(FILE)
    async with served(tmp_path, hooks=ServerHooks(read_tasks=refusing)):
        assert await command(tmp_path, "submit", str(file)) == 2
        assert "task new: /x is not there" in capsys.readouterr().err
        assert await command(tmp_path, "submit", str(file)) == 2
        assert "please report this bug: KeyError: 'a bug'" in capsys.readouterr().err
        assert await command(tmp_path, "tasks") == 0, "the controller lives"
