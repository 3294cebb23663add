"""The command line of ``unicron check``."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from controller.arguments import HelpText, add_accept_new, file_path
from controller.check.check_findings import CheckFinding
from controller.check.fleet_check import CheckedCluster, CheckedNode, check_cluster
from controller.clusterfile.cluster_reader import KNOWN_HOSTS_NAME, load_cluster
from controller.clusterfile.file_mistakes import ClusterFileError
from controller.fleet.host_keys import AcceptedKeys
from controller.fleet.node_connection import SshLogins
from controller.printing import plain_console, print_table, refuse
from controller.server.cluster_config import take_workdirs
from controller.workdirs.workdir_version import WorkdirError
from profiles.records import on_one_line

_PROGRAM: Final = "unicron check"
_PARALLEL: Final = 64
_GIGABYTE: Final = 1e9
_EPILOG: Final = """\
It logs in to every node and looks: interpreter and versions (equal on all nodes), disk, clock, GPUs, limits of
open files, the kernel's log, data, and whether all nodes see the same checkpoint directory (one writes a
marker file there, which is removed again). Each node connects to the two beside it on the training network. It
looks at the policy too: time-outs of which the wrong one fires first. Nothing is installed, started or changed.

exit codes:
  0  nothing was found
  1  warnings only: the cluster works, less well
  2  something can't work, or a mistake in the cluster file

examples:
  unicron check cluster.toml
  unicron check cluster.toml --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron check``."""
    parser.formatter_class, parser.epilog = HelpText, _EPILOG
    parser.add_argument("cluster", metavar="CLUSTER", type=file_path, help="the cluster file")
    add_accept_new(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Check the cluster; return the exit code."""
    try:
        cluster = load_cluster(arguments.cluster)
    except ClusterFileError as error:
        sys.stderr.write(f"{error}\n")
        return 2

    async def look() -> CheckedCluster:
        keys = AcceptedKeys(cluster.run_dir / KNOWN_HOSTS_NAME, arguments.accept_new, _progress)
        async with SshLogins(keys) as logins:
            return await check_cluster(cluster, logins, _PARALLEL, _progress)

    if arguments.accept_new:
        cluster.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        checked = asyncio.run(look())
    except KeyboardInterrupt:
        refuse(_PROGRAM, "interrupted")
        return 130
    findings = list(checked.findings)
    try:
        take_workdirs(cluster)
    except WorkdirError as error:
        findings.append(CheckFinding("error", "workdir", (), str(error)))
    _print(checked.nodes, findings, is_json=arguments.json)
    if any(each.level == "error" for each in findings):
        return 2
    return 1 if findings else 0


def _progress(text: str) -> None:
    sys.stderr.write(f"{on_one_line(text)}\n")
    sys.stderr.flush()


def _print(
    nodes: Sequence[CheckedNode], findings: Sequence[CheckFinding], *, is_json: bool
) -> None:
    if is_json:
        content = {
            "nodes": [asdict(node) for node in nodes],
            "findings": [asdict(each) for each in findings],
        }
        json.dump(content, sys.stdout)
        sys.stdout.write("\n")
        return
    console = plain_console()
    print_table(
        console,
        ["node", "session", "interpreter", "free disk", "clock", "GPUs", "open files"],
        [_row(node) for node in nodes],
    )
    for each in findings:
        place = f" on {_names(each.nodes)}" if each.nodes else ""
        console.print(f"{each.level}: {each.subject}{place}: {each.text}", markup=False)
        if each.advice:
            console.print(f"    {each.advice}", markup=False)
    num_errors = sum(each.level == "error" for each in findings)
    console.print(f"{len(nodes)} nodes: {num_errors} errors, {len(findings) - num_errors} warnings")


def _names(nodes: Sequence[str]) -> str:
    shown = ", ".join(nodes[:4])
    return shown if len(nodes) <= 4 else f"{shown} and {len(nodes) - 4} more"


def _row(node: CheckedNode) -> tuple[str, ...]:
    survey = node.survey
    if survey is None:
        return node.name, "none", "", "", "", "", ""
    return (
        node.name,
        node.way,
        str(survey.facts),
        f"{survey.free_bytes / _GIGABYTE:.1f} GB",
        f"{survey.clock_ahead_s:+.2f} s",
        "?" if survey.gpus is None else str(survey.gpus),
        str(survey.files[0]),
    )
