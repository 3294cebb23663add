"""The command line of the controller: ``unicron COMMAND``.

Each command imports only its own modules, which saves most commands a second of start-up.
"""
# ruff: noqa: PLC0415

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import NamedTuple

from controller.arguments import HelpText, Parser
from controller.printing import drop_output, is_of_output, refuse

_DESCRIPTION = """\
Unicron keeps Megatron training alive. It detects and classifies faults, chooses the cheapest recovery,
and divides the remaining workers over all tasks for the highest weighted FLOP/s.
"""


class _Parts(NamedTuple):
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


@dataclass(frozen=True, slots=True)
class _Command:
    name: str
    help: str
    description: str
    load: Callable[[], _Parts]


def _bootstrap() -> _Parts:
    from controller.bootstrap import bootstrap_cli

    return _Parts(bootstrap_cli.add_arguments, bootstrap_cli.run)


def _check() -> _Parts:
    from controller.check import check_cli

    return _Parts(check_cli.add_arguments, check_cli.run)


def _demo() -> _Parts:
    from controller.demo import demo_arguments as options, demo_cli as command

    return _Parts(options.add_arguments, command.run)


def _classify() -> _Parts:
    from controller.classify import classify_cli

    return _Parts(classify_cli.add_arguments, classify_cli.run)


def _drill() -> _Parts:
    from controller.drill_matrix import drill_cli as command, drill_options as options

    return _Parts(options.add_arguments, command.run)


def _down() -> _Parts:
    from controller.service import down_cli

    return _Parts(down_cli.add_arguments, down_cli.run)


def _init() -> _Parts:
    from controller.init import init_cli

    return _Parts(init_cli.add_arguments, init_cli.run)


def _history() -> _Parts:
    from controller.operate import history_cli

    return _Parts(history_cli.add_arguments, history_cli.run)


def _journal() -> _Parts:
    from controller.operate import journal_cli

    return _Parts(journal_cli.add_arguments, journal_cli.run)


def _plan() -> _Parts:
    from controller.plan import plan_cli

    return _Parts(plan_cli.add_arguments, plan_cli.run)


def _policy() -> _Parts:
    from controller.settings import policy_cli

    return _Parts(policy_cli.add_arguments, policy_cli.run)


def _profile() -> _Parts:
    from controller.profile import profile_cli

    return _Parts(profile_cli.add_arguments, profile_cli.run)


def _run() -> _Parts:
    from controller.service import run_cli

    return _Parts(run_cli.add_arguments, run_cli.run)


def _simulate() -> _Parts:
    from controller.operate.present_cluster import read_cluster
    from controller.simulation import simulate_cli

    return _Parts(simulate_cli.add_arguments, partial(simulate_cli.run, read_cluster=read_cluster))


def _status() -> _Parts:
    from controller.operate import status_cli

    return _Parts(status_cli.add_arguments, status_cli.run)


def _uncordon() -> _Parts:
    from controller.operate import operate_cli

    return _Parts(operate_cli.add_uncordon_arguments, operate_cli.run_uncordon)


def _unreachable() -> _Parts:
    from controller.operate import operate_cli

    return _Parts(operate_cli.add_unreachable_arguments, operate_cli.run_unreachable)


