"""Draws a campaign: median and range of the recoveries, by contender. Needs matplotlib.

python -m peers.tables.recovery_plot SUMMARY.json PLOT.svg
"""

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt, ticker

from peers.tables.recovery_summary import read_summary

_STYLES = {
    "kill": ("#b2182b", "o"),
    "exception": ("#2166ac", "s"),
    "hang": ("#762a83", "D"),
    "lost-node": ("#1b7837", "^"),
    "killed-node": ("#bf812d", "v"),
}
"""By kind of fault: colour and marker. Scenarios with several faults have white marks."""


def main() -> None:
    """Read the summary and write the plot."""
    summary, target = read_summary(Path(sys.argv[1])), Path(sys.argv[2])
    names = list(dict.fromkeys(group.contender for group in summary.groups))
    made = {group.scenario for group in summary.groups if "next_commit_s" in group.ranges}
    scenarios = sorted(made, key=lambda name: (list(_STYLES).index(_kind(name)), name))
    mpl.rcParams["svg.hashsalt"] = "recovery"  # equal results give an equal file
    mpl.rcParams["svg.fonttype"] = "none"
    figure, axes = plt.subplots(figsize=(8, 0.55 * len(names) + 1.3), layout="constrained")
    for number, scenario in enumerate(scenarios):
        colour, marker = _STYLES[_kind(scenario)]
        offset = 0.13 * (number - (len(scenarios) - 1) / 2)
        groups = [g for g in summary.groups if g.scenario == scenario and g.ranges]
        found = [(group.contender, group.ranges["next_commit_s"]) for group in groups]
        axes.errorbar(
            [each.median for _, each in found],
            [names.index(name) + offset for name, _ in found],
            xerr=[
                [each.median - each.low for _, each in found],
                [each.high - each.median for _, each in found],
            ],
            fmt=marker,
            markersize=5,
            markerfacecolor=colour if scenario.endswith("-1") else "white",
            color=colour,
            elinewidth=1,
            label=scenario,
        )
    axes.set_xscale("log")
    axes.set_xlim(left=0.1)  # a range that begins at a commit that was on its way ends at the axis
    axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.set_xlabel("seconds from the fault to the next committed iteration: median and range")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(axis="x", which="both", alpha=0.25)
    figure.legend(loc="outside upper center", ncols=len(scenarios), frameon=False)
    figure.savefig(target, metadata={"Date": None})


def _kind(scenario: str) -> str:
    return scenario.rpartition("-")[0]


if __name__ == "__main__":
    main()
