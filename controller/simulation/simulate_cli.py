"""``unicron simulate``: compares policies over months of simulated faults."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Final, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from controller.arguments import HelpText
from controller.clock import SystemClock
from controller.core.cluster_spec import ClusterSpec
from controller.simulation.policies.comparison import (
    ALL_POLICIES,
    POLICIES,
    UNICRON,
    Campaign,
    prepared,
    run_campaign,
)
from controller.simulation.policies.present_runs import (
    POLICIES_OF_CLUSTERS,
    check_policies,
    setup_of_cluster,
)
from controller.simulation.report.comparison_text import as_json, print_campaign
from controller.simulation.report.html_report import write_report
from controller.simulation.scenarios.scenario_file import load_scenario, shipped
from controller.simulation.world.initial_setup import InitialSetup
from profiles.records import RecordError

_INDENT: Final = " " * 11


def _list_of(title: str, names: Sequence[str]) -> str:
    return fill(", ".join(names), 100, initial_indent=f"{title} ", subsequent_indent=_INDENT)


_EPILOG = f"""\
{_list_of("scenarios:", shipped())},
           a TOML file (docs/simulation.md explains its keys), or a trace (.json or .csv)
{_list_of("policies: ", ALL_POLICIES)}

All policies get the same faults, drawn from the seed, and begin with the same split. "unicron" is the
controller's own core on a modelled cluster; "unicron-approved" is the same with an operator who approves
every plan. All other policies are models of their own. A ratio is Unicron's accumulated weighted FLOP
divided by the other policy's, with a 95 % confidence interval over the seeds.

With --connect or --state the nodes, tasks, sizes and policy are copied from a real cluster, which is not
changed. SCENARIO then gives the faults and the durations.

examples:
  unicron simulate trace-b
  unicron simulate trace-a --policy unicron --policy megatron --seeds 20 --json
  unicron simulate mine.toml --report out/
  unicron simulate --connect /run/unicron.sock
  unicron simulate mine.toml --state /var/lib/unicron/run --policy unicron --policy unicron-approved
"""

_MAX_DIGITS: Final = 18
_QUIET_S: Final = 2.0

ReadCluster = Callable[[Path | None, Path | None], ClusterSpec | None]
"""Returns the cluster of a controller's socket or of a run's directory; None if both are None."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron simulate``."""
    parser.formatter_class = HelpText
    parser.epilog = _EPILOG
    parser.add_argument(
        "scenario",
        metavar="SCENARIO",
        nargs="?",
        help="a scenario's name, a TOML file or a trace; optional with --connect or --state",
    )
    cluster = parser.add_mutually_exclusive_group()
    cluster.add_argument(
        "--connect",
        type=Path,
        metavar="SOCKET",
        help="start with the cluster of the controller at this API socket",
    )
    cluster.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="start with the cluster of a saved run: the directory with its journal",
    )
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        choices=ALL_POLICIES,
        metavar="NAME",
        help="run this policy; may be repeated (default: all but unicron-approved; with a cluster"
        " unicron and unicron-approved)",
    )
    parser.add_argument(
        "--seeds", type=_seeds, default=5, metavar="N", help="runs of each policy (default 5)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--report",
        type=_directory,
        metavar="DIR",
        help="write an HTML page with plots, and the JSON, into this directory",
    )


def _seeds(text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    if not is_number or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r:.80} must be a whole number from 1 to 10000")
    return int(text)


def _directory(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("the name is empty: give a directory")
    return Path(text)


def run(arguments: argparse.Namespace, read_cluster: ReadCluster) -> int:
    """Simulate and print; return 0, 2 if an input can't be used, 130 after Ctrl-C."""
    try:
        _check_report(arguments.report)
        setup, policies = _setup(arguments, read_cluster)
        with _ProgressBar(setup.scenario.name, len(policies) * arguments.seeds) as bar:
            campaign = run_campaign(setup, policies, arguments.seeds, bar.update)
    except RecordError as error:
        sys.stderr.write(f"unicron simulate: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("unicron simulate: interrupted; no run was done\n")
        return 130
    _print(campaign, is_json=arguments.json)
    if campaign.is_interrupted:
        names = ", ".join(campaign.accounts)
        sys.stderr.write(
            f"unicron simulate: interrupted: of {arguments.seeds} seed(s) {campaign.num_seeds} was"
            f" done by {names}\n"
        )
    code = 0 if arguments.report is None else _report(campaign, arguments.report)
    return 130 if campaign.is_interrupted else code


def _setup(
    arguments: argparse.Namespace, read_cluster: ReadCluster
) -> tuple[InitialSetup, list[str]]:
    """Return the setup that all runs begin with, and the policies.

    Raises:
        RecordError: The scenario, the cluster or a policy can't be used.
    """
    policies = list(dict.fromkeys(arguments.policy))
    scenario = load_scenario(arguments.scenario) if arguments.scenario else None
    cluster = read_cluster(arguments.connect, arguments.state)
    if cluster is not None:
        setup = setup_of_cluster(scenario, cluster)
        check_policies(policies, setup)
        return setup, policies or list(POLICIES_OF_CLUSTERS)
    if scenario is None:
        raise RecordError(
            "give a SCENARIO, or a cluster with --connect or --state; scenarios:"
            f" {', '.join(shipped())}"
        )
    return prepared(scenario), policies or list(POLICIES)


def _report(campaign: Campaign, directory: Path) -> int:
    try:
        page = write_report(campaign, directory)
    except OSError as error:
        sys.stderr.write(f"unicron simulate: {error.filename}: {error.strerror}\n")
        return 2
    sys.stderr.write(f"wrote the report to {page}\n")
    return 0


def _check_report(directory: Path | None) -> None:
    """Refuse a directory that can't be written, before anything is simulated."""
    if directory is None:
        return
    if directory.exists() and not directory.is_dir():
        raise RecordError(f"--report {directory}: is a file; give a directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"--report {directory}: {error.strerror}") from error
    if not os.access(directory, os.W_OK):
        raise RecordError(f"--report {directory}: is not writable; choose another directory")


def _print(campaign: Campaign, *, is_json: bool) -> None:
    if is_json:
        sys.stdout.write(f"{json.dumps(as_json(campaign), sort_keys=True)}\n")
        return
    print_campaign(campaign)
    if UNICRON not in campaign.accounts:
        sys.stderr.write("no ratios, since the policy unicron was not run: add --policy unicron\n")


class _ProgressBar:
    """A bar with an estimate, on a terminal only, for what takes more than ``_QUIET_S``."""

    def __init__(self, name: str, num_runs: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task(name, total=num_runs)
        self._clock = SystemClock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._progress.stop()

    def update(self, num_done: float) -> None:
        """Show the number of runs that are done."""
        self._progress.update(self._task, completed=num_done)
        if self._clock.now() > _QUIET_S:
            self._progress.start()
