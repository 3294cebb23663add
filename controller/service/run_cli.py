"""The command line of ``unicron run``. Everything is checked before anything starts."""

import argparse
import asyncio
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from controller.api.server import ApiSocketError
from controller.arguments import HelpText, add_accept_new, file_path
from controller.check.host_check import check_without_nodes
from controller.clusterfile.cluster_reader import Cluster, load_cluster
from controller.clusterfile.file_mistakes import ClusterFileError
from controller.core.membership.file_changes import ImpossibleChangeError
from controller.core.rules.policy import Policy
from controller.logs.log_options import (
    LogOptionError,
    add_logging_arguments,
    log_options,
    logging_to,
)
from controller.printing import plain_console, print_table, refuse
from controller.server.cluster_config import take_workdirs
from controller.service.cluster_service import ClusterService
from controller.store.journal import JournalError
from controller.store.run_lock import RunLockedError
from controller.workdirs.workdir_version import WorkdirError
from profiles.records import on_one_line

STARTING_ERRORS: Final = (
    LogOptionError, RunLockedError, JournalError, ApiSocketError, ImpossibleChangeError, OSError,
    WorkdirError,
)  # fmt: skip
_EPILOG: Final = """\
The controller stays in the foreground. Ctrl-C or SIGTERM ends the controller and not the training: the
ranks and agents stay on their nodes, and the next `unicron run` of this file takes over. So it does after
a crash. A fault that happens meanwhile waits for it.

With --rehearse nothing is done about a fault before somebody approves it. The task waits parked, with its state
in memory; other tasks train on, and orders are carried out as usual. `unicron incidents --rehearsed` shows what
auto-heal would have done and what happened; `unicron approve I-3` has it done.

A changed file is compared with what the journal has. Nodes and tasks that were added, changed or removed are
announced and taken in; a task whose program changed takes it at its next start with new processes.

The controller's files (journal, API socket, event log, measured tables) are in the run_dir of the cluster
file. Only one controller at a time can use it.

exit codes:
  0  stopped by Ctrl-C or SIGTERM; or, with --until-done, every task has finished
  1  not started: another controller runs this cluster, or its files can't be used
  2  wrong options, or a mistake in the cluster file: nothing was started

examples:
  unicron run cluster.toml --dry-run
  unicron run cluster.toml --auto-heal
  unicron run cluster.toml --auto-heal --until-done --event-log events.jsonl
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron run``."""
    parser.formatter_class, parser.epilog = HelpText, _EPILOG
    parser.add_argument(
        "cluster", metavar="CLUSTER", type=file_path, help="the cluster file, such as cluster.toml"
    )
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument(
        "--auto-heal",
        action="store_true",
        help="apply plans without an operator's approval, whatever the file says",
    )
    modes.add_argument(
        "--rehearse",
        action="store_true",
        help="record at each fault what auto-heal would do, and wait for an approval",
    )
    add_accept_new(parser)
    parser.add_argument(
        "--until-done", action="store_true", help="end when every task has finished"
    )
    parser.add_argument(
        "--event-log",
        type=file_path,
        metavar="FILE",
        help="append every event to FILE, as JSON lines (default: events.jsonl in the run_dir)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check the file, print nodes and tasks, and end; nothing is contacted or written",
    )
    parser.add_argument("--json", action="store_true", help="with --dry-run: print one JSON object")
    add_logging_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the controller; return the exit code."""
    try:
        cluster = load_cluster(arguments.cluster)
        _check(arguments)
    except ClusterFileError as error:
        # A line for each mistake, without the program's name: editors jump to file and line.
        sys.stderr.write(f"{error}\n")
        return 2
    except ValueError as error:
        return refuse("unicron run", str(error))
    cluster = replace(cluster, policy=_with_options(arguments, cluster.policy))
    if problem := _why_it_can_not_work(cluster, arguments):
        return refuse("unicron run", problem)
    if arguments.dry_run:
        _print(cluster, is_json=arguments.json)
        return 0
    if problem := _serve(cluster, arguments):
        refuse("unicron run", problem)
        return 1
    return 0


def _with_options(arguments: argparse.Namespace, policy: Policy) -> Policy:
    """Return a file's policy with what options say instead."""
    if arguments.rehearse:
        return replace(policy, is_rehearsal=True)
    if arguments.auto_heal:
        return replace(policy, is_auto_heal=True, is_rehearsal=False)
    return policy