_COMMANDS = (
    _Command(
        "demo",
        "train two real tasks on a local cluster, and recover them from faults",
        "Start a local cluster of SSH nodes, train two Megatron tasks on it, inject faults (drills) and"
        " recover from them. The demo removes all of its processes and files when it ends.",
        _demo,
    ),
    _Command(
        "init",
        "write a cluster file from a hostlist, Ansible, SSH's configuration or Slurm",
        "Write a commented cluster file from what describes the nodes already: a hostlist, an Ansible"
        " inventory, an SSH configuration, or Slurm.",
        _init,
    ),
    _Command(
        "bootstrap",
        "put the agent on the nodes of a cluster file and start it, or take it away",
        "Put Unicron's agent on the nodes of a cluster file over SSH, start it, and check that it is well."
        " Each node that is not ready gets a line that says why, and what to do.",
        _bootstrap,
    ),
    _Command(
        "check",
        "say what is not ready in a cluster, before anything starts",
        "Look at the nodes of a cluster file over SSH, and at its time-outs, and say what is not ready. Nothing"
        " is installed, started or changed.",
        _check,
    ),
    _Command(
        "run",
        "run the controller of a cluster file, until it is stopped",
        "Run the controller of a cluster: it starts the agents on the nodes over SSH, trains the tasks, and"
        " recovers them from faults. If an earlier controller of this cluster has ended, it takes over.",
        _run,
    ),
    _Command(
        "down",
        "stop the tasks of a cluster with a checkpoint, then its agents and its controller",
        "Stop a cluster: its tasks at the end of an iteration with a checkpoint, then the agents with all"
        " their processes, then the controller. It says what it will stop, and asks first.",
        _down,
    ),
    _Command(
        "status",
        "show tasks, nodes, open incidents and waiting plans of a controller",
        "Show what a running controller knows: its tasks, nodes, open incidents, plans that wait, and the"
        " controller itself.",
        _status,
    ),
    _Command(
        "classify",
        "find and classify the faults in logs of ranks, kernels and monitors",
        "Read stderr, kernel and monitor logs. Report each fault with its status, its severity, the line"
        " that shows it, and the first response.",
        _classify,
    ),
    _Command(
        "drill",
        "list the drills, or run them and check each diagnosis",
        "A drill injects one fault into a local cluster. `list` explains every drill; `matrix` runs the"
        " drills and compares each diagnosis and recovery with the expected one.",
        _drill,
    ),
    _Command(
        "history",
        "show what a run has been through: iterations, incidents, plans, lines",
        "Show iterations, incidents, plans or announcements of a run, also of former controllers and while"
        " the controller runs.",
        _history,
    ),
    _Command(
        "journal",
        "check, count, export or repair a controller's journal",
        "Read the journal of a controller, also while the controller runs: check that every line is whole,"
        " count its events, or print them. A damaged end is cut off only by `repair`.",
        _journal,
    ),
    _Command(
        "plan",
        "divide workers over tasks, for a problem file or a cluster",
        "Ask the planner how it would divide workers over tasks: for a problem in a file, or for a cluster"
        " after a supposed change. Nothing is changed on a cluster.",
        _plan,
    ),
    _Command(
        "policy",
        "explain how the controller responds to each fault",
        "Explain how the controller responds to each fault, and every setting of the policy.",
        _policy,
    ),
    _Command(
        "profile",
        "estimate, measure, show and merge the throughput of models",
        "Throughput of models by number of workers: estimate it, measure it on a running controller, check"
        " estimates against measurements, show tables and merge them.",
        _profile,
    ),
    _Command(
        "simulate",
        "compare policies over months of simulated faults",
        "Simulate months of faults in seconds. The controller's own core and other ways to handle failures"
        " run on the same modelled cluster, which can start as a copy of a real one.",
        _simulate,
    ),
    _Command(
        "uncordon",
        "return an isolated node or GPU to service",
        "Ask a running controller to return an isolated node or GPU to service.",
        _uncordon,
    ),
    _Command(
        "unreachable",
        "decide whether a node out of contact is lost",
        "Decide for a running controller that a node out of contact is lost, or to wait for it.",
        _unreachable,
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = Parser(
        prog="unicron",
        description=_DESCRIPTION,
        formatter_class=HelpText,
        epilog="Start here: unicron-console --demo, or unicron run --help for your own cluster",
    )
    parser.add_argument("--version", action="version", version=f"unicron {version('unicron')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    words = sys.argv[1:] if arguments is None else arguments
    chosen = next((word for word in words if not word.startswith("-")), None)
    run = None
    for command in _COMMANDS:
        below = commands.add_parser(
            command.name, help=command.help, description=command.description
        )
        if command.name == chosen:
            add_arguments, run = command.load()
            add_arguments(below)
    parsed = parser.parse_args(words)
    assert run is not None, "the parser refuses what names no command"
    try:
        code = run(parsed)
        sys.stdout.flush()
    except OSError as error:
        if parsed.command in {"demo", "down", "run"} or not is_of_output(error):
            raise  # they write much else
        drop_output()
        return refuse(
            f"unicron {parsed.command}", f"standard output: {str(error.strerror).lower()}"
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
