"""``make soak``: faults at random under training, and a controller that is killed again and again.

The demo's tasks train on four local nodes under ``unicron run``. Ranks are killed and stopped,
agents are killed, and with ``--kill-every`` the controller is killed with SIGKILL, each at instants
drawn from a seed. If a worker is hit twice before an iteration, its node is isolated; an operator
returns it. The journal's segments are short, so that snapshots are made and taken over. At the end:

- every iteration was committed once, and losses are those of the same iterations without a fault,
  for as long as training does not magnify rounding (docs/measurements.md);
- the journal is whole, after each life of the controller as well;
- memory, descriptors and processes of controller and agents, and the disk, have not grown.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from controller.clock import SystemClock
from controller.store.history import HISTORY_NAME, read_rows
from tests.fakes.cluster_runs import end_everything_of, reach, view_of, write_cluster
from tests.fakes.demo_runs import demo_tasks, processes_under
from tests.fakes.playgrounds import Foreground, Playground, playground, unicron
from tests.fakes.polling import wait_until

_POLICY = """
[policy]
restarts = 100000
gpu_faults = 100000
max_recoveries = 1000
"""
"""No node is isolated for the number of its faults."""
_SHORT_SEGMENTS = """
import sys
from controller.store import journal
journal.SEGMENT_EVENTS = 300
from controller.cli import main
sys.exit(main(sys.argv[1:]))
"""
_CLOCK = SystemClock()
_ALL = "gpt-"
_FAULTS = ("kill rank", "kill rank", "kill rank", "stop rank", "kill agent")
_SAMPLE_S = 5.0
_TOLERANCE = 2e-6
_NUM_EXACT = 800
"""Iterations whose losses are compared so closely. Two runs without a fault, on one replica and on
two, differ by 1e-6 until then, and by 2e-4 after twice as many."""
_NUM_COMPARED = 2000
"""Iterations of the run without a fault, which would take longer than the campaign otherwise."""
_COURSE = 1e-2
"""By how much a later loss may differ: training has kept its course."""
_ENDLESS = 10**6


@dataclass
class Samples:
    """What the processes took, every few seconds."""

    controller_mb: list[float] = field(default_factory=list)
    controller_files: list[int] = field(default_factory=list)
    agents_mb: list[float] = field(default_factory=list)
    agents_files: list[int] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    disk_mb: list[float] = field(default_factory=list)

    def add(self, controller: psutil.Process, cluster: Path, nodes: Path) -> None:
        """Take a sample."""
        living = processes_under(nodes, "/soak/")
        agents = [each for each in living if _is_agent(each)]
        self.controller_mb.append(controller.memory_info().rss / 1e6)
        self.controller_files.append(controller.num_fds())
        self.agents_mb.append(sum(each.memory_info().rss for each in agents) / 1e6)
        self.agents_files.append(sum(each.num_fds() for each in agents))
        self.processes.append(len(living))
        num_bytes = 0
        for each in (cluster.parent / "run").rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # compacted meanwhile
                num_bytes += each.stat().st_size
        self.disk_mb.append(num_bytes / 1e6)

    def ends(self) -> dict[str, tuple[float, float]]:
        """Return the medians of the second and the last fifth of each row: the start-up is over."""
        found = {}
        for name, values in vars(self).items():
            size = max(1, len(values) // 5)
            early, late = values[size : 2 * size] or values, values[-size:] or values
            found[name] = (sorted(early)[len(early) // 2], sorted(late)[len(late) // 2])
        return found


def _is_agent(process: psutil.Process) -> bool:
    try:
        return "nodeagent run" in " ".join(process.cmdline())
    except psutil.Error:
        return False  # it has just ended


@contextlib.contextmanager
def _controller(path: Path) -> Iterator[Foreground]:
    """Run the controller with short segments until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SHORT_SEGMENTS, "run", str(path), "--auto-heal"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    running = Foreground(process)
    try:
        running.says("watch it:")
        yield running
    finally:
        running.end()


