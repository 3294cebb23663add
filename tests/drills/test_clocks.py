"""Nodes whose wall clocks are five minutes off: healed as elsewhere, with the right times."""

import os
import re
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.fakes.cluster_runs import controller_of, pids_of, reach, view_of, write_cluster
from tests.fakes.demo_runs import demo_tasks
from tests.fakes.playgrounds import Foreground, playground
from tests.fakes.polling import wait_until

LIBRARY = Path(f"/usr/lib/{os.uname().machine}-linux-gnu/faketime/libfaketimeMT.so.1")
pytestmark = [
    pytest.mark.drill,
    pytest.mark.ranks,
    pytest.mark.ssh,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not LIBRARY.exists(), reason="no faketime installed"),
]

OTHER_CLOCK = (
    "#!/bin/sh\nexport LD_PRELOAD={library} FAKETIME={skew}s FAKETIME_DONT_FAKE_MONOTONIC=1"
    " FAKETIME_DONT_RESET=1 PYTHONPATH={folder}${{PYTHONPATH:+:$PYTHONPATH}}\n"
    'exec {python} "$@"\n'
)
SLEEP = "import select, time\ntime.sleep = lambda seconds: select.select([], [], [], seconds)[3:]\n"
"""Under libfaketime 0.9.10 each ``time.sleep`` of Python 3.11 fails with "Invalid argument"."""

RESOLVED = re.compile(r"resolved ([\d.]+) s after the fault")


def test_nodes_with_wrong_clocks_heal_and_faults_have_their_times(
    short_tmp: Path, tmp_path: Path
) -> None:
    sizes = ("--nodes", "2", "--workers-per-node", "4")
    with playground(short_tmp, tmp_path / "play", *sizes) as nodes:
        path = write_cluster(nodes, tmp_path / "c", "c", demo_tasks(1000, "gpt-a"))
        # Each node has half of the task.
        groups = (
            path.read_text()
            .replace("workers = 4\nstate", "workers = 2\nstate")
            .split("[[nodes]]\n")
        )
        (tmp_path / "sitecustomize.py").write_text(SLEEP)
        for number, skew in ((1, "-300"), (2, "+300")):
            python = tmp_path / f"python{number}"
            python.write_text(
                OTHER_CLOCK.format(
                    library=LIBRARY, skew=skew, folder=tmp_path, python=sys.executable
                )
            )
            python.chmod(0o755)
            groups[number] = f'python = "{python}"\n{groups[number]}'
        path.write_text("[[nodes]]\n".join(groups))
        with controller_of(path, "--auto-heal") as command:
            reach(path, 4)
            command.says("the clock is 300.0 s")
            for number, rank in enumerate((1, 3)):  # one of each node
                before = view_of(path).tasks[0].iteration
                psutil.Process((pids_of(path) or {})["gpt-a", rank]).kill()
                times = wait_until(partial(resolved_in, command, number + 1), limit_s=60)
                assert 0.1 < times[-1] < 10
                reach(path, before + 3)
            end_the_agent_of("n1", path)
            command.says("back in contact")
            reach(path, view_of(path).tasks[0].iteration + 3)
        assert not [line for line in command.lines if "Invalid argument" in line]


def resolved_in(command: Foreground, number: int) -> list[float] | None:
    """Return how long the faults took until now, if there are so many."""
    found = [match for line in list(command.lines) if (match := RESOLVED.search(line))]
    return [float(each[1]) for each in found] if len(found) == number else None


def end_the_agent_of(name: str, path: Path) -> None:
    """Kill an agent, whose ranks live on. The controller starts another one."""
    folder = f"/{path.parent.name}/{name}"
    [agent] = [
        process
        for process in psutil.process_iter(["cmdline"])
        if "nodeagent" in (words := process.info["cmdline"] or [])
        and "run" in words
        and any(folder in word for word in words)
    ]
    agent.kill()
    wait_until(lambda: not agent.is_running(), limit_s=10)
