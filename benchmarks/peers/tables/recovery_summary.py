"""A summary of a campaign: medians, ranges and numbers of runs. The page and the plot need no more.

The results file holds every run and stays on the machine that made it; the summary is kept in the
repository.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from peers.runs.workload_plan import Workload
from peers.tables.results_file import Results

BASELINE: Final = "unicron/default"
_EQUAL: Final = 1e-5
"""Relative deviation up to which losses count as those of the fault-free run."""
_PER_FAULT: Final = ("next_commit_s", "caught_up_s")
_PER_RUN: Final = (
    "iteration_s",
    "total_s",
    "num_recomputed_iterations",
    "num_recomputed_micro_batches",
    "num_missing_micro_batches",
    "num_ranks_at_end",
)
_DIGITS: Final = 6
"""Digits that are kept behind the point: microseconds, so that the tables round as from the
runs."""
_MAX_LINES: Final = 6
_MAX_LINE_CHARS: Final = 200


class Range(NamedTuple):
    """Values of several runs: a list of four numbers in the file."""

    num: int
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Range":
        """Return the range of at least one value."""
        numbers = (statistics.median(values), min(values), max(values))
        return cls(len(values), *(round(number, _DIGITS) for number in numbers))


@dataclass(frozen=True, slots=True)
class FailureExample:
    """Why runs did not recover, by the example of the first such run."""

    reason: str
    last_lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Group:
    """All runs of one contender in one scenario.

    Attributes:
        contender: Its name.
        scenario: Name of the scenario.
        num_runs: How many runs were made.
        num_recovered: How many of them recovered.
        num_compared: How many recovered runs have losses that can be compared.
        num_equal: How many of these have the losses of the fault-free run.
        ranges: Figures by name. A figure without values has no range.
        ratio: Median over the rounds of the ratio to Unicron's recovery; None if it is not known.
        failure: None if every run recovered.
    """

    contender: str
    scenario: str
    num_runs: int
    num_recovered: int
    num_compared: int
    num_equal: int
    ranges: Mapping[str, Range]
    ratio: float | None
    failure: FailureExample | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A campaign: one group per contender and scenario, in the order of their first run."""

    workload: Workload
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    command: str
    dates: Sequence[str]
    settings: Mapping[str, str]
    groups: Sequence[Group]

    def find(self, contender: str, scenario: str) -> Group | None:
        """Return a group, or None if no such run was made."""
        for group in self.groups:
            if (group.contender, group.scenario) == (contender, scenario):
                return group
        return None


def summary_of(results: Results) -> Summary:
    """Return the summary of all runs of a campaign."""
    keys = dict.fromkeys((run["contender"], run["scenario"]) for run in results.runs)
    return Summary(
        workload=results.workload,
        versions=results.versions,
        machine=results.machine,
        command=results.command,
        dates=results.dates,
        settings=results.settings,
        groups=[_group(results, contender, scenario) for contender, scenario in keys],
    )


def write_summary(summary: Summary, path: Path) -> None:
    """Write the summary as JSON, one group a line."""
    data = asdict(summary)
    groups = ",\n  ".join(json.dumps(group) for group in data.pop("groups"))
    path.parent.mkdir(parents=True, exist_ok=True)
    head = json.dumps(data, indent=1).removesuffix("\n}")
    path.write_text(f'{head},\n "groups": [\n  {groups}\n ]\n}}\n')


def read_summary(path: Path) -> Summary:
    """Read a summary that ``write_summary`` wrote."""
    data: dict[str, Any] = json.loads(path.read_text())
    data["workload"] = Workload(**data["workload"])
    data["groups"] = [_read_group(group) for group in data["groups"]]
    return Summary(**data)


def _read_group(data: dict[str, Any]) -> Group:
    ranges = {name: Range(*each) for name, each in data["ranges"].items()}
    failure = FailureExample(**data["failure"]) if data["failure"] else None
    return Group(**{**data, "ranges": ranges, "failure": failure})


def _group(results: Results, contender: str, scenario: str) -> Group:
    runs = _runs(results, contender, scenario)
    done = [run["figures"] for run in runs if run["figures"]]
    deviations = [
        each["max_loss_deviation"] for each in done if each["max_loss_deviation"] is not None
    ]
    values = {name: _per_fault(done, name) for name in _PER_FAULT}
    # A results file of an older version lacks some figures.
    values |= {
        name: [each[name] for each in done if each.get(name) is not None] for name in _PER_RUN
    }
    failed = [run for run in runs if not run["figures"]]
    return Group(
        contender=contender,
        scenario=scenario,
        num_runs=len(runs),
        num_recovered=len(done),
        num_compared=len(deviations),
        num_equal=sum(each <= _EQUAL for each in deviations),
        ranges={name: Range.of(each) for name, each in values.items() if each},
        ratio=_ratio(results, contender, scenario),
        failure=_failure(failed[0]) if failed else None,
    )


def _failure(run: dict[str, Any]) -> FailureExample:
    lines = [line for line in run["log_tail"].splitlines() if line.strip()][-_MAX_LINES:]
    return FailureExample(run["reason"], [line[:_MAX_LINE_CHARS] for line in lines])


def _runs(results: Results, contender: str, scenario: str) -> list[dict[str, Any]]:
    return [r for r in results.runs if (r["contender"], r["scenario"]) == (contender, scenario)]


def _per_fault(figures: Sequence[dict[str, Any]], key: str) -> list[float]:
    return [recovery[key] for each in figures for recovery in each["recoveries"]]


def _ratio(results: Results, contender: str, scenario: str) -> float | None:
    """Return the median ratio to Unicron, each run paired with Unicron's run of the same round."""
    if contender == BASELINE:
        return 1.0
    baseline = {r["number"]: r["figures"] for r in _runs(results, BASELINE, scenario)}
    ratios = []
    for run in _runs(results, contender, scenario):
        other = baseline.get(run["number"])
        if run["figures"] and other:
            ours = _per_fault([other], "next_commit_s")
            theirs = _per_fault([run["figures"]], "next_commit_s")
            if ours and theirs:
                ratios.append(statistics.median(theirs) / statistics.median(ours))
    return statistics.median(ratios) if ratios else None
