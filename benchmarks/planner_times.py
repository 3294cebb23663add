"""Measures how long the planner takes for an exact plan, beside the plain recurrence in numpy.

    python benchmarks/planner_times.py [--runs N] [--plain-seconds S] [--kind KIND] [--write-docs]

In process, from a parsed problem to the assignments, warm; each case in a process of its own.
Figures:

- ``solve_ms``: median of the runs;
- ``plain_ms``: S(i, j) filled whole, by arrays; only where that is expected to take less than S
  seconds;
- ``ratio``: plain over solve; both found the same objective, or the benchmark ends with an error;
- ``floors``: the same tasks with ``keeps_running`` and half a fair share as ``min_workers``, solved
  in turn with the others: median of the ratios of the processor's time, run by run;
- ``peak_mb``: peak of resident memory of the process, the problem and numpy included.

These are measurements of one machine at one time, not limits.
"""

import argparse
import math
import resource
import statistics
import time
from typing import Any, Final

import numpy as np
from planning.instance_campaign import Cluster, run_campaign
from planning.planner_instances import Instance, Kind, make_instance, with_floors

from controller.core.rules.planner.cost import Quantum
from controller.core.rules.planner.solver import Division, solve

_CLUSTERS: Final = ((128, 1, 6), (10_000, 8, 64), (16_384, 1, 64), (100_000, 8, 128))
_OPERATIONS_PER_S: Final = 5e8
"""Approximate operations of the plain recurrence, to skip cases that would take hours."""


def main() -> None:
    """Measure every case, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="default 20")
    parser.add_argument("--plain-seconds", type=float, default=60.0, metavar="S", help="default 60")
    run_campaign("planner_times", parser, _CLUSTERS, _measure, _table)


def _measure(
    kind: Kind, cluster: Cluster, mtbf_hours: float, options: argparse.Namespace
) -> dict[str, Any]:
    num_workers, unit, num_tasks = cluster
    instance = make_instance(
        kind, num_workers=num_workers, unit=unit, num_tasks=num_tasks, mtbf_hours=mtbf_hours
    )
    kept = with_floors(instance, unit)
    durations_s, ratios, found = [], [], 0.0
    for _ in range(options.runs + 1):  # the first one warms up
        begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
        found = _solve(instance).objective
        durations_s.append(time.perf_counter() - begin_s)
        middle_cpu_s = time.process_time()
        _solve(kept)
        took_s = time.process_time() - middle_cpu_s
        ratios.append(took_s / (middle_cpu_s - begin_cpu_s))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    solve_ms = 1000 * statistics.median(durations_s[1:])
    plain_ms = None
    if num_tasks * (num_workers / unit) ** 2 / 2 / _OPERATIONS_PER_S <= options.plain_seconds:
        begin_s = time.perf_counter()
        best = _recur(instance, unit)
        plain_ms = 1000 * (time.perf_counter() - begin_s)
        if not math.isclose(best, found, rel_tol=1e-12):
            raise SystemExit(f"{kind} {cluster}: {found} is not the plain recurrence's {best}")
    return {
        "kind": kind,
        "workers": num_workers,
        "unit": unit,
        "tasks": num_tasks,
        "mtbf_hours": mtbf_hours,
        "solve_ms": round(solve_ms, 3),
        "max_ms": round(1000 * max(durations_s[1:]), 3),
        "plain_ms": None if plain_ms is None else round(plain_ms, 1),
        "ratio": None if plain_ms is None else round(plain_ms / solve_ms, 1),
        "floors": round(statistics.median(ratios[1:]), 2),
        "peak_mb": round(peak_mb),
    }


def _solve(instance: Instance) -> Division:
    return solve(instance.tasks, num_workers=instance.num_workers, running_s=instance.running_s)


def _recur(instance: Instance, unit: int) -> float:
    """Return the best objective, by S(i, j) over all i and j."""
    quantum = Quantum.for_tasks(instance.tasks, instance.running_s)
    best = np.zeros(instance.num_workers // unit + 1, np.int64)
    for task in instance.tasks:
        options = quantum.options(task, instance.num_workers, instance.running_s)
        total = np.full_like(best, np.iinfo(np.int64).min)
        for size, gain in zip(
            (options.sizes // unit).tolist(), options.gains.tolist(), strict=True
        ):
            part = total[size:]
            np.maximum(part, best[: len(part)] + gain, out=part)
        best = np.maximum.accumulate(total)
    return math.ldexp(float(best[-1]), quantum.exponent)


def _table(report: dict[str, Any]) -> str:
    rows = "\n".join(map(_row, report["cases"]))
    return f"""\
| tables | workers | in parts of | tasks | MTBF, h | plan, ms (median of {report["runs"]}) | plain recurrence, ms | ratio | with floors, ratio | peak memory, MB |
|---|---|---|---|---|---|---|---|---|---|
{rows}"""


def _row(case: dict[str, Any]) -> str:
    plain = "not run" if case["plain_ms"] is None else f"{case['plain_ms']:,.0f}"
    ratio = "" if case["ratio"] is None else f"{case['ratio']:,.0f}"
    return (
        f"| {case['kind']} | {case['workers']:,} | {case['unit']} | {case['tasks']}"
        f" | {case['mtbf_hours']:,.0f} | {case['solve_ms']:.1f} | {plain} | {ratio}"
        f" | {case['floors']:.2f} | {case['peak_mb']} |"
    )


if __name__ == "__main__":
    main()
