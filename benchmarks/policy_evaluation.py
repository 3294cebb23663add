"""Evaluates policies on the shipped scenarios, and the inputs of the two paper traces.

    python benchmarks/policy_evaluation.py [--seeds N] [--write-docs]

Every scenario is run with all policies. Then trace-a and trace-b are run again with one input
changed at a time: the repair law, the timeouts, the tasks, the standby nodes, the recovery times
of Unicron. Nothing is chosen for what comes out.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from harness.result_pages import (
    ROOT,
    command_line,
    machine,
    machine_line,
    write_results,
    write_section,
)
from harness.termination import end_on_sigterm

from controller.simulation.policies.baselines import BASELINES
from controller.simulation.policies.comparison import (
    POLICIES,
    UNICRON,
    Campaign,
    prepared,
    run_campaign,
)
from controller.simulation.report.comparison_text import as_json
from controller.simulation.scenarios.duration_laws import Constant, Exponential, Law, Uniform
from controller.simulation.scenarios.scenario import Scenario, ScenarioTask
from controller.simulation.scenarios.scenario_file import load_scenario, shipped

_NAME = "policy_evaluation"
_PAGE = ROOT / "docs" / "evaluation.md"
_TRACES = ("trace-a", "trace-b")
_FEW = (UNICRON, "megatron", "megatron-standby", "megatron-elastic", "oobleck", "varuna", "bamboo")
_LARGE = {"byterobust-9600", "llama3-54d", "stepfun"}


def variations(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    """Yield the scenario with one input changed at a time."""
    yield "as shipped", scenario
    hour = 3600.0
    for text, law in (
        ("repair in 1 h", _constant(hour)),
        ("repair in 6 h", _constant(6 * hour)),
        ("repair in 12 to 48 h", Uniform(law="uniform", low_s=12 * hour, high_s=48 * hour)),
        ("repair in 3 days", _constant(72 * hour)),
        ("repair: exponential, mean 5.5 days", Exponential(law="exponential", mean_s=5.5 * 86400)),
    ):
        yield text, _with(scenario, repair=law)
    baselines = scenario.values.baselines
    short = baselines.model_copy(update={"timeout": _constant(600.0)})
    yield "collectives time out after 10 min", _with(scenario, baselines=short)
    quick = baselines.model_copy(update={"resubmit": _constant(60.0), "setup": _constant(60.0)})
    yield "Megatron is submitted and set up in 2 min", _with(scenario, baselines=quick)
    steps = scenario.values.steps
    slow = steps.model_copy(
        update={name: _constant(300.0) for name in ("regroup", "restart", "start", "disk")}
    )
    yield "Unicron's steps take 5 min each", _with(scenario, steps=slow)
    yield "two standby nodes", _with(scenario, standby_nodes=2)
    one = [ScenarioTask(name="gpt3-13b", model="gpt3-13b", global_batch=1024)]
    yield "one task of 13B on all nodes", _with(scenario, tasks=one)
    two = [
        ScenarioTask(name="gpt3-70b", model="gpt3-70b", global_batch=1536),
        ScenarioTask(name="gpt3-7b", model="gpt3-7b", global_batch=1024),
    ]
    yield "one task of 70B, one of 7B", _with(scenario, tasks=two)


def _constant(seconds: float) -> Law:
    return Constant(law="constant", s=seconds)


def _with(scenario: Scenario, **changes: Any) -> Scenario:  # noqa: ANN401 - values of a scenario
    values = scenario.values.model_copy(update=changes)
    return scenario.model_copy(update={"values": values})


def main() -> None:
    """Run everything and print it."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="(default 20)")
    parser.add_argument("--large-seeds", type=int, default=2, metavar="N", help="(default 2)")
    parser.add_argument("--write-docs", action="store_true", help=f"update {_PAGE.name}")
    arguments = parser.parse_args()
    found = []
    for name in shipped():
        num_seeds = arguments.large_seeds if name in _LARGE else arguments.seeds
        found.append(_measure(load_scenario(name), POLICIES, num_seeds, "as shipped"))
    sensitivities = [
        _measure(changed, _FEW, arguments.seeds, text)
        for name in _TRACES
        for text, changed in variations(load_scenario(name))
    ]
    report = {
        **machine(),
        "command": command_line(),
        "scenarios": found,
        "sensitivities": sensitivities,
    }
    json.dump(report, sys.stdout, indent=1)
    sys.stdout.write("\n")
    if arguments.write_docs:
        write_results(_NAME, report)
        write_section(_PAGE, _NAME, _section(report))


def _measure(
    scenario: Scenario, policies: tuple[str, ...], num_seeds: int, change: str
) -> dict[str, Any]:
    begin_s = time.perf_counter()
    campaign: Campaign = run_campaign(prepared(scenario), policies, num_seeds)
    took_s = time.perf_counter() - begin_s
    sys.stderr.write(f"{scenario.name}, {change}: {took_s:.1f} s\n")
    answer = as_json(campaign)
    ours = answer["policies"][UNICRON]
    kept = {key: answer[key] for key in ("scenario", "seeds", "ratios")}
    return {
        **kept,
        "change": change,
        "took_s": round(took_s, 1),
        "availability": ours["availability"]["mean"],
        "gpu_hours": ours["gpu_hours"],
    }


def _section(report: dict[str, Any]) -> str:
    names = list(BASELINES)
    scenarios = "\n".join(_scenario_row(each, names) for each in report["scenarios"])
    hours = "\n".join(_hours_row(each) for each in report["scenarios"])
    changes = "\n".join(
        _scenario_row(each, list(_FEW[1:]), change=True) for each in report["sensitivities"]
    )
    return f"""\
{machine_line(report)}

    {report["command"]}

### Accumulated WAF of Unicron over each policy

Mean over seeds, in brackets the 95 % confidence interval where there is more than one seed.

| scenario | seeds | {" | ".join(names)} | availability of Unicron | s |
|---|---|{"---|" * len(names)}---|---|
{scenarios}

### Where Unicron's GPU-hours go, per cent

| scenario | training | detection | transition | recomputation | manual | slow | waiting | repair |
|---|---|---|---|---|---|---|---|---|
{hours}

### What the ratios depend on

One input changed at a time.

| trace | change | {" | ".join(_FEW[1:])} |
|---|---|{"---|" * len(_FEW[1:])}
{changes}"""


def _scenario_row(each: dict[str, Any], names: list[str], *, change: bool = False) -> str:
    cells = []
    for name in names:
        ratio = each["ratios"].get(name)
        if ratio is None:
            cells.append("no training")
        elif each["seeds"] == 1 or ratio["high"] - ratio["low"] < 0.005:
            cells.append(f"{ratio['mean']:.2f}")
        else:
            cells.append(f"{ratio['mean']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})")
    if change:
        return f"| {each['scenario']} | {each['change']} | {' | '.join(cells)} |"
    availability = 100 * each["availability"]
    return (
        f"| {each['scenario']} | {each['seeds']} | {' | '.join(cells)} | {availability:.2f} % |"
        f" {each['took_s']} |"
    )


def _hours_row(each: dict[str, Any]) -> str:
    hours = each["gpu_hours"]
    total = sum(hours.values())
    shares = " | ".join(f"{100 * hours[name] / total:.3f}" for name in hours)
    return f"| {each['scenario']} | {shares} |"


if __name__ == "__main__":
    main()
