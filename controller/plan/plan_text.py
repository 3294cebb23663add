"""Prints the answer of ``unicron plan`` for people, and explains it."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from controller.core.rules.planner.cost import Problem
from controller.core.rules.planner.explanation import explain
from controller.printing import plain_console, print_table
from nodeagent.protocol.ids import TaskId


def explanation_of(problem: Problem, assignments: Mapping[TaskId, int]) -> dict[str, Any]:
    """Return the keys that ``--explain`` adds to an answer."""
    explanation = asdict(explain(problem, assignments))
    del explanation["terms"]  # every answer has them
    return explanation


def print_answer(answer: dict[str, Any]) -> None:
    """Print the division, its terms, and the explanation if there is one."""
    console = plain_console()
    print_table(
        console,
        ("task", "workers", "WAF, FLOP/s", "earned, FLOP", "transition, FLOP"),
        [_row(row) for row in answer["tasks"]],
        numbers=range(1, 5),
    )
    used = sum(answer["assignments"].values())
    console.print(
        f"{used} of {answer['workers']} workers assigned; WAF {answer['waf_before']:.4g} ->"
        f" {answer['waf_after']:.4g} FLOP/s; objective {answer['objective']:.6g} FLOP over"
        f" {answer['running_s']:.4g} s; solved in {1000 * answer['solve_s']:.1f} ms"
    )
    console.print(answer["why"])
    for line in _explained(answer):
        console.print(line)


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    before, after = row["workers_before"], row["workers"]
    return (
        row["name"] + (" (faulted)" if row["faulted"] else ""),
        f"{after}" if before == after else f"{before} -> {after}",
        f"{row['waf_after']:.4g}",
        f"{row['earned']:.4g}",
        f"-{row['forgone']:.4g}" if row["forgone"] else "0",
    )


def _explained(answer: dict[str, Any]) -> list[str]:
    if "waiting" not in answer:
        return []
    lines = [_waiting_cost(answer)] if answer.get("changes_anything", True) else []
    lines += [f"alternative: {_sizes(each)} {each['verdict']}" for each in answer["alternatives"]]
    if answer["floors"]:
        lines.append(answer["floors"]["verdict"])
    lines += [
        f"with {each['factor']:g} x the {each['estimate']}: {_sizes(each)}"
        for each in answer["sensitivity"]
    ]
    if not answer["sensitivity"]:
        lines.append(
            "the plan stays the same with 0.01 to 100 x the MTBF, and with 0.01 to 100 x the transition times"
        )
    return lines


def _waiting_cost(answer: dict[str, Any]) -> str:
    """Return the price of a minute of waiting, in the unit of the console's plan panel.

    The unit is the mean WAF of one GPU in the full cluster. The answer has the division before the
    event and the division of the plan. The one with more WAF counts as the full cluster, so that
    tasks that start now have a price too.
    """
    lost = answer["waiting"]["weighted_flop_per_min"] / 60.0
    if lost == 0.0:
        return "waiting costs no throughput"
    num_before = sum(row["workers_before"] for row in answer["tasks"])
    before = answer["waf_before"], num_before
    after = answer["waf_after"], sum(answer["assignments"].values())
    full, num_gpus = max(before, after)
    share = lost / full
    return (
        f"each minute of waiting costs {_gpu_minutes(share * num_gpus)} ({100 * share:.0f}% of the"
        " cluster), if faulted tasks stand still"
    )


def _gpu_minutes(value: float) -> str:
    if value < 0.05:
        return "under 0.1 GPU-minutes"
    return f"{value:.1f} GPU-minutes" if value < 99.95 else f"{value:,.0f} GPU-minutes"


def _sizes(other: dict[str, Any]) -> str:
    return ", ".join(f"{name} {workers}" for name, workers in other["differs"].items())
