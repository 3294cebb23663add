"""``unicron drill``: lists the drills, or runs them and checks every diagnosis."""

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Sequence

from pydantic import JsonValue

from controller.api.server import ApiSocketError
from controller.drill_matrix.drill_options import check_minutes, choose_drills, cluster_options
from controller.drill_matrix.drill_runs import MatrixRun
from controller.drill_matrix.matrix_cluster import ClusterNotReadyError
from controller.drill_matrix.matrix_table import (
    PageError,
    drill_json,
    drills_text,
    report,
    section,
    summary,
    write_section,
)
from controller.drills.drill_arguments import DrillArgumentError
from controller.error_groups import leaf_errors
from controller.localcluster.local_cluster import LocalClusterError
from controller.logs.log_options import LogOptionError, log_options, logging_to
from profiles.drills.drill import Drill


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit code."""
    try:
        drills = choose_drills(arguments.only)
        if arguments.action == "list":
            _list(drills, is_json=arguments.json)
            return 0
        limit_s = check_minutes(arguments.minutes)
    except DrillArgumentError as error:
        return _fail(2, error)
    try:
        with logging_to(log_options(arguments)):
            return _matrix(arguments, drills, limit_s)
    except LogOptionError as error:
        return _fail(2, error)


def _list(drills: Sequence[Drill], *, is_json: bool) -> None:
    if is_json:
        _print_json({"drills": [drill_json(drill) for drill in drills]})
    else:
        sys.stdout.write(drills_text(drills))


def _matrix(arguments: argparse.Namespace, drills: Sequence[Drill], limit_s: float) -> int:
    options = cluster_options(arguments.sshd, "loopback" if arguments.no_namespaces else "auto")
    matrix = MatrixRun(options, limit_s, _notify)
    code = _run(matrix, drills)
    rows, duration_s = matrix.rows, matrix.duration_s
    missing = {drill.kind for drill in drills} - {row.drill.kind for row in rows}
    not_run = {
        drill.kind: matrix.impossible.get(drill.kind, "the time ran out")
        for drill in drills
        if drill.kind in missing
    }
    was_cut_short = not not_run.keys() <= matrix.impossible.keys()
    if arguments.json:
        _print_json(report(rows, not_run, duration_s))
    else:
        sys.stdout.write(summary(rows, not_run, duration_s))
    try:
        if arguments.write_docs is not None and not (was_cut_short or arguments.only or code):
            date = time.strftime("%Y-%m-%d", time.gmtime())
            write_section(arguments.write_docs, section(rows, drills, not_run, duration_s, date))
    except (PageError, OSError) as error:
        return _fail(1, error)
    return code or int(was_cut_short or not rows or not all(row.agrees for row in rows))


def _run(matrix: MatrixRun, drills: Sequence[Drill]) -> int:
    """Run the drills; return 0, or exit code 1 if an error or a signal ended the run."""

    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
        await matrix.run(drills)

    failures: list[object] = []
    try:
        asyncio.run(run())
    except* asyncio.CancelledError:
        failures.append("ended by a signal")
    except* (LocalClusterError, ClusterNotReadyError, ApiSocketError, OSError) as errors:
        failures += leaf_errors(errors)
    return _fail(1, failures[0]) if failures else 0


def _notify(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _print_json(value: JsonValue) -> None:
    json.dump(value, sys.stdout)
    sys.stdout.write("\n")


def _fail(code: int, error: object) -> int:
    sys.stderr.write(f"unicron drill: {error}\n")
    return code
