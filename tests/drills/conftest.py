"""Runs of the whole demo, shared by the tests that look at them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.demo_runs import NUM_ITERATIONS, DemoRun, demo_tasks, processes_under, run_demo

_TWO_NODES = ("--nodes", "2", "--workers-per-node", "4")


@pytest.fixture(scope="session")
def short_tmp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a short name of its own, so that sockets fit and leftovers show."""
    path = Path(f"/tmp/ur-{os.getpid()}")
    path.mkdir(mode=0o700)
    yield path
    assert processes_under(path) == []
    assert list(path.iterdir()) == []
    path.rmdir()


@pytest.fixture(scope="session")
def undisturbed(short_tmp: Path, tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    """A run without drills; on one node instead of several, which changes no loss."""
    log = tmp_path_factory.mktemp("undisturbed") / "events.jsonl"
    one_node = ("--nodes", "1", "--workers-per-node", "8")
    return run_demo(short_tmp, log, *_light_tasks(log), *one_node)


@pytest.fixture(scope="session")
def main_job(short_tmp: Path, tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    """A rank is killed, then a node is lost, while the other task is far from its end."""
    log = tmp_path_factory.mktemp("main") / "events.jsonl"
    drills = ("--drill", "kill-rank@3", "--drill", "lose-node@6")
    path = str(log.with_name("log.jsonl"))
    logs = ("--log-level", "debug", "--log-format", "json", "--log-file", path)
    kept = ("--keep", str(log.with_name("kept")))
    return run_demo(short_tmp, log, "--auto-heal", *_light_tasks(log), *drills, *logs, *kept)


@pytest.fixture(scope="session")
def out_of_sight(short_tmp: Path, tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    """Connections are cut, an agent is killed, then the controller; no rank is touched."""
    log = tmp_path_factory.mktemp("sight") / "events.jsonl"
    drills = (
        "kill-ssh@2:node=n1", "kill-agent@3:node=n2", "kill-ssh@5:node=n1", "kill-controller@8",
    )  # fmt: skip
    words = [word for drill in drills for word in ("--drill", drill)]
    return run_demo(short_tmp, log, *_light_tasks(log), *_TWO_NODES, *words)


def _light_tasks(log: Path) -> tuple[str, ...]:
    tasks = log.with_name("tasks.toml")
    tasks.write_text(demo_tasks(NUM_ITERATIONS))
    return "--tasks", str(tasks), "--iterations", str(NUM_ITERATIONS)
