"""A plan that waits for its operator, with real ranks: training goes on meanwhile.

Then it is divided anew, or the replica that was broken is whole again, with the process that was
left of it.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.api.client import ask
from controller.api.wire import ApprovePlan, RunDrill
from tests.fakes.demo_runs import PATIENT, served_demo, view_at
from tests.fakes.polling import wait_until

pytestmark = [pytest.mark.drill, pytest.mark.ranks, pytest.mark.ssh, pytest.mark.timeout(600)]

TASKS = """\
[[task]]
name = "staged"
weight = 1.0
workers = 4
min_workers = 2
num_micro_batches = 4
checkpoint_interval = 1000
iteration_floor_s = 0.1

[task.model]
num_layers = 2
hidden_size = 32
num_attention_heads = 4
seq_length = 32
bf16 = true

[task.throughput]
points = [
    { workers = 2, flops_per_s = 2e9, layout = { tp = 1, pp = %d, dp = %d } },
    { workers = 4, flops_per_s = 4e9, layout = { tp = 1, pp = 2, dp = 2 } },
]
"""


class Demo:
    """A running demo, in which nobody but an operator applies plans."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket

    def view(self) -> Any:  # noqa: ANN401 - a view
        """Return the cluster as it is now."""
        return view_at(self.socket)

    def view_when(self, condition: Callable[[Any], bool], limit_s: float) -> Any:  # noqa: ANN401 - a view
        """Wait for a view for which ``condition`` holds, and return that view."""

        def matching() -> Any:  # noqa: ANN401 - a view
            view = self.view()
            return view if condition(view) else None

        return wait_until(matching, limit_s=limit_s)

    def lose_node(self, name: str) -> Any:  # noqa: ANN401 - a view
        """Lose a node, wait for the plan, and return the view that has it."""
        lose = RunDrill(request_id="lose", actor="test", drill="lose-node", node=name)
        reply = ask(self.socket, lose)
        assert reply.is_ok, reply.message
        return self.view_when(lambda view: bool(view.plans), limit_s=90)

    def wait_for_iteration(self, iteration: int) -> Any:  # noqa: ANN401 - a view
        """Wait until the task has committed ``iteration``, and return the view that says so."""
        return self.view_when(lambda view: view.tasks[0].iteration >= iteration, limit_s=60)


@contextlib.contextmanager
def running(file: Path, directory: Path, *, nodes: int, workers: int) -> Iterator[Demo]:
    """A demo of ``nodes`` with ``workers`` each."""
    socket, settings = directory / "api.sock", file.with_name("settings.toml")
    settings.write_text(PATIENT)
    words = (
        "--tasks", str(file), "--nodes", str(nodes), "--workers-per-node", str(workers),
        "--settings", str(settings),
    )  # fmt: skip
    with served_demo(socket, directory, *words):
        yield Demo(socket)


def tasks_with(path: Path, pp: int, dp: int) -> Path:
    """Write a tasks file in which two workers have this layout."""
    file = path / "tasks.toml"
    file.write_text(TASKS % (pp, dp))
    return file


def pids(view: Any) -> set[int]:  # noqa: ANN401 - a view
    """Return the processes that are ranks."""
    return {worker.pid for node in view.nodes for worker in node.workers if worker.task}


def shape(task: Any) -> tuple[int, int, int]:  # noqa: ANN401 - a view
    return task.layout.tp, task.layout.pp, task.layout.dp


def approve(demo: Demo, plan: Any) -> Any:  # noqa: ANN401 - a view
    """Approve a plan, wait until it is applied, and return the view that says so."""
    approval = ApprovePlan(request_id="1", actor="test", plan=plan.id, revision=plan.revision)
    reply = ask(demo.socket, approval)
    assert reply.is_ok, reply.message
    return demo.view_when(lambda view: view.plans[0].state == "applied", limit_s=60)


def test_training_goes_on_while_a_plan_waits_and_is_divided_anew_without_a_step_back(
    short_tmp: Path, tmp_path: Path
) -> None:
    with running(tasks_with(tmp_path, 1, 2), short_tmp, nodes=2, workers=2) as demo:
        demo.wait_for_iteration(6)
        lost_at = demo.lose_node("n2").tasks[0].iteration
        waiting = demo.wait_for_iteration(lost_at + 5)
        [plan] = waiting.plans
        assert plan.state == "pending"
        assert plan.assignments == {"staged": 2}
        assert shape(waiting.tasks[0]) == (1, 2, 1)
        assert waiting.tasks[0].num_rerun_iterations == 0

        divided_at = approve(demo, plan).tasks[0].iteration
        [task] = demo.wait_for_iteration(divided_at + 3).tasks
        assert shape(task) == (1, 1, 2)
        assert task.num_rerun_iterations == 0
        assert task.phase == "running"


@pytest.mark.thorough  # ranks/test_lost_ranks, and core/incidents/test_rehearsed_cures
def test_the_mate_of_a_lost_rank_waits_for_the_plan_and_trains_on_in_its_process(
    short_tmp: Path, tmp_path: Path
) -> None:
    with running(tasks_with(tmp_path, 2, 1), short_tmp, nodes=5, workers=1) as demo:
        before = pids(demo.wait_for_iteration(6))
        lost_at = demo.lose_node("n1").tasks[0].iteration
        while_waiting = demo.wait_for_iteration(lost_at + 5)
        assert shape(while_waiting.tasks[0]) == (1, 2, 1)
        meanwhile = pids(while_waiting)
        [plan] = while_waiting.plans
        waiting = {
            worker.pid
            for node in while_waiting.nodes
            for worker in node.workers
            if worker.waits_for == "staged"
        }

        divided_at = approve(demo, plan).tasks[0].iteration
        divided = demo.wait_for_iteration(divided_at + 3)
        assert shape(divided.tasks[0]) == (1, 2, 2)
        assert divided.tasks[0].num_rerun_iterations == 0
        assert len(meanwhile) == 2
        [mate] = waiting
        assert pids(divided) & before == {*meanwhile, mate}
