"""Tables of a campaign, in Markdown."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from peers.runs.fault_scenarios import SCENARIOS
from peers.tables.results_file import Results

BASELINE: Final = "unicron/default"
_EQUAL: Final = 1e-5
"""Relative deviation up to which losses count as those of the fault-free run."""

_KINDS: Final = {
    "kill": ("SIGKILL of a rank", "kill"),
    "exception": ("Exception in a rank", "exception"),
    "hang": ("Hang: SIGSTOP of a rank", "hang"),
    "lost-node": ("Lost node: SIGSTOP of everything on it, no connection is closed", "lost node"),
    "killed-node": ("Killed node: SIGKILL of everything on it", "killed node"),
}
"""By kind of fault: a title, and its name in a column."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Values over runs. All fields but ``count`` are NaN without values."""

    values: Sequence[float]

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    def text(self, digits: int = 2) -> str:
        """Return median and range."""
        if not self.values:
            return "-"
        if len(self.values) == 1:
            return f"{self.values[0]:.{digits}f}"
        low, high = min(self.values), max(self.values)
        return f"**{self.median:.{digits}f}** ({low:.{digits}f}-{high:.{digits}f})"


def tables(results: Results) -> str:
    """Return everything that the page says about the campaign."""
    names = list(dict.fromkeys(run["contender"] for run in results.runs))
    parts = [_setting(results)]
    parts += [
        _recovery_table(results, names, scenario)
        for scenario in sorted(SCENARIOS[1:], key=_num_faults)
        if any(run["scenario"] == scenario for run in results.runs)
    ]
    parts += [_total_table(results, names), _settings_table(results, names)]
    if failures := _failures(results):
        parts.append(failures)
    return "\n\n".join(parts)


def _setting(results: Results) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    w = results.workload
    return (
        f"{' and '.join(results.dates)}, {results.machine['cores']} cores"
        f" ({results.machine['system']}). {versions}.\n\n"
        f"    {results.command}\n\n"
        f"{w.num_ranks} data-parallel ranks on CPU; GPT of {w.num_layers} layers, hidden size"
        f" {w.hidden_size}, sequences of {w.seq_length}; {w.num_micro_batches} micro-batches of"
        f" {w.micro_batch_size} per iteration; a checkpoint every {w.checkpoint_interval} iterations."
    )


