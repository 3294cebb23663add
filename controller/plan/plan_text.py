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
        ("task", "workers", "weighted FLOP/s", "earned, FLOP", "transition, FLOP"),
        [_row(row) for row in answer["tasks"]],
        numbers=range(1, 5),
    )
    used = sum(answer["assignments"].values())
    console.print(
        f"{used} of {answer['workers']} workers assigned; weighted FLOP/s {answer['waf_before']:.4g} ->"
        f" {answer['waf_after']:.4g}; objective {answer['objective']:.6g} FLOP over"
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
    cost = answer["waiting"]
    flop, hours = cost["weighted_flop_per_min"], cost["gpu_hours_per_min"]
    costs = f"each minute of waiting costs {flop:.3g} weighted FLOP and {hours:.2f} GPU-hours"
    changes_anything = answer.get("changes_anything", True)
    lines = [f"{costs}, if faulted tasks stand still"] if changes_anything else []
    lines += [f"alternative: {_sizes(each)} {each['verdict']}" for each in answer["alternatives"]]
    lines += [
        f"with {each['factor']:g} x the {each['estimate']}: {_sizes(each)}"
        for each in answer["sensitivity"]
    ]
    if not answer["sensitivity"]:
        lines.append(
            "the plan stays the same with 0.01 to 100 x the MTBF, and with 0.01 to 100 x the transition times"
        )
    return lines


def _sizes(other: dict[str, Any]) -> str:
    return ", ".join(f"{name} {workers}" for name, workers in other["differs"].items())
