"""Every command of the pages for operators runs, in their order, against a real controller."""

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from controller.api.wire import SubmitTasks
from controller.cli import main
from controller.clusterfile.task_collection import tasks_of
from controller.command_table import COMMANDS
from controller.core.rules.policy import Policy
from controller.core.specs import TaskSpec
from controller.server.controller_config import ControllerConfig
from controller.server.server_hooks import ServerHooks
from tests.fakes.served_clusters import (
    NODES,
    a_task,
    served,
    unreached,
    with_a_waiting_plan,
)

PAGES = Path(__file__).parents[3] / "docs" / "operations"
COMMAND = re.compile(r"^    \$ unicron (.*?)(?: # exit (\d))?$", re.MULTILINE)
NAMED = re.compile(r"`unicron ([a-z]+)")
MORE = """
[[task]]
name = "gpt-b"
weight = 1
workers = 2
min_workers = 2
[task.command]
argv = ["true"]
[task.throughput]
points = [{ workers = 2, flops_per_s = 1.0, layout = { dp = 2 } }]
"""


def commands(page: str) -> list[tuple[list[str], int]]:
    """Return the commands of a page, each with the exit code that it is to have."""
    found = COMMAND.findall((PAGES / page).read_text())
    return [(shlex.split(words), int(code or 0)) for words, code in found]


def read_tasks(submitted: SubmitTasks) -> list[TaskSpec]:
    tasks = tasks_of(Path(submitted.folder) / submitted.name, submitted.text)
    return [a_task(task.name, task.workers) for task in tasks]


def read_config(*, is_dry_run: bool) -> ControllerConfig:
    return ControllerConfig([unreached(node) for node in NODES], [], {}, Policy())


@pytest.mark.parametrize("page", ["day-to-day.md", "three-in-the-morning.md"])
async def test_the_commands_of_a_page_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cluster.toml").write_text('[cluster]\nname = "test"\nrun_dir = "."\n')
    (tmp_path / "more.toml").write_text(MORE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNICRON_CLUSTER", raising=False)
    hooks = ServerHooks(read_tasks=read_tasks, read_config=read_config)
    async with served(tmp_path, hooks=hooks) as server:
        await with_a_waiting_plan(server)
        for words, code in commands(page):
            assert await asyncio.to_thread(main, words) == code, words


def test_the_pages_have_their_commands() -> None:
    assert len(commands("day-to-day.md")) >= 20
    assert len(commands("three-in-the-morning.md")) >= 7


@pytest.mark.parametrize("page", ["day-to-day.md", "three-in-the-morning.md"])
def test_commands_in_the_text_exist(page: str) -> None:
    known = {each.name for each in COMMANDS} | {"console"}
    assert set(NAMED.findall((PAGES / page).read_text())) <= known