class Soak:
    """One campaign."""

    def __init__(
        self, nodes: Playground, directory: Path, options: argparse.Namespace, only: str = _ALL
    ) -> None:
        """Prepare it.

        ``only`` begins the names of the demo's tasks that train; a part of them is light.
        """
        self.draw = random.Random(options.seed)
        self.options, self.nodes, self.directory = options, nodes, directory
        tasks = demo_tasks(_ENDLESS, only, floor_s=0.1, is_light=only != _ALL)
        self.path = write_cluster(nodes, directory / "soak", "soak", _POLICY + tasks)
        self.faults, self.unreported = Counter[str](), dict[str, int]()
        self.samples = Samples()

    def run(self, seconds: float) -> dict[str, int]:
        """Break things for so long; return how far each task is when all is well again.

        The time until a controller's tasks train does not count.
        """
        life_s = self.options.kill_every or seconds
        for _ in range(max(1, round(seconds / life_s))):
            with _controller(self.path) as command:
                reach(self.path, 1)
                self._break_until(_CLOCK.now() + life_s, command)
                if self.options.kill_every:
                    command.end(signal.SIGKILL)
                    self.faults["kill controller"] += 1
                    self._verify()
        with _controller(self.path):
            newest = self._iterations()
            self._return_isolated()
            try:
                wait_until(lambda: self._have_gone_on(newest), limit_s=120)
            except AssertionError:
                self._explain()
                raise
            done = self._iterations()
        self._verify()
        return done

    def _explain(self) -> None:
        """Print what is known while a task does not go on."""
        for words in (["status"], ["events", "--limit", "200"]):
            command = unicron(*words, "--cluster", str(self.path))
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            sys.stdout.write(done.stdout + done.stderr)

    def _have_gone_on(self, newest: dict[str, int]) -> bool:
        done = self._iterations()
        return all(done[task] >= iteration + 10 for task, iteration in newest.items())

    def _iterations(self) -> dict[str, int]:
        view = view_of(self.path)
        assert view is not None
        return {task.name: task.iteration for task in view.tasks}

    def _break_until(self, end: float, command: Foreground) -> None:
        controller, sampled = psutil.Process(command.process.pid), 0.0
        while (left_s := end - _CLOCK.now()) > 0:
            time.sleep(min(left_s, self.draw.uniform(0.5, self.options.pause_s)))
            if _CLOCK.now() - sampled > _SAMPLE_S:
                sampled = _CLOCK.now()
                with contextlib.suppress(psutil.NoSuchProcess):
                    self.samples.add(controller, self.path, self.directory)
            self._break_something()
            self._return_isolated()

    def _return_isolated(self) -> None:
        """Return isolated nodes to service, as an operator does after a look at them."""
        view = view_of(self.path)
        for node in view.nodes if view else ():
            if node.isolated:
                command = unicron("uncordon", node.node, "--cluster", str(self.path))
                done = subprocess.run(command, check=False, capture_output=True, text=True)
                self.faults["isolated node returned"] += done.returncode == 0

    def _break_something(self) -> None:
        view, kind = view_of(self.path), self.draw.choice(_FAULTS)
        if view is None:
            return
        slots = [slot for node in view.nodes for slot in node.workers if slot.pid is not None]
        agents = [node.agent_pid for node in view.nodes if node.agent_pid is not None]
        pids: list[Any] = agents if kind == "kill agent" else [slot.pid for slot in slots]
        if not pids:
            return
        number = signal.SIGSTOP if kind == "stop rank" else signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.draw.choice(sorted(pids)), number)
            self.faults[kind] += 1

    def _verify(self) -> None:
        run = str(self.path.parent / "run")
        checked = subprocess.run(
            unicron("journal", "verify", run, "--json"), check=False, capture_output=True, text=True
        )
        assert checked.returncode == 0, checked.stderr

    def losses(self, ends: dict[str, int]) -> dict[str, dict[int, float]]:
        """Return the losses of the iterations to ``ends`` and on, each committed once.

        A rank that ends while its agent is down takes the reports with it that it still held. Such
        iterations were trained, and their losses are known to nobody: they are counted.
        """
        found: dict[str, dict[int, float]] = {}
        for row in read_rows(self.path.parent / "run" / HISTORY_NAME, "iterations", limit=10**9):
            of_task = found.setdefault(row["task"], {})
            if not row["is_rerun"]:
                assert row["iteration"] not in of_task, f"{row} was committed before"
                of_task[row["iteration"]] = row["loss"]
        for task, of_task in found.items():
            missing = sorted(set(range(1, max(ends[task], *of_task) + 1)) - of_task.keys())
            self.unreported[task] = len(missing)
            assert ends[task] in of_task, f"the history of {task} ends before its last iterations"
        return found


