"""Draws a campaign: every recovery as a dot, by contender. Needs matplotlib.

python -m peers.tables.recovery_plot RESULTS.json PLOT.svg
"""

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt, ticker

from peers.tables.results_file import read_results

_STYLES = {
    "kill": ("#b2182b", "o"),
    "exception": ("#2166ac", "s"),
    "hang": ("#762a83", "D"),
    "lost-node": ("#1b7837", "^"),
    "killed-node": ("#bf812d", "v"),
}
"""By kind of fault: colour and marker."""


def main() -> None:
    """Read the results and write the plot."""
    results, target = read_results(Path(sys.argv[1])), Path(sys.argv[2])
    names = list(dict.fromkeys(run["contender"] for run in results.runs))
    mpl.rcParams["svg.hashsalt"] = "recovery"  # equal results give an equal file
    mpl.rcParams["svg.fonttype"] = "none"
    figure, axes = plt.subplots(figsize=(8, 0.5 * len(names) + 1.3), layout="constrained")
    for number, (kind, (colour, marker)) in enumerate(_STYLES.items()):
        offset = 0.15 * (number - (len(_STYLES) - 1) / 2)
        points = [
            (recovery["next_commit_s"], names.index(run["contender"]) + offset)
            for run in results.runs
            if run["figures"] and run["scenario"].rpartition("-")[0] == kind
            for recovery in run["figures"]["recoveries"]
        ]
        if not points:
            continue
        axes.scatter(
            [x for x, _ in points],
            [y for _, y in points],
            s=22,
            alpha=0.6,
            color=colour,
            marker=marker,
            linewidths=0,
            label=kind,
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.set_xlabel("seconds from the fault to the next committed iteration")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(axis="x", which="both", alpha=0.25)
    axes.legend(loc="upper right", frameon=False)
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
