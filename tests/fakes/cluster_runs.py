"""Controllers of cluster files, as a user starts them, and what they have done."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from controller.api.client import NoControllerError
from controller.store.run_file import read_run
from tests.fakes.demo_runs import processes_under, view_at
from tests.fakes.playgrounds import Foreground, Playground, in_foreground
from tests.fakes.polling import wait_until

_ITERATION_LIMIT_S = 90.0


def write_cluster(nodes: Playground, directory: Path, name: str, tasks: str) -> Path:
    """Write a cluster file of its own over the nodes of a playground; return its path."""
    text = nodes.path.read_text()
    kept = text[text.index("[cluster]") :]
    kept = kept.replace('name = "demo"', f'name = "{name}"', 1)
    for key in ("id_ed25519", "known_hosts"):
        kept = kept.replace(f'"{key}"', f'"{nodes.path.parent / key}"')
    directory.mkdir(exist_ok=True)
    path = directory / "cluster.toml"
    path.write_text(kept + tasks)
    return path


@contextlib.contextmanager
def controller_of(path: Path, *options: str) -> Iterator[Foreground]:
    """Run the controller of a cluster file until the block ends, and wait until it answers."""
    with in_foreground("run", str(path), *options) as command:
        command.says("watch it:")
        yield command


def end_everything_of(directory: Path, *clusters: str) -> None:
    """Kill agents and ranks that clusters have left on nodes whose files are in ``directory``."""
    for process in (each for name in clusters for each in processes_under(directory, f"/{name}/")):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def view_of(path: Path) -> Any:  # noqa: ANN401 - a view
    """Return the cluster as its controller shows it now; None if none answers."""
    try:
        return view_at(path.parent / "run" / "api.sock")
    except (NoControllerError, StopIteration):
        return None


def pids_of(path: Path) -> dict[tuple[str, int], int] | None:
    """Return the process of each rank, by task and global rank; None if no controller answers."""
    view = view_of(path)
    if view is None:
        return None
    return {
        (slot.task, slot.global_rank): slot.pid
        for node in view.nodes
        for slot in node.workers
        if slot.pid is not None
    }


def reach(path: Path, iteration: int, limit_s: float = _ITERATION_LIMIT_S) -> None:
    """Wait until every task has committed an iteration."""

    def has_reached() -> bool:
        view = view_of(path)
        return view is not None and all(task.iteration >= iteration for task in view.tasks)

    wait_until(has_reached, limit_s=limit_s)


def outcome_of(path: Path) -> dict[str, dict[int, float]]:
    """Return every loss of each task from the journal, which must show no incident or rerun."""
    machine, _ = read_run(path.parent / "run")
    incidents = [(each.name, each.detected_at, each.cause) for each in machine.state.incidents.all]
    assert incidents == []
    losses = {}
    for name, task in machine.state.tasks.items():
        assert task.progress.num_rerun_iterations == 0
        losses[str(name)] = dict(task.progress.losses)
    return losses
