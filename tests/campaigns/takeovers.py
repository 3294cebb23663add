"""``make takeovers``: the controller of a cluster file is killed again and again under training.

After each kill the next controller must find the same processes. At the end there is no incident,
every iteration ran once, and the losses are those of a run without kills on the same nodes.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.fakes.cluster_runs import controller_of, outcome_of, pids_of, reach, write_cluster
from tests.fakes.demo_runs import demo_tasks
from tests.fakes.playgrounds import Playground, playground
from tests.fakes.polling import wait_until

_ITERATIONS_PER_KILL = 30
_FIRST = 3
_LONGEST_S = 4.0


def main() -> int:
    """Run the campaign; return 0 if every kill cost nothing."""
    parser = argparse.ArgumentParser(prog="make takeovers", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="number of kills (default 20)")
    parser.add_argument("--seed", type=int, default=40, help="of the instants (default 40)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ut-", dir="/tmp") as name:
        directory = Path(name)
        (directory / "t").mkdir()
        sizes = ("--nodes", "4", "--workers-per-node", "2")
        with playground(directory / "t", directory / "play", *sizes) as nodes:
            return _run(nodes, directory, options)


def _trains_as(path: Path, expected: dict[tuple[str, int], int]) -> bool:
    return pids_of(path) == expected


def _run(nodes: Playground, directory: Path, options: argparse.Namespace) -> int:
    tasks = demo_tasks(_FIRST + options.kills * _ITERATIONS_PER_KILL, floor_s=0.1, is_light=False)
    calm = write_cluster(nodes, directory / "calm", "calm", tasks)
    with controller_of(calm, "--auto-heal", "--until-done") as command:
        assert command.process.wait(1800) == 0
    path = write_cluster(nodes, directory / "killed", "killed", tasks)
    draw = random.Random(options.seed)
    before: dict[tuple[str, int], int] | None = None
    for number in range(1, options.kills + 1):
        with controller_of(path, "--auto-heal") as command:
            if before is None:
                reach(path, _FIRST)
                before = wait_until(
                    lambda: found if len(found := pids_of(path) or {}) == 8 else None, limit_s=20
                )
            else:
                wait_until(partial(_trains_as, path, before), limit_s=20)
            pause_s = draw.uniform(0.0, _LONGEST_S)
            time.sleep(pause_s)
            command.end(signal.SIGKILL)
        sys.stdout.write(f"kill {number} after {pause_s:.2f} s: the same processes\n")
        sys.stdout.flush()
    with controller_of(path, "--auto-heal", "--until-done") as command:
        assert command.process.wait(1800) == 0
    losses, expected = outcome_of(path), outcome_of(calm)
    worst = max(
        abs(losses[task][iteration] - loss)
        for task, of_task in expected.items()
        for iteration, loss in of_task.items()
    )
    num = sum(map(len, losses.values()))
    sys.stdout.write(
        f"{options.kills} kills, seed {options.seed}: no incident, {num} iterations each once, largest"
        f" difference of a loss {worst:.1e}\n"
    )
    return 0 if losses.keys() == expected.keys() and worst < 1e-4 else 1


if __name__ == "__main__":
    raise SystemExit(main())