def _why_it_can_not_work(cluster: Cluster, arguments: argparse.Namespace) -> str:
    """Return why a start is refused, or nothing; print what else shows before it."""
    findings = check_without_nodes(cluster)
    for finding in findings:
        sys.stderr.write(f"{finding.level}: {on_one_line(finding.line)}\n")
    if any(finding.level == "error" for finding in findings):
        return "this can't work: nothing was started"
    if arguments.dry_run:  # a start takes them anyway
        try:
            take_workdirs(cluster)
        except WorkdirError as error:
            return str(error)
    return ""


def _serve(cluster: Cluster, arguments: argparse.Namespace) -> str:
    """Run the controller until its end; return why it did not start, or what ended it."""
    try:
        with logging_to(log_options(arguments)):
            service = ClusterService(
                cluster,
                arguments.event_log,
                is_until_done=arguments.until_done,
                accepts_new=arguments.accept_new,
                overridden=partial(_with_options, arguments),
            )
            asyncio.run(service.run())
    except STARTING_ERRORS as error:
        return why_ended(error)
    return ""


def why_ended(error: Exception) -> str:
    """Return in one line why a controller could not start, or what ended it."""
    if isinstance(error, OSError) and not isinstance(error, TimeoutError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{(error.strerror or str(error)).lower()}"
    return str(error)


def _check(arguments: argparse.Namespace) -> None:
    """Check the options. Raises ``ValueError``."""
    path: Path | None = arguments.event_log
    if arguments.json and not arguments.dry_run:
        raise ValueError("--json prints what --dry-run has found: add --dry-run")
    if path is not None and not path.absolute().parent.is_dir():
        raise ValueError(
            f"--event-log {path}: there is no directory {path.absolute().parent}; create it or choose"
            " another"
        )
    if path is not None and path.is_dir():
        raise ValueError(f"--event-log {path}: is a directory; give a file name")


def _print(cluster: Cluster, *, is_json: bool) -> None:
    """Print what a cluster file says."""
    kind = "gpus" if cluster.has_gpus else "workers"
    if is_json:
        json.dump(_as_json(cluster, kind), sys.stdout)
        sys.stdout.write("\n")
        return
    console = plain_console()
    print_table(
        console,
        ["node", "address", "user", kind, "failure domain", "labels"],
        [
            (
                node.address.node,
                node.address.way,
                node.address.ssh.user,
                str(node.address.num_workers),
                node.failure_domain,
                ", ".join(f"{key}={value}" for key, value in node.labels.items()),
            )
            for node in cluster.nodes
        ],
        numbers={3},
    )
    print_table(
        console,
        ["task", "program", "weight", "workers", "sizes", "checkpoints"],
        [
            (
                task.name,
                _program(cluster, number),
                f"{task.weight:g}",
                str(task.workers),
                ", ".join(map(str, task.throughput.sizes)),
                task.checkpoint_dir or str(cluster.checkpoints / task.name),
            )
            for number, task in enumerate(cluster.tasks)
        ],
        numbers={2, 3},
    )
    heals = (
        "plans are applied at once" if cluster.policy.is_auto_heal else "plans wait for approval"
    )
    if cluster.policy.is_rehearsal:
        heals = "a rehearsal: each cure waits for approval"
    console.print(f"cluster {cluster.name}: {heals}; the controller's files: {cluster.run_dir}")


def _as_json(cluster: Cluster, kind: str) -> dict[str, object]:
    return {
        "cluster": cluster.name,
        "run_dir": str(cluster.run_dir),
        "socket": str(cluster.socket),
        "is_auto_heal": cluster.policy.is_auto_heal,
        "nodes": [
            {
                "name": node.address.node,
                "host": node.address.ssh.host,
                "port": node.address.ssh.port,
                "user": node.address.ssh.user,
                kind: node.address.num_workers,
                "failure_domain": node.failure_domain,
                "labels": node.labels,
                "state_dir": node.address.state_dir,
            }
            for node in cluster.nodes
        ],
        "tasks": [
            {
                "name": task.name,
                "program": _program(cluster, number),
                "weight": task.weight,
                "workers": task.workers,
                "sizes": list(task.throughput.sizes),
                "checkpoint_dir": task.checkpoint_dir or str(cluster.checkpoints / task.name),
            }
            for number, task in enumerate(cluster.tasks)
        ],
    }


def _program(cluster: Cluster, number: int) -> str:
    task = cluster.tasks[number]
    if task.command is not None:
        return " ".join(task.command.argv)
    return task.program.function if task.program is not None else "built-in GPT"
