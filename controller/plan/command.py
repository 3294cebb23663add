"""``unicron plan solve``: the best division of workers for a problem in a file."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from controller.core.cost import PlanTask, earned, forgone
from controller.core.planner import Decision, solve
from controller.plan.problem_file import Problem, ProblemError, load_problem

_EPILOG = """\
PROBLEM.json, times in seconds unless their name says hours:

  {"workers": 128, "worker_mtbf_hours": 2000, "running_s": null,
   "tasks": [{"name": "gpt3-7b", "weight": 1.0, "workers": 32, "faulted": false,
              "min_workers": 8, "transition_s": 45,
              "throughput": {"8": 1.1e15, "16": 2.1e15, "32": 4.0e15}}]}

"workers" of a task is its size before the event, also while it runs on survivors. Sizes that are not
in "throughput" can't be used; size 0 (stopped) always can. A task that changes its size, or is
faulted, pays what it would have done during "transition_s"; one that did not run starts free of
charge, which is the paper's rule.

examples:
  unicron plan solve problem.json
  unicron plan solve problem.json --json --runner-up
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron plan``."""
    what = parser.add_subparsers(dest="what", required=True, metavar="solve")
    solving = what.add_parser(
        "solve",
        help="divide workers over tasks, exactly",
        description="Print the division of workers over tasks that maximises the weighted FLOP until the"
        " next fault, transitions paid. The answer is exact, at any size.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    solving.add_argument("problem", type=Path, metavar="PROBLEM.json")
    solving.add_argument("--json", action="store_true", help="print one JSON object")
    solving.add_argument(
        "--runner-up",
        action="store_true",
        help="find the second best too, and say why it is not the best; takes longer",
    )


def run(arguments: argparse.Namespace) -> int:
    """Solve and print; return 0, or 2 where the problem is wrong."""
    try:
        problem = load_problem(arguments.problem)
    except ProblemError as error:
        sys.stderr.write(f"unicron plan: {error}\n")
        return 2
    tasks = problem.plan_tasks
    begin_s = time.perf_counter()
    decision = solve(
        tasks,
        num_workers=problem.workers,
        running_s=problem.horizon_s,
        has_runner_up=arguments.runner_up,
    )
    answer = as_json(problem, tasks, decision, time.perf_counter() - begin_s)
    if arguments.json:
        sys.stdout.write(f"{json.dumps(answer)}\n")
    else:
        _print(answer)
    return 0


def as_json(
    problem: Problem, tasks: list[PlanTask], decision: Decision, solve_s: float
) -> dict[str, Any]:
    """Return the answer for programs; FLOP/s, FLOP and seconds."""
    running_s = problem.horizon_s
    answer: dict[str, Any] = {
        "objective": decision.objective,
        "waf_before": decision.waf_before,
        "waf_after": decision.waf_after,
        "workers": problem.workers,
        "running_s": running_s,
        "assignments": dict(decision.assignments),
        "tasks": [
            _terms(task, decision.assignments[task.name], running_s)
            for task in sorted(tasks, key=lambda task: task.name)
        ],
        "why": decision.why,
        "solve_s": solve_s,
    }
    if second := decision.runner_up:
        answer["runner_up"] = {
            "objective": second.objective,
            "waf_after": second.waf,
            "assignments": dict(second.assignments),
        }
    return answer


def _terms(task: PlanTask, workers: int, running_s: float) -> dict[str, Any]:
    return {
        "name": task.name,
        "workers_before": task.workers,
        "workers": workers,
        "faulted": task.is_faulted,
        "waf_before": task.waf(task.workers),
        "waf_after": task.waf(workers),
        "earned": earned(task, workers, running_s),
        "forgone": forgone(task, workers),
    }


def _print(answer: dict[str, Any]) -> None:
    console = Console()
    table = Table("task", "workers", "weighted FLOP/s", "earned, FLOP", "transition, FLOP")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in answer["tasks"]:
        before, after = row["workers_before"], row["workers"]
        table.add_row(
            row["name"] + (" (faulted)" if row["faulted"] else ""),
            f"{after}" if before == after else f"{before} -> {after}",
            f"{row['waf_after']:.4g}",
            f"{row['earned']:.4g}",
            f"-{row['forgone']:.4g}" if row["forgone"] else "0",
        )
    console.print(table)
    used = sum(answer["assignments"].values())
    console.print(
        f"{used} of {answer['workers']} workers given; weighted FLOP/s {answer['waf_before']:.4g} ->"
        f" {answer['waf_after']:.4g}; objective {answer['objective']:.6g} FLOP over"
        f" {answer['running_s']:.4g} s; solved in {1000 * answer['solve_s']:.1f} ms",
        highlight=False,
    )
    console.print(answer["why"], highlight=False, markup=False)
