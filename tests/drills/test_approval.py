"""A plan that waits for its operator, with real ranks: training goes on meanwhile, and is then divided anew."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.api.client import ask, connect
from controller.api.wire import ApprovePlan
from tests.fakes.demo_runs import command
from tests.fakes.polling import wait_until

pytestmark = [pytest.mark.drill, pytest.mark.ranks, pytest.mark.ssh, pytest.mark.timeout(150)]

TASKS = """\
[[task]]
name = "staged"
weight = 1.0
workers = 4
min_workers = 2
num_micro_batches = 4
checkpoint_interval = 1000

[task.model]
num_layers = 2
hidden_size = 32
num_attention_heads = 4
seq_length = 32
bf16 = true

[task.throughput]
points = [
    { workers = 2, flops_per_s = 2e9, layout = { tp = 1, pp = 1, dp = 2 } },
    { workers = 4, flops_per_s = 4e9, layout = { tp = 1, pp = 2, dp = 2 } },
]
"""


class Demo:
    """A running demo of two nodes with two workers each, in which nobody but an operator applies plans."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket

    def view(self) -> Any:  # noqa: ANN401 - a view
        """Return the cluster as it is now."""
        with connect(self.socket) as connection:
            return next(connection.views())

    def task(self) -> Any:  # noqa: ANN401 - a view
        return self.view().tasks[0]

    def wait_for_iteration(self, iteration: int) -> None:
        wait_until(lambda: self.task().iteration >= iteration, limit_s=60)


@pytest.fixture
def demo(short_tmp: Path, tmp_path: Path) -> Iterator[Demo]:
    tasks, socket = tmp_path / "tasks.toml", short_tmp / "api.sock"
    tasks.write_text(TASKS)
    words = command(
        "--tasks", str(tasks), "--nodes", "2", "--workers-per-node", "2", "--headless",
        "--iterations", "100000", "--serve", str(socket), "--drill", "lose-node@6:node=n2",
    )  # fmt: skip
    environment = {**os.environ, "TMPDIR": str(short_tmp)}
    process = subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)
    try:
        wait_until(socket.exists, limit_s=60)
        yield Demo(socket)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def shape(task: Any) -> tuple[int, int, int]:  # noqa: ANN401 - a view
    return task.layout.tp, task.layout.pp, task.layout.dp


def test_training_goes_on_while_a_plan_waits_and_is_divided_anew_without_a_step_back(
    demo: Demo,
) -> None:
    wait_until(lambda: bool(demo.view().plans), limit_s=90)
    lost_at = demo.task().iteration
    demo.wait_for_iteration(lost_at + 5)
    waiting = demo.view()
    [plan] = waiting.plans
    assert plan.state == "pending"
    assert plan.assignments == {"staged": 2}
    assert shape(waiting.tasks[0]) == (1, 2, 1)
    assert waiting.tasks[0].num_rerun_iterations == 0

    approval = ApprovePlan(request_id="1", actor="test", plan=plan.id, revision=plan.revision)
    reply = ask(demo.socket, approval)
    assert reply.is_ok, reply.message
    wait_until(lambda: demo.view().plans[0].state == "applied", limit_s=60)
    divided_at = demo.task().iteration
    demo.wait_for_iteration(divided_at + 3)
    task = demo.task()
    assert shape(task) == (1, 1, 2)
    assert task.num_rerun_iterations == 0
    assert task.phase == "running"
