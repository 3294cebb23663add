"""Measures how long a drained node holds up its task, beside a stop and a start of the same task.

    python benchmarks/drain_pause.py [--times N]

The whole product runs: four local nodes of two workers behind SSH, ``unicron run``, and the demo's
first task with four ranks on two of the nodes. In turn a node of the task is drained with ``unicron
drain``, and the task is stopped and started with ``unicron stop`` and ``unicron start``. Figures:

- ``iteration_s``: median time between two commits;
- ``pause``: the longest time between two commits around the order, less one ``iteration_s``, in
  iterations: median and worst;
- ``num_rerun``: iterations that were run a second time.

These are measurements of one machine at one time, not limits.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from harness.result_pages import command_line, machine
from harness.termination import end_on_sigterm

from controller.store.history import HISTORY_NAME, read_rows
from profiles.task_profiles import DEMO_TASKS

_TASK: Final = "gpt-a"
_NUM_SETTLED: Final = 8
"""Iterations before and after each order."""
_LIMIT_S: Final = 120.0


def main() -> None:
    """Measure and print a JSON object."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--times", type=int, default=10, metavar="N", help="of each (default 10)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ud-", dir="/tmp") as name:
        report = _measure(Path(name), arguments.times)
    print(json.dumps({**machine(), "command": command_line(), **report}, indent=1))  # noqa: T201


def _measure(directory: Path, times: int) -> dict[str, Any]:
    nodes = _begin("demo", "--nodes-only", "--dir", str(directory / "play"))
    controller = None
    try:
        _until((directory / "play" / "cluster.toml").exists)
        time.sleep(1.0)
        bench = _Bench(directory / "play" / "cluster.toml")
        controller = _begin("run", str(bench.path), "--auto-heal")
        bench.settle()
        drains, restarts = [], []
        for number in range(times):
            drains.append(bench.pause_of(bench.drain))
            restarts.append(bench.pause_of(bench.restart))
            sys.stderr.write(f"{number + 1} of {times}: {drains[-1]:.2f} {restarts[-1]:.2f}\n")
        return {
            "iteration_s": round(bench.iteration_s(), 3),
            "pause": {"drain": _spread(drains), "stop and start": _spread(restarts)},
            "num_rerun": sum(row["is_rerun"] for row in bench.rows()),
        }
    finally:
        for process in filter(None, (controller, nodes)):
            process.terminate()
            process.wait(_LIMIT_S)


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 2), "worst": round(max(values), 2)}


def _begin(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "controller.cli", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _until(condition: Callable[[], object]) -> None:
    end_s = time.perf_counter() + _LIMIT_S
    while not condition():
        if time.perf_counter() > end_s:
            raise TimeoutError(f"not within {_LIMIT_S:g} s")
        time.sleep(0.1)


class _Bench:
    """One task under one controller."""

    def __init__(self, path: Path) -> None:
        self.path = path
        head = path.read_text().partition("[[task]]")[0]
        head = "\n".join(line for line in head.splitlines() if not line.startswith("include"))
        table = next(
            table for table in DEMO_TASKS.read_text().split("[[task]]") if f'"{_TASK}"' in table
        )
        path.write_text(f"{head}\n[[task]]{table}")

    def do(self, *words: str) -> Any:  # noqa: ANN401 - of JSON
        done = subprocess.run(
            [sys.executable, "-m", "controller.cli", *words, "--json", "--cluster", str(self.path)],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        return json.loads(done.stdout) if done.returncode == 0 else None

    def rows(self) -> list[dict[str, Any]]:
        found = list(self.path.parent.rglob(HISTORY_NAME))
        return list(read_rows(found[0], "iterations", limit=10**6)) if found else []

    def settle(self) -> None:
        """Wait until the task has trained for a while."""
        begin = len(self.rows())
        _until(lambda: len(self.rows()) >= begin + _NUM_SETTLED)

    def iteration_s(self) -> float:
        return statistics.median(_gaps(self.rows()))

    def pause_of(self, order: Callable[[], None]) -> float:
        """Return for how many iterations an order held the task up."""
        self.settle()
        begin = len(self.rows())
        order()
        _until(lambda: len(self.rows()) >= begin + 2 * _NUM_SETTLED)
        around = self.rows()[begin - 2 :]
        usual_s = self.iteration_s()
        return (max(_gaps(around)) - usual_s) / usual_s

    def drain(self) -> None:
        """Drain a node of the task, and let it work again."""
        name = next(
            node["name"] for node in self.do("nodes") if node["busy"] and node["upkeep"] is None
        )
        assert self.do("drain", name)
        _until(lambda: self.do("nodes", name)[0]["upkeep"]["state"] == "drained")
        assert self.do("uncordon", name)

    def restart(self) -> None:
        """Stop the task and start it again."""
        assert self.do("stop", _TASK)
        _until(lambda: self.do("tasks", _TASK)[0]["phase"] == "stopped")
        assert self.do("start", _TASK)


def _gaps(rows: list[dict[str, Any]]) -> list[float]:
    return [after["at"] - before["at"] for before, after in pairwise(rows)]


if __name__ == "__main__":
    main()