def _recovery_table(results: Results, names: Sequence[str], scenario: str) -> str:
    num_faults = _num_faults(scenario)
    per_run = "one fault" if num_faults == 1 else f"{num_faults} faults, all counted"
    head = [
        f"### {_KINDS[_kind(scenario)][0]}, {per_run} per run",
        "",
        (
            "| | fault to next committed iteration, s | x Unicron | fault until the broken iteration is"
            " committed, s | iterations run again | micro-batches recomputed | micro-batches missing"
            " | losses as without fault | ranks at the end | not recovered |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    rows = [_recovery_row(results, name, scenario) for name in names]
    return "\n".join([*head, *(row for row in rows if row)])


def _recovery_row(results: Results, name: str, scenario: str) -> str:
    runs = _runs(results, name, scenario)
    if not runs:
        return ""
    done = [run["figures"] for run in runs if run["figures"]]
    equal = [f["max_loss_deviation"] <= _EQUAL for f in done if f["max_loss_deviation"] is not None]
    cells = [
        name,
        Sample(_per_fault(done, "next_commit_s")).text(),
        _ratio(results, name, scenario),
        Sample(_per_fault(done, "caught_up_s")).text(),
        _count(done, lambda f: f["num_recomputed_iterations"]),
        _count(done, lambda f: f["num_recomputed_micro_batches"]),
        _count(done, lambda f: f["num_missing_micro_batches"]),
        f"{sum(equal)} of {len(equal)}" if equal else "-",
        # Runs of an older benchmark don't tell.
        _count(done, lambda f: f.get("num_ranks_at_end")),
        f"{sum(not run['figures'] for run in runs)} of {len(runs)}",
    ]
    return f"| {' | '.join(cells)} |"


def _total_table(results: Results, names: Sequence[str]) -> str:
    made = {run["scenario"] for run in results.runs}
    columns = [name for name in SCENARIOS if name in made]
    titles = [_column(scenario) for scenario in columns]
    head = [
        f"### From the command to iteration {results.workload.num_iterations}, s",
        "",
        f"| | one iteration | {' | '.join(titles)} |",
        f"|---{'|---' * (len(titles) + 1)}|",
    ]
    rows = []
    for name in names:
        usual = [f["iteration_s"] for f in _figures(results, name, "none")]
        cells = [name, Sample(usual).text()]
        cells += [
            Sample([f["total_s"] for f in _figures(results, name, scenario)]).text(1)
            for scenario in columns
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([*head, *rows])


def _kind(scenario: str) -> str:
    return scenario.rpartition("-")[0]


def _num_faults(scenario: str) -> int:
    return int(scenario.rpartition("-")[2])


def _column(scenario: str) -> str:
    if scenario == "none":
        return "no fault"
    number, what = _num_faults(scenario), _KINDS[_kind(scenario)][1]
    return f"{number} {what}{'s' if number > 1 else ''}"


def _settings_table(results: Results, names: Sequence[str]) -> str:
    rows = [f"| {name} | {results.settings.get(name, '')} |" for name in names]
    return "\n".join(["### Settings", "", "| | |", "|---|---|", *rows])


def _failures(results: Results) -> str:
    """Return one example of each way in which runs failed."""
    seen: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in results.runs:
        if not run["figures"]:
            seen.setdefault((run["contender"], run["scenario"]), []).append(run)
    if not seen:
        return ""
    parts = ["### What did not recover"]
    for (name, scenario), runs in seen.items():
        lines = [line for line in runs[0]["log_tail"].splitlines() if line.strip()][-6:]
        quoted = "\n".join(f"    {line[:200]}" for line in lines)
        last_words = f"The last it said:\n\n{quoted}" if lines else "It said nothing."
        parts.append(
            f"{name}, {scenario}, {len(runs)} run{'s' if len(runs) > 1 else ''}:"
            f" {runs[0]['reason']}. {last_words}"
        )
    return "\n\n".join(parts)


def _runs(results: Results, name: str, scenario: str) -> list[dict[str, Any]]:
    return [r for r in results.runs if (r["contender"], r["scenario"]) == (name, scenario)]


def _figures(results: Results, name: str, scenario: str) -> list[dict[str, Any]]:
    return [run["figures"] for run in _runs(results, name, scenario) if run["figures"]]


def _per_fault(figures: Sequence[dict[str, Any]], key: str) -> list[float]:
    return [recovery[key] for each in figures for recovery in each["recoveries"]]


def _count(figures: Sequence[dict[str, Any]], get: Callable[[dict[str, Any]], int | None]) -> str:
    """Return the median count of a run, with the range where runs differ."""
    values = [value for each in figures if (value := get(each)) is not None]
    if not values:
        return "-"
    low, high, median = min(values), max(values), statistics.median(values)
    return f"{median:g}" if low == high else f"{median:g} ({low}-{high})"


def _ratio(results: Results, name: str, scenario: str) -> str:
    """Return the median ratio to Unicron, each run paired with Unicron's of the same round."""
    if name == BASELINE:
        return "1"
    baseline = {r["number"]: r["figures"] for r in _runs(results, BASELINE, scenario)}
    ratios = []
    for run in _runs(results, name, scenario):
        other = baseline.get(run["number"])
        if run["figures"] and other:
            ours, theirs = (
                _per_fault([other], "next_commit_s"),
                _per_fault([run["figures"]], "next_commit_s"),
            )
            if ours and theirs:
                ratios.append(statistics.median(theirs) / statistics.median(ours))
    return f"{statistics.median(ratios):.1f}" if ratios else "-"
