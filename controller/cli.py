"""The command line of the controller: ``unicron COMMAND``.

Each command imports only its own modules. For most commands that saves a second.
"""
# ruff: noqa: PLC0415

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import NamedTuple

from controller.arguments import Parser
from controller.printing import drop_output, is_of_output, refuse

_DESCRIPTION = """\
Unicron keeps Megatron training alive. It names faults and takes the cheapest cure. If workers are
lost, it divides the remaining workers over all tasks for the most weighted FLOP/s.
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


def _demo() -> _Parts:
    from controller.demo import demo_cli as command, demo_options as options

    return _Parts(options.add_arguments, command.run)


def _classify() -> _Parts:
    from controller.classify import classify_cli as command, classify_options as options

    return _Parts(options.add_arguments, command.run)


def _drill() -> _Parts:
    from controller.drill_matrix import drill_cli as command, drill_options as options

    return _Parts(options.add_arguments, command.run)


def _plan() -> _Parts:
    from controller.plan import plan_cli

    return _Parts(plan_cli.add_arguments, plan_cli.run)


def _policy() -> _Parts:
    from controller.settings import policy_cli

    return _Parts(policy_cli.add_arguments, policy_cli.run)


def _profile() -> _Parts:
    from controller.profile import profile_cli

    return _Parts(profile_cli.add_arguments, profile_cli.run)


def _simulate() -> _Parts:
    from controller.operate.present_cluster import read_cluster
    from controller.simulation import simulate_cli

    return _Parts(simulate_cli.add_arguments, partial(simulate_cli.run, read_cluster=read_cluster))


def _uncordon() -> _Parts:
    from controller.operate import operate_cli

    return _Parts(operate_cli.add_uncordon_arguments, operate_cli.run_uncordon)


def _unreachable() -> _Parts:
    from controller.operate import operate_cli

    return _Parts(operate_cli.add_unreachable_arguments, operate_cli.run_unreachable)


_COMMANDS = (
    _Command(
        "demo",
        "heal two real training tasks on a local cluster of SSH nodes",
        "Build a local cluster of SSH nodes, train two Megatron tasks on it, break it, and watch it"
        " heal. Everything ends with the demo.",
        _demo,
    ),
    _Command(
        "classify",
        "name the faults in logs of ranks, kernels and monitors",
        "Read stderr, kernel and monitor logs and name the faults in them: status, severity, the line"
        " that shows it, and what to do first.",
        _classify,
    ),
    _Command(
        "drill",
        "explain the drills, and check that Unicron detects and heals each of them",
        "Drills stage faults in a local cluster. The list explains every drill. The matrix runs them"
        " all and compares each outcome with the expected one.",
        _drill,
    ),
    _Command(
        "plan",
        "divide workers over tasks, of a file or of a cluster",
        "Ask the planner for a plan: for the workers and tasks of a file, or for a running cluster under"
        " other circumstances.",
        _plan,
    ),
    _Command(
        "policy",
        "explain how the controller handles each fault",
        "How the controller handles each fault.",
        _policy,
    ),
    _Command(
        "profile",
        "estimate and measure the throughput of models on clusters",
        "The throughput of models on clusters of any size, in their best layouts.",
        _profile,
    ),
    _Command(
        "simulate",
        "compare policies over months of simulated faults",
        "Run the controller's own core, and other policies, through months of faults on a modelled"
        " cluster, in seconds. The cluster may begin in the state of a real one.",
        _simulate,
    ),
    _Command(
        "uncordon",
        "take an isolated node back into service",
        "Ask a running controller to take an isolated node back into service.",
        _uncordon,
    ),
    _Command(
        "unreachable",
        "decide whether a node out of contact is lost",
        "Tell a running controller whether a node out of contact is lost, or whether to wait for it.",
        _unreachable,
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = Parser(
        prog="unicron",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Start here: unicron-console --demo, or unicron demo --help",
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
    assert run is not None, "the parser refuses arguments without a command"
    try:
        code = run(parsed)
        sys.stdout.flush()
    except OSError as error:
        if parsed.command == "demo" or not is_of_output(error):
            raise  # a demo writes other files, too
        drop_output()
        return refuse(
            f"unicron {parsed.command}", f"standard output: {str(error.strerror).lower()}"
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
