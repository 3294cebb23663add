"""Measures how long faults go unseen, on the demo's cluster, and prints one JSON object.

    python benchmarks/detection_times.py [--drills N] [--beside-no-gathering] [--write-docs]

Each kind of fault is drilled N times, one after the other, on a running cluster (four nodes behind
SSH servers, two tasks, eight ranks); before each drill every task trains at its full size. Measured
is the time from the order to break something to the first evidence that the controller takes in.
For what strikes at the next micro-batch that includes the wait for it. The iterations of the demo
last 0.4 s at least (``iteration_floor_s``), and a hang is one that lasts three times the average.

``--beside-no-gathering`` asks what it costs that nodes which are lost within a moment share one
plan (``controller.core.nodes.bursts``). A second cluster has ``burst_s = 0``: it plans for each
loss at once. The two take turns of a few drills. Compared is the time from the first evidence until
the task trains again, since nothing is gathered before.

These are measurements of one machine at one time, not limits.
"""

import argparse
import asyncio
import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from harness.result_pages import (
    MEASUREMENTS,
    command_line,
    machine,
    machine_line,
    write_results,
    write_section,
)
from harness.termination import end_on_sigterm

from controller.demo.demo_options import DemoOptions
from controller.drill_matrix.drill_options import choose_drills, cluster_options
from controller.drill_matrix.drill_runs import MatrixRun
from profiles.drills.drill import Drill

_NAME: Final = "detection_times"
_COMPARED: Final = "gathering_times"
_PAPER: Final = {
    "kill-rank": "1.8 s",
    "exception": "0.3 s",
    "lose-node": "5.6 s",
    "freeze-node": "5.6 s",
    "freeze-rank": "3 x an iteration",
    "hang-collective": "3 x an iteration",
}
_TURN: Final = 4
"""Drills of each kind after which the other cluster has its turn."""
_HANGS: Final = ("freeze-rank", "hang-collective")
_LIMIT_S: Final = {"kill-rank": 0.2, "exception": 0.2, "lose-node": 3.0, "freeze-node": 3.0}
"""What the medians are to stay below; of a hang 3 x the average iteration and 0.5 s."""
_MEANING: Final = {
    "kill-rank": "process death (SIGKILL)",
    "exception": "exception in a rank",
    "lose-node": "lost node whose port refuses",
    "freeze-node": "lost node that answers nothing",
    "freeze-rank": "hang: a stopped rank",
    "hang-collective": "hang: a rank that does not enter the collective",
}


@dataclass
class Samples:
    """What was measured of one kind of drill, seconds."""

    detection_s: list[float] = field(default_factory=list)
    average_s: list[float] = field(default_factory=list)
    """Of the iterations of the task that was hit."""
    recovery_s: list[float] = field(default_factory=list)
    reaction_s: list[float] = field(default_factory=list)
    """From the first evidence until the task trains again."""
    num_unseen: int = 0
    num_wrong: int = 0


