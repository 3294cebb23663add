"""A demo with idle workers: a task is measured there while it trains.

One demo for all tests: the last one ends it.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from profiles.table_file import load_table
from profiles.task_profiles import load_task_profiles
from tests.fakes.demo_runs import PATIENT, served_demo, view_at
from tests.fakes.polling import wait_until

pytestmark = [pytest.mark.drill, pytest.mark.ranks, pytest.mark.ssh, pytest.mark.timeout(600)]

TASKS = """\
[[task]]
name = "small"
weight = 1.0
workers = 1
min_workers = 1
num_micro_batches = 4
checkpoint_interval = 50

[task.model]
num_layers = 2
hidden_size = 32
num_attention_heads = 4
seq_length = 32

[task.throughput]
points = [
    { workers = 1, flops_per_s = 1e9, layout = { tp = 1, pp = 1, dp = 1 } },
    { workers = 2, flops_per_s = 2e9, layout = { tp = 1, pp = 1, dp = 2 } },
    { workers = 4, flops_per_s = 4e9, layout = { tp = 1, pp = 1, dp = 4 } },
]
"""


@dataclass
class Demo:
    """A running demo: two nodes of two workers, of which the task has one."""

    socket: Path
    tables: Path
    root: Path
    process: subprocess.Popen[bytes]

    def measure(self, *words: str) -> list[str]:
        """Return the command line of a measurement."""
        first = [sys.executable, "-m", "controller.cli", "profile", "measure", "small"]
        return [*first, "--connect", str(self.socket), *words]

    def trained(self) -> int:
        """Return how many iterations of the first size of a measurement are done."""
        found = self.view().measurement
        return found.sizes[0].iterations if found is not None and not found.is_over else 0

    def condition(self, name: str) -> str:
        """Return what the controller believes about a node."""
        (node,) = (node for node in self.view().nodes if node.node == name)
        return str(node.condition)

    def is_ready(self) -> bool:
        """Return whether both nodes are there and the task trains."""
        found = self.view()
        healthy = [node for node in found.nodes if node.condition == "healthy"]
        return len(healthy) == 2 and found.tasks[0].iteration >= 5

    def view(self) -> Any:  # noqa: ANN401 - a view
        """Return the cluster as it is now."""
        return view_at(self.socket)


@pytest.fixture(scope="module")
def demo(short_tmp: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder, root = tmp_path_factory.mktemp("measure"), short_tmp
    tasks, settings, tables = folder / "tasks.toml", folder / "settings.toml", folder / "tables"
    tasks.write_text(TASKS)
    settings.write_text(PATIENT)
    socket = short_tmp / "api.sock"
    words = (
        "--tasks", str(tasks), "--settings", str(settings), "--nodes", "2",
        "--workers-per-node", "2", "--tables", str(tables),
    )  # fmt: skip
    with served_demo(socket, root, *words) as process:
        running = Demo(socket, tables, root, process)
        wait_until(running.is_ready, limit_s=60)
        yield running


def test_a_task_is_measured_on_idle_workers(demo: Demo, tmp_path: Path) -> None:
    before = demo.view().tasks[0]
    output = tmp_path / "measured.json"
    done = subprocess.run(
        demo.measure("--iterations", "4", "--json", "--output", str(output)),
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [(s["workers"], s["phase"]) for s in answer["sizes"]] == [
        (1, "measured"),
        (2, "measured"),
        (4, "skipped"),
    ]
    assert "3 idle worker(s)" in done.stderr
    table = load_table(output)
    assert [(p.workers, p.origin, p.iterations) for p in table.points] == [
        (1, "measured", 4),
        (2, "measured", 4),
    ]
    assert {str(p.workers): p.flops_per_s for p in table.points} == answer["throughput"]
    after = demo.view()
    assert after.incidents == after.plans == []
    assert after.tasks[0].generation == before.generation
    assert after.tasks[0].iteration > before.iteration
    assert [w.task for node in after.nodes for w in node.workers].count("small") == 1
    (root,) = demo.root.glob("unicron-*")
    kept = root / "checkpoints" / "small"
    assert list((root / "checkpoints").iterdir()) == [kept]
    assert list(root.rglob("losses.jsonl")) == [kept / "losses.jsonl"]

    again = subprocess.run(
        demo.measure("--output", str(output)), capture_output=True, text=True, check=False
    )
    assert again.returncode == 2
    assert "exists already" in again.stderr


@contextmanager
def measuring(demo: Demo, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a measurement that trains; it is over afterwards, however the test ends."""
    measure = subprocess.Popen(
        demo.measure(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with measure:
        try:
            wait_until(lambda: demo.trained() > 2 or measure.poll() is not None, limit_s=60)
            yield measure
        finally:
            measure.kill()


def test_an_interrupt_cancels_the_measurement_in_the_controller(demo: Demo) -> None:
    with measuring(demo, "--sizes", "2", "--iterations", "10000", "--json") as measure:
        busy = subprocess.run(demo.measure(), capture_output=True, text=True, check=False)
        measured = demo.view().measurement
        assert busy.returncode == 1, measured
        assert f"{measured.name} measures small" in busy.stderr
        measure.send_signal(signal.SIGINT)
        out, errors = measure.communicate(timeout=30)
    assert measure.returncode == 1
    assert json.loads(out)["sizes"][0]["phase"] == "skipped"
    assert "cancelled by" in errors
    found = demo.view()
    assert found.measurement.is_over
    assert not any(w.task == "small@measure" for node in found.nodes for w in node.workers)
    assert found.tasks[0].phase == "running"


def test_an_agent_that_is_silent_for_a_while_does_not_end_the_measurement(demo: Demo) -> None:
    with measuring(demo, "--sizes", "2", "--iterations", "10000") as measure:
        node = next(
            node
            for node in demo.view().nodes
            if any(w.task == "small@measure" for w in node.workers)
        )
        os.kill(node.agent_pid, signal.SIGSTOP)
        try:
            wait_until(lambda: demo.condition(node.node) == "unreachable", limit_s=30)
        finally:
            os.kill(node.agent_pid, signal.SIGCONT)
        wait_until(lambda: demo.condition(node.node) == "healthy", limit_s=30)
        trained = demo.trained()
        wait_until(lambda: demo.trained() > trained, limit_s=30)
        measure.send_signal(signal.SIGINT)
        measure.communicate(timeout=30)


def test_the_runs_of_a_task_have_refined_its_table(demo: Demo, tmp_path: Path) -> None:
    demo.process.send_signal(signal.SIGTERM)
    demo.process.wait(timeout=60)
    refined = load_table(demo.tables / "small.json")
    assert [p.workers for p in refined.points] == [1, 2]
    assert refined.points[0].iterations > 4  # the task itself has trained with one worker
    assert refined.points[1].iterations == 4
    tasks = tmp_path / "tasks.toml"
    file = f'file = "{demo.tables / "small.json"}"'
    tasks.write_text(TASKS.replace("[task.throughput]", f"[task.throughput]\n{file}"))
    (profile,) = load_task_profiles(tasks)
    assert profile.throughput.flops_per_s(2) == refined.points[1].flops_per_s
    assert profile.throughput.flops_per_s(4) == 4e9