def calm_losses(
    nodes: Playground, directory: Path, ends: dict[str, int], only: str = _ALL
) -> dict[str, dict[int, float]]:
    """Return the losses of a run without faults."""
    tasks = demo_tasks(max(ends.values()), only, floor_s=0.01, is_light=only != _ALL)
    path = write_cluster(nodes, directory / "calm", "calm", _POLICY + tasks)
    with subprocess.Popen(
        unicron("run", str(path), "--auto-heal", "--until-done"),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.wait(3600) == 0
    found: dict[str, dict[int, float]] = {}
    for row in read_rows(path.parent / "run" / HISTORY_NAME, "iterations", limit=10**9):
        found.setdefault(row["task"], {})[row["iteration"]] = row["loss"]
    return found


def main() -> int:
    """Run the campaign; return 0 if all holds."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    minutes = float(os.environ.get("MINUTES", "20"))
    parser.add_argument("--minutes", type=float, default=minutes, help="default 20")
    parser.add_argument("--seed", type=int, default=43, help="of faults and instants (default 43)")
    parser.add_argument("--pause-s", type=float, default=6.0, help="longest pause (default 6)")
    parser.add_argument(
        "--kill-every", type=float, default=0.0, metavar="S", help="kill the controller, too"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="copy the run directory here if something fails"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ut-", dir="/tmp") as name:
        directory = Path(name)
        (directory / "t").mkdir()
        sizes = ("--nodes", "4", "--workers-per-node", "2")
        try:
            with playground(directory / "t", directory / "play", *sizes) as nodes:
                return _campaign(nodes, directory, options)
        except AssertionError:
            if options.keep is not None:
                shutil.copytree(directory / "soak" / "run", options.keep)
            raise
        finally:
            end_everything_of(directory, "soak", "calm")


def _campaign(nodes: Playground, directory: Path, options: argparse.Namespace) -> int:
    soak = Soak(nodes, directory, options)
    ends = soak.run(60.0 * options.minutes)
    losses = soak.losses(ends)
    end_everything_of(directory, "soak")
    compared = {task: min(end, _NUM_COMPARED) for task, end in ends.items()}
    expected = calm_losses(nodes, directory, compared)
    differences = [
        (iteration, abs(loss - losses[task][iteration]))
        for task, of_task in expected.items()
        for iteration, loss in of_task.items()
        if iteration in losses[task]
    ]
    worst = max(differ for iteration, differ in differences if iteration <= _NUM_EXACT)
    worst_later = max(
        (differ for iteration, differ in differences if iteration > _NUM_EXACT), default=0.0
    )
    grown = soak.samples.ends()
    found = {
        "minutes": options.minutes, "seed": options.seed, "faults": dict(soak.faults),
        "iterations": ends, "of them unreported": soak.unreported,
        "largest difference of a loss": worst, "of a later one": worst_later,
        "from, to": grown,
    }  # fmt: skip
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0 if worst <= _TOLERANCE and worst_later <= _COURSE else 1


if __name__ == "__main__":
    raise SystemExit(main())
