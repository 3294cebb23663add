"""Measures the table of plans for every next event against solving each plan afresh.

    python benchmarks/lookup_times.py [--runs N] [--sample N] [--kind KIND] [--write-docs]

The cluster runs the division that the planner chose; every node may be lost, and any two, a node
may join and every task may finish. Each case in a process of its own. Figures:

- ``build_s``: median of the runs, all next events;
- ``afresh_s``: every so many of them solved one by one, times their number over the sample's. Every
  plan of the sample is the table's, or the benchmark ends with an error;
- ``ratio``: afresh over build;
- ``find_ms``, ``solve_ms``: one decision, found in the table and solved at once;
- ``lag_ms``: the longest that an event loop stood still while the table was built in a thread
  beside it, and ``idle_lag_ms`` over as long with nothing beside it.

These are measurements of one machine at one time, not limits.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from planning.instance_campaign import Cluster, run_campaign
from planning.planner_instances import Kind, make_instance

from controller.background import LoopPauses
from controller.core.rules.planner.cost import Problem, horizon_s
from controller.core.rules.planner.lookup import LookupKey, LookupTable, Loss, Outlook, look_ahead
from controller.core.rules.planner.solver import solve

_CLUSTERS: Final = (
    (128, 8, 6),
    (1_024, 8, 16),
    (10_000, 8, 64),
    (16_384, 1, 64),
    (100_000, 8, 128),
)
_TICK_S: Final = 0.001


def main() -> None:
    """Measure every case, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="default 5")
    parser.add_argument("--sample", type=int, default=200, metavar="N", help="default 200")
    run_campaign("lookup_times", parser, _CLUSTERS, _measure, _table)


def _outlook(kind: Kind, cluster: Cluster, mtbf_hours: float) -> Outlook:
    """Return a cluster that runs the division which the planner chose."""
    num_workers, unit, num_tasks = cluster
    instance = make_instance(
        kind, num_workers=num_workers, unit=unit, num_tasks=num_tasks, mtbf_hours=mtbf_hours
    )
    running_s = horizon_s(3600.0 * mtbf_hours, num_workers)
    chosen = solve(instance.tasks, num_workers=num_workers, running_s=running_s).assignments
    tasks = tuple(
        replace(task, workers=chosen[task.name], is_faulted=False) for task in instance.tasks
    )
    losses = [Loss(unit, frozenset({t.name})) for t in tasks for _ in range(t.workers // unit)]
    losses += [Loss(unit, frozenset())] * (num_workers // unit - len(losses))
    return Outlook(tasks, (), num_workers, 3600.0 * mtbf_hours, tuple(losses), frozenset({unit}))


def _measure(
    kind: Kind, cluster: Cluster, mtbf_hours: float, options: argparse.Namespace
) -> dict[str, Any]:
    outlook = _outlook(kind, cluster, mtbf_hours)
    durations_s, table = [], LookupTable()
    for _ in range(options.runs + 1):  # the first one warms up
        begin_s = time.perf_counter()
        table = look_ahead(outlook)
        durations_s.append(time.perf_counter() - begin_s)
    build_s = statistics.median(durations_s[1:])
    keys = sorted(table.divisions, key=repr)
    sample = keys[:: max(1, len(keys) // options.sample)]
    find_s, solve_s = _compare(outlook, table, sample)
    afresh_s = sum(solve_s) * len(keys) / len(sample)
    return {
        "kind": kind,
        "workers": cluster[0],
        "tasks": cluster[2],
        "mtbf_hours": mtbf_hours,
        "events": len(keys),
        "build_s": round(build_s, 3),
        "afresh_s": round(afresh_s, 2),
        "ratio": round(afresh_s / build_s, 1),
        "find_ms": round(1000 * statistics.median(find_s), 3),
        "solve_ms": round(1000 * statistics.median(solve_s), 3),
        "lag_ms": round(1000 * asyncio.run(_lag_s(lambda: look_ahead(outlook, LoopPauses()))), 1),
        "idle_lag_ms": round(1000 * asyncio.run(_lag_s(lambda: time.sleep(build_s))), 1),
    }


def _compare(
    outlook: Outlook, table: LookupTable, sample: list[LookupKey]
) -> tuple[list[float], list[float]]:
    """Return how long each decision takes, found and solved, seconds."""
    find_s, solve_s = [], []
    for key in sample:
        tasks = tuple(
            replace(task, is_faulted=task.name in key.faulted)
            for task in outlook.tasks
            if task.name in key.tasks
        )
        problem = Problem(tasks, key.num_workers, horizon_s(outlook.worker_mtbf_s, key.num_workers))
        begin_s = time.perf_counter()
        found = table.decide(problem)
        find_s.append(time.perf_counter() - begin_s)
        begin_s = time.perf_counter()
        afresh = solve(tasks, num_workers=problem.num_workers, running_s=problem.running_s)
        solve_s.append(time.perf_counter() - begin_s)
        if found != afresh:
            raise SystemExit(f"{key}: the table has {found.assignments}, not {afresh.assignments}")
    if table.num_missed:
        raise SystemExit(f"{table.num_missed} of {len(sample)} were not found")
    return find_s, solve_s


async def _lag_s(work: Callable[[], object]) -> float:
    """Return the longest that this event loop stands still while a thread works beside it."""
    longest_s = 0.0
    async with asyncio.TaskGroup() as group:
        working = group.create_task(asyncio.to_thread(work))
        while not working.done():
            begin_s = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            longest_s = max(longest_s, time.perf_counter() - begin_s - _TICK_S)
    return longest_s


def _table(report: dict[str, Any]) -> str:
    rows = "\n".join(map(_row, report["cases"]))
    return f"""\
| tables | workers | tasks | MTBF, h | next events | all of them, s (median of {report["runs"]}) | each afresh, s | ratio | one found, ms | one solved, ms | event loop late, ms | late with nothing beside it, ms |
|---|---|---|---|---|---|---|---|---|---|---|---|
{rows}"""


def _row(case: dict[str, Any]) -> str:
    return (
        f"| {case['kind']} | {case['workers']:,} | {case['tasks']} | {case['mtbf_hours']:,.0f}"
        f" | {case['events']:,} | {case['build_s']:.2f} | {case['afresh_s']:.1f}"
        f" | {case['ratio']:.0f} | {case['find_ms']:.2f} | {case['solve_ms']:.1f}"
        f" | {case['lag_ms']:.0f} | {case['idle_lag_ms']:.0f} |"
    )


if __name__ == "__main__":
    main()
