"""Measures how long a killed rank holds up its task: from SIGKILL to the next committed iteration.

    python benchmarks/kill_to_commit.py [--kills N] [--layouts L ...] [--write-docs]

The whole product runs: ``unicron demo`` headless, one task of four ranks on two nodes behind SSH,
agents with warm templates. A random rank is killed at a random time, once training has settled
again after the kill before. The clock runs from the signal until the controller knows of the first
iteration that was run to its end after it; one that was committed by its vote when the rank died
does not count. Figures, seconds:

- ``iteration``: median time between two commits without fault;
- ``kill_to_commit``: median, 90th percentile and worst; ``excess``: the same less one
  ``iteration``;
- where the median goes: ``notice`` (until the controller has the first evidence), ``park`` (until
  every survivor's position is in and the regroup decided), ``fork`` (the replacement's process),
  ``join`` (all ranks meet, the replacement builds its model and gets its state),
  ``first_iteration`` (its rest); beside them the longest ``form`` (process groups) and ``state`` of
  any rank, which lie inside ``join``;
- ``num_not_recovered``: kills that no iteration followed within the limit; ``num_unread``: kills
  whose recovery the event log does not show in full; ``rungs``: how the broken iterations were
  finished.

These are measurements of one machine at one time, not limits.
"""

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from harness.result_pages import (
    MEASUREMENTS,
    command_line,
    machine,
    machine_line,
    write_results,
    write_section,
)
from harness.termination import end_on_sigterm
from killing.commit_recovery import PARTS_OF_JOIN, PHASES, CommitRecovery, UnreadRecoveryError
from killing.demo_cluster import Cluster, SessionOverError

from profiles.layout import Layout

LAYOUTS: Final = {"dp4": Layout(dp=4), "tp2dp2": Layout(tp=2, dp=2), "pp2dp2": Layout(pp=2, dp=2)}
_NUM_SETTLED: Final = 8
"""Iterations between two kills, at least."""
_RECOVERY_LIMIT_S: Final = 60.0


