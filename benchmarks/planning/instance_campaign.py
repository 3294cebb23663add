"""Runs a measurement over all kinds of instances, clusters and MTBFs, and reports what it found."""

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable
from typing import Any, Final, get_args

from harness.result_pages import (
    MEASUREMENTS,
    command_line,
    machine,
    machine_line,
    write_results,
    write_section,
)
from harness.termination import end_on_sigterm

from planning.planner_instances import Kind

_MTBFS_HOURS: Final = (2_000.0, 50_000.0)

Cluster = tuple[int, int, int]
"""Workers, workers of the smallest part that is given away, tasks."""


def run_campaign(
    name: str,
    parser: argparse.ArgumentParser,
    clusters: tuple[Cluster, ...],
    measure: Callable[[Kind, Cluster, float, argparse.Namespace], dict[str, Any]],
    table: Callable[[dict[str, Any]], str],
) -> None:
    """Measure every case in a process of its own; print the results, and write them if asked.

    Args:
        name: Of the program, its file of results and its section of the page.
        parser: With the program's own options; ``--runs`` is one of them.
        clusters: What to measure.
        measure: Kind, cluster, MTBF (hours) and options to the figures of a case.
        table: The report in Markdown.
    """
    end_on_sigterm()
    parser.add_argument("--kind", choices=get_args(Kind), action="append", help="default: all")
    parser.add_argument("--write-docs", action="store_true", help="write docs/measurements.md")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    cases = []
    for kind in arguments.kind or get_args(Kind):
        for cluster in clusters:
            for mtbf_hours in _MTBFS_HOURS:
                with context.Pool(1) as pool:
                    cases.append(pool.apply(measure, (kind, cluster, mtbf_hours, arguments)))
                sys.stderr.write(f"{cases[-1]}\n")
    report = {**machine(), "command": command_line(), "runs": arguments.runs, "cases": cases}
    if arguments.write_docs:
        write_results(name, report)
        text = f"{machine_line(report)}\n\n    {report['command']}\n\n{table(report)}"
        write_section(MEASUREMENTS, name, text)
    json.dump(report, sys.stdout, indent=1)
    sys.stdout.write("\n")
