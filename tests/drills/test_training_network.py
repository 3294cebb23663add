"""Ranks of all kinds meet across nodes that have networks of their own.

No variable tells gloo the interface: each rank finds the one that leads to its peers.
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.fakes.cluster_runs import demo_tasks
from tests.fakes.demo_runs import run_demo

pytestmark = [
    pytest.mark.drill,
    pytest.mark.ranks,
    pytest.mark.ssh,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2"
    ),
]

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_loops_and_commands_train_across_network_namespaces(
    short_tmp: Path, tmp_path: Path
) -> None:
    for name in ("own_loop", "command"):
        shutil.copytree(EXAMPLES / name, tmp_path / name)
    own = (EXAMPLES / "own_loop" / "tasks.toml").read_text().replace('"."', '"own_loop"')
    command = (EXAMPLES / "command" / "tasks.toml").read_text()
    command = command.replace("[task.command]\n", '[task.command]\ncwd = "command"\n')
    tasks = tmp_path / "tasks.toml"
    tasks.write_text(demo_tasks(6, "gpt-a") + own + command)
    sizes = ("--nodes", "8", "--workers-per-node", "1")  # every rank has a node of its own
    run = run_demo(
        short_tmp, tmp_path / "events.jsonl", "--tasks", str(tasks), "--namespaces", "--auto-heal",
        "--iterations", "6", *sizes,
    )  # fmt: skip
    assert run.code == 0, run.stderr
    assert run.incidents == []
    losses = {task["name"]: task["losses"] for task in run.outcome["tasks"]}  # type: ignore[attr-defined]
    assert {name: len(found) for name, found in losses.items() if name != "command"} == {
        "gpt-a": 6, "own": 6,
    }  # fmt: skip
    assert losses["command"]