def main() -> None:
    """Measure each layout and print what was measured."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=30, metavar="N", help="(default 30)")
    parser.add_argument("--layouts", nargs="+", choices=list(LAYOUTS), default=list(LAYOUTS))
    parser.add_argument("--layers", type=int, default=2, metavar="L", help="(default 2)")
    parser.add_argument("--hidden-size", type=int, default=64, metavar="H", help="(default 64)")
    parser.add_argument("--seq-length", type=int, default=64, metavar="S", help="(default 64)")
    parser.add_argument("--seed", type=int, default=1, help="of ranks and times (default 1)")
    parser.add_argument("--write-docs", action="store_true", help="update docs/measurements.md")
    arguments = parser.parse_args()
    cases = []
    for name in arguments.layouts:
        cases.append(_measure(name, arguments))
        sys.stderr.write(f"{name}: {_row(cases[-1])}\n")
    report = {
        **machine(),
        "command": command_line(),
        "model": {
            "num_layers": arguments.layers,
            "hidden_size": arguments.hidden_size,
            "seq_length": arguments.seq_length,
        },
        "cases": cases,
    }
    json.dump(report, sys.stdout, indent=1)
    sys.stdout.write("\n")
    if arguments.write_docs:
        write_results("kill_to_commit", report)
        write_section(MEASUREMENTS, "kill_to_commit", _section(report))


def _measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    generator = random.Random(f"{arguments.seed}/{name}")  # noqa: S311 - repeatable, not secret
    recoveries: list[CommitRecovery] = []
    intervals: list[float] = []
    num_not_recovered = num_unread = 0
    num_left = arguments.kills
    while num_left > 0:
        with tempfile.TemporaryDirectory() as directory:
            cluster = Cluster(
                LAYOUTS[name],
                Path(directory),
                num_layers=arguments.layers,
                hidden_size=arguments.hidden_size,
                seq_length=arguments.seq_length,
            )
            with cluster:
                try:
                    while num_left > 0:
                        num_left -= 1
                        try:
                            recoveries.append(_kill_one(cluster, generator))
                        except UnreadRecoveryError as error:
                            num_unread += 1
                            sys.stderr.write(f"{name}: not counted: {error}\n")
                            continue
                        sys.stderr.write(
                            f"{name} {len(recoveries)}: {recoveries[-1].total_s:.3f} s\n"
                        )
                except SessionOverError as error:
                    if not cluster.num_faults:
                        raise SystemExit(f"kill_to_commit.py: {error}") from error
                    num_not_recovered += 1
                    sys.stderr.write(f"{name}: not recovered: {error}\n")
                intervals += cluster.usual_intervals()
    figures = _figures(name, recoveries, intervals)
    lost = {"num_not_recovered": num_not_recovered, "num_unread": num_unread}
    return figures | {"num_kills": len(recoveries) + sum(lost.values())} | lost


def _kill_one(cluster: Cluster, generator: random.Random) -> CommitRecovery:
    iteration_s = cluster.wait_for_iterations(_NUM_SETTLED)
    time.sleep(generator.uniform(0, 2 * iteration_s))
    global_rank = generator.randrange(cluster.num_ranks)
    fault = cluster.fault_on(global_rank)
    os.kill(fault.pid, signal.SIGKILL)
    return cluster.wait_for_recovery(fault, _RECOVERY_LIMIT_S)


def _figures(name: str, recoveries: list[CommitRecovery], intervals: list[float]) -> dict[str, Any]:
    if not recoveries:
        raise SystemExit(f"kill_to_commit.py: {name}: no kill was recovered from")
    iteration_s = statistics.median(intervals)
    totals = sorted(recovery.total_s for recovery in recoveries)
    spread = {
        "median": statistics.median(totals),
        "p90": totals[min(len(totals) - 1, round(0.9 * len(totals)))],
        "max": totals[-1],
    }
    return {
        "layout": name,
        "iteration": round(iteration_s, 4),
        "kill_to_commit": {key: round(value, 4) for key, value in spread.items()},
        "excess": {key: round(value - iteration_s, 4) for key, value in spread.items()},
        "median_of": {
            phase: round(statistics.median(recovery.phases_s[phase] for recovery in recoveries), 4)
            for phase in (*PHASES, *PARTS_OF_JOIN)
        },
        "rungs": dict(Counter(recovery.rung for recovery in recoveries)),
        "recoveries": [recovery.as_json() for recovery in recoveries],
    }


def _row(case: dict[str, Any]) -> str:
    excess, phases = case["excess"], case["median_of"]
    cells = [
        case["layout"],
        f"{case['iteration']:.3f}",
        *(f"{case['kill_to_commit'][key]:.2f}" for key in ("median", "p90", "max")),
        f"**{excess['median']:.2f}**",
        *(f"{phases[phase]:.3f}" for phase in (*PHASES, *PARTS_OF_JOIN)),
        f"{case['num_not_recovered']} of {case['num_kills']}",
        f"{case['num_unread']}",
    ]
    return f"| {' | '.join(cells)} |"


def _section(report: dict[str, Any]) -> str:
    model = report["model"]
    titles = [
        *("layout", "one iteration", "kill to commit, median", "p90", "worst"),
        "median less one iteration",
        *(phase.replace("_", " ") for phase in PHASES),
        *(f"{part}, longest" for part in PARTS_OF_JOIN),
        *("not recovered", "not read"),
    ]
    rows = "\n".join(_row(case) for case in report["cases"])
    return f"""\
{machine_line(report)} 4 ranks on 2 nodes; {model["num_layers"]} layers, hidden size {model["hidden_size"]},
sequences of {model["seq_length"]}, 12 micro-batches. Seconds; the phases are medians of their own.

    {report["command"]}

| {" | ".join(titles)} |
|{"---|" * len(titles)}
{rows}"""


if __name__ == "__main__":
    main()