def main() -> int:
    """Run the drills, print the figures, and return the exit code."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--drills", type=int, default=20, metavar="N", help="of each (default 20)")
    parser.add_argument("--only", nargs="+", default=[], metavar="KIND", choices=list(_PAPER))
    parser.add_argument(
        "--beside-no-gathering", action="store_true", help="compare recoveries with burst_s = 0"
    )
    parser.add_argument("--write-docs", action="store_true", help=f"update {MEASUREMENTS.name}")
    arguments = parser.parse_args()
    drills = [
        drill
        for drill in choose_drills(arguments.only or list(_PAPER))
        if drill.kind in (arguments.only or _PAPER)
    ]
    if arguments.beside_no_gathering:
        return _compare(drills, arguments.drills, writes_docs=arguments.write_docs)
    samples = {drill.kind: Samples() for drill in drills}
    asyncio.run(measure(drills, arguments.drills, cluster_options(), samples))
    report = {
        "machine": machine(),
        "kinds": {kind: _figures(kind, each) for kind, each in samples.items()},
    }
    json.dump(report, sys.stdout, indent=2)
    sys.stdout.write("\n")
    if arguments.write_docs:
        write_results(_NAME, report)
        write_section(MEASUREMENTS, _NAME, _section(report))
    return 0


async def measure(
    drills: list[Drill], num: int, options: DemoOptions, samples: dict[str, Samples]
) -> None:
    """Run every drill ``num`` times, in turns, so that all meet the same machine.

    Args:
        drills: What is drilled.
        num: How often.
        options: The cluster.
        samples: What was measured is added to these, by kind.
    """
    matrix = MatrixRun(options, math.inf, _say)
    await matrix.run(drills * num)
    for row in matrix.rows:
        of_kind, observed = samples[row.drill.kind], row.observed
        of_kind.num_wrong += not row.agrees
        if observed.detection_s is None:
            of_kind.num_unseen += 1
            continue
        of_kind.detection_s.append(observed.detection_s)
        if row.average_s is not None:
            of_kind.average_s.append(row.average_s)
        if observed.recovery_s is not None:
            of_kind.recovery_s.append(observed.recovery_s)
            of_kind.reaction_s.append(observed.recovery_s - observed.detection_s)


def _compare(drills: list[Drill], num: int, *, writes_docs: bool) -> int:
    usual = cluster_options()
    clusters = {
        "gathers": usual,
        "plans_at_once": replace(usual, policy=replace(usual.policy, burst_s=0.0)),
    }
    samples = {name: {drill.kind: Samples() for drill in drills} for name in clusters}
    for begin in range(0, num, _TURN):
        for name, options in clusters.items():
            asyncio.run(measure(drills, min(_TURN, num - begin), options, samples[name]))
    report = {
        "machine": machine(),
        "clusters": {
            name: {kind: _figures(kind, each) for kind, each in of_name.items()}
            for name, of_name in samples.items()
        },
    }
    json.dump(report, sys.stdout, indent=2)
    sys.stdout.write("\n")
    if writes_docs:
        write_results(_COMPARED, report)
        write_section(MEASUREMENTS, _COMPARED, _comparison(report), script=_NAME)
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _figures(kind: str, samples: Samples) -> dict[str, Any]:
    found = sorted(samples.detection_s)
    average_s = statistics.median(samples.average_s) if samples.average_s else None
    limit_s = _LIMIT_S.get(kind)
    if kind in _HANGS and average_s is not None:
        limit_s = round(3 * average_s + 0.5, 3)
    return {
        "detection_s": [round(each, 3) for each in found],
        "average_iteration_s": average_s and round(average_s, 3),
        "limit_s": limit_s,
        "median_s": round(statistics.median(found), 3) if found else None,
        "p90_s": round(found[int(0.9 * (len(found) - 1))], 3) if found else None,
        "worst_s": round(found[-1], 3) if found else None,
        "recovery_median_s": round(statistics.median(samples.recovery_s), 3)
        if samples.recovery_s
        else None,
        "reaction_median_s": round(statistics.median(samples.reaction_s), 3)
        if samples.reaction_s
        else None,
        "num": len(found) + samples.num_unseen,
        "num_unseen": samples.num_unseen,
        "num_wrong": samples.num_wrong,
    }


_HEADS: Final = (
    *("fault", "detected after: median", "limit", "p90", "worst", "the paper"),
    *("recovered, median", "unseen", "named wrongly"),
)
_HEADS_COMPARED: Final = (
    *(
        "fault",
        "recovered: plans at once",
        "gathers",
        "from the first evidence: at once",
        "gathers",
    ),
    *("difference", "drills of each"),
)


def _section(report: dict[str, Any]) -> str:
    rows = []
    for kind, each in report["kinds"].items():
        median, *times = (
            _seconds(each[f"{name}_s"]) for name in ("median", "limit", "p90", "worst")
        )
        rows.append(
            (
                *(_MEANING[kind], f"**{median}**", *times, _PAPER[kind]),
                _seconds(each["recovery_median_s"]),
                *(f"{each[name]} of {each['num']}" for name in ("num_unseen", "num_wrong")),
            )
        )
    return _page(report, _HEADS, rows)


def _comparison(report: dict[str, Any]) -> str:
    """Return the table: gathering begins with the first evidence, so that is compared."""
    rows = []
    for kind, gathers in report["clusters"]["gathers"].items():
        at_once = report["clusters"]["plans_at_once"][kind]
        recovered = [each["recovery_median_s"] for each in (at_once, gathers)]
        before_s, after_s = (each["reaction_median_s"] for each in (at_once, gathers))
        is_known = before_s is not None and after_s is not None
        rows.append(
            (
                *(_MEANING[kind], *(_seconds(each, 3) for each in (*recovered, before_s, after_s))),
                f"{1000 * (after_s - before_s):+.0f} ms" if is_known else "-",
                f"{at_once['num']}, {gathers['num']}",
            )
        )
    return _page(report, _HEADS_COMPARED, rows)


def _seconds(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f} s"


def _page(report: dict[str, Any], heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (heads, *rows)]
    lines.insert(1, f"|{'---|' * len(heads)}")
    return "\n".join([machine_line(report["machine"]), "", f"    {command_line()}", "", *lines])


if __name__ == "__main__":
    sys.exit(main())
