"""The command line of ``unicron drill``."""

import argparse
import math
from pathlib import Path
from typing import Final

from controller.arguments import HelpText
from controller.core.rules.policy import Policy
from controller.demo.demo_options import DemoOptions
from controller.drills.drill_arguments import DrillArgumentError
from controller.localcluster.local_node import NetworkChoice, ServerChoice
from controller.logs.log_options import add_logging_arguments
from profiles.drills.drill import Drill
from profiles.drills.drill_catalogue import DRILLS
from profiles.task_profiles import default_task_profiles

_NODES: Final = 4
_WORKERS_PER_NODE: Final = 2
_DEFAULT_MINUTES: Final = 30.0

_EPILOG: Final = """\
examples:
  unicron drill list                                  every drill, and its expected diagnosis
  unicron drill matrix                                run all drills, print one table
  unicron drill matrix --only kill-rank exception     two kinds, `exception` with all its statuses
  unicron drill matrix --json --minutes 15            print JSON; start no drill after 15 minutes

exit codes of the matrix:
  0  every drill that this machine can run was run, and every row agrees
  1  a row disagrees, the time ran out, or a cluster did not start
  2  wrong options: nothing was started
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron drill``."""
    parser.formatter_class = HelpText
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser("list", help="explain every drill and its expected diagnosis")
    run = actions.add_parser(
        "matrix", help="run drills on a local cluster and check each diagnosis and recovery"
    )
    for one in (show, run):
        one.add_argument("--json", action="store_true", help="print one JSON object")
        one.add_argument(
            "--only",
            nargs="+",
            default=[],
            metavar="KIND",
            help="only these drills: exact kinds (nan:times=2) or families (nan)",
        )
    run.add_argument(
        "--minutes",
        type=float,
        default=_DEFAULT_MINUTES,
        metavar="M",
        help=f"start no drill after M minutes (default {_DEFAULT_MINUTES:g})",
    )
    run.add_argument(
        "--sshd",
        choices=["auto", "openssh", "asyncssh"],
        default="auto",
        help="SSH server of the nodes (default auto)",
    )
    run.add_argument(
        "--no-namespaces",
        action="store_true",
        help="all nodes share the loopback network, and the drill partition is not run (default:"
        " a network namespace per node if this is root and iproute2 is installed)",
    )
    run.add_argument(
        "--write-docs",
        type=Path,
        metavar="FILE",
        help="also write the table into this page, if every drill was run",
    )
    add_logging_arguments(run)


def choose_drills(names: list[str]) -> list[Drill]:
    """Return the drills that ``names`` name, in the catalogue's order; all if there are no names.

    Raises:
        DrillArgumentError: A name is unknown.
    """
    for name in names:
        if not any(name in (drill.kind, drill.family) for drill in DRILLS):
            families = ", ".join(dict.fromkeys(drill.family for drill in DRILLS))
            raise DrillArgumentError(
                f"--only {name}: unknown drill; families are {families};"
                " `unicron drill list` lists all kinds"
            )
    return [drill for drill in DRILLS if not names or drill.kind in names or drill.family in names]


def check_minutes(minutes: float) -> float:
    """Return the limit in seconds.

    Raises:
        DrillArgumentError: ``minutes`` is not above 0.
    """
    if not 0 < minutes < math.inf:
        raise DrillArgumentError(f"--minutes {minutes:g}: must be a finite number above 0")
    return minutes * 60


def cluster_options(sshd: ServerChoice = "auto", network: NetworkChoice = "auto") -> DemoOptions:
    """Return the demo's default cluster and tasks, which train without end."""
    profiles = default_task_profiles()
    return DemoOptions(
        num_nodes=_NODES,
        workers_per_node=_WORKERS_PER_NODE,
        profiles=profiles,
        data_path="",
        seed=1,
        num_iterations=None,
        is_headless=True,
        is_json=False,
        policy=Policy(is_auto_heal=True, held_retries=0),
        drills=[],
        base_port=None,
        sshd=sshd,
        network=network,
        event_log=None,
        tables=None,
        serve=None,
        time_limit_s=None,
    )
