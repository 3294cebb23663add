"""Tables of a campaign, in Markdown."""

from collections.abc import Sequence
from typing import Final

from peers.runs.fault_scenarios import SCENARIOS
from peers.tables.recovery_summary import BASELINE, Group, Range, Summary

_KINDS: Final = {
    "kill": ("SIGKILL of a rank", "kill"),
    "exception": ("Exception in a rank", "exception"),
    "hang": ("Hang: SIGSTOP of a rank", "hang"),
    "lost-node": ("Lost node: SIGSTOP of everything on it, no connection is closed", "lost node"),
    "killed-node": ("Killed node: SIGKILL of everything on it", "killed node"),
}
"""By kind of fault: a title, and its name in a column."""


def tables(summary: Summary) -> str:
    """Return everything that the page says about the campaign."""
    names = list(dict.fromkeys(group.contender for group in summary.groups))
    made = {group.scenario for group in summary.groups}
    parts = [_setting(summary)]
    parts += [
        _recovery_table(summary, names, scenario)
        for scenario in sorted(SCENARIOS[1:], key=_num_faults)
        if scenario in made
    ]
    parts += [_total_table(summary, names), _settings_table(summary, names)]
    if failures := _failures(summary):
        parts.append(failures)
    return "\n\n".join(parts)


def _setting(summary: Summary) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in summary.versions.items())
    w = summary.workload
    return (
        f"{' and '.join(summary.dates)}, {summary.machine['cores']} cores"
        f" ({summary.machine['system']}). {versions}.\n\n"
        f"    {summary.command}\n\n"
        f"{w.num_ranks} data-parallel ranks on CPU; GPT of {w.num_layers} layers, hidden size"
        f" {w.hidden_size}, sequences of {w.seq_length}; {w.num_micro_batches} micro-batches of"
        f" {w.micro_batch_size} per iteration; a checkpoint every {w.checkpoint_interval} iterations."
    )


def _recovery_table(summary: Summary, names: Sequence[str], scenario: str) -> str:
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
    groups = [summary.find(name, scenario) for name in names]
    return "\n".join([*head, *(_recovery_row(group) for group in groups if group is not None)])


def _recovery_row(group: Group) -> str:
    cells = [
        group.contender,
        _seconds(group, "next_commit_s"),
        _ratio(group),
        _seconds(group, "caught_up_s"),
        _count(group.ranges.get("num_recomputed_iterations")),
        _count(group.ranges.get("num_recomputed_micro_batches")),
        _count(group.ranges.get("num_missing_micro_batches")),
        f"{group.num_equal} of {group.num_compared}" if group.num_compared else "-",
        _count(group.ranges.get("num_ranks_at_end")),
        f"{group.num_runs - group.num_recovered} of {group.num_runs}",
    ]
    return f"| {' | '.join(cells)} |"


def _total_table(summary: Summary, names: Sequence[str]) -> str:
    made = {group.scenario for group in summary.groups}
    columns = [name for name in SCENARIOS if name in made]
    titles = [_column(scenario) for scenario in columns]
    head = [
        f"### From the command to iteration {summary.workload.num_iterations}, s",
        "",
        f"| | one iteration | {' | '.join(titles)} |",
        f"|---{'|---' * (len(titles) + 1)}|",
    ]
    rows = []
    for name in names:
        cells = [name, _seconds(summary.find(name, "none"), "iteration_s")]
        cells += [_seconds(summary.find(name, each), "total_s", digits=1) for each in columns]
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


def _settings_table(summary: Summary, names: Sequence[str]) -> str:
    rows = [f"| {name} | {summary.settings.get(name, '')} |" for name in names]
    return "\n".join(["### Settings", "", "| | |", "|---|---|", *rows])


def _failures(summary: Summary) -> str:
    """Return one example of each way in which runs failed."""
    parts = []
    for group in summary.groups:
        if group.failure is None:
            continue
        quoted = "\n".join(f"    {line}" for line in group.failure.last_lines)
        log = f"The end of its log:\n\n{quoted}" if quoted else "Its log is empty."
        number = group.num_runs - group.num_recovered
        parts.append(
            f"{group.contender}, {group.scenario}, {number} run{'s' if number > 1 else ''}:"
            f" {group.failure.reason}. {log}"
        )
    return "\n\n".join(["### What did not recover", *parts]) if parts else ""


def _seconds(group: Group | None, name: str, *, digits: int = 2) -> str:
    """Return median and range of a figure; a single value alone."""
    found = group.ranges.get(name) if group else None
    if found is None:
        return "-"
    if found.num == 1:
        return f"{found.median:.{digits}f}"
    return f"**{found.median:.{digits}f}** ({found.low:.{digits}f}-{found.high:.{digits}f})"


def _count(found: Range | None) -> str:
    """Return the median count of a run, with the range where runs differ."""
    if found is None:
        return "-"
    if found.low == found.high:
        return f"{found.median:g}"
    return f"{found.median:g} ({found.low}-{found.high})"


def _ratio(group: Group) -> str:
    if group.contender == BASELINE:
        return "1"
    return "-" if group.ratio is None else f"{group.ratio:.1f}"
