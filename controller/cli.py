"""The command line of the controller: ``unicron COMMAND``."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from controller.arguments import Parser
from controller.classify import command as classify, options as classify_options
from controller.demo import command as demo, options as demo_options
from controller.demo.matrix import command as drill, options as drill_options
from controller.operate import command as operate
from controller.operate.present import read_cluster
from controller.plan import command as plan
from controller.printing import drop_output, is_of_output, refuse
from controller.profile import command as profile
from controller.settings import command as policy
from controller.simulation import command as simulate

_DESCRIPTION = """\
Unicron keeps Megatron training alive: it names faults, takes the cheapest cure, and divides the
workers that are left over all tasks so that the most weighted FLOP/s come out.
"""


@dataclass(frozen=True, slots=True)
class _Command:
    name: str
    help: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


_COMMANDS = (
    _Command(
        "demo",
        "heal two real training tasks on a local cluster of SSH nodes",
        "Build a local cluster of SSH nodes, train two Megatron tasks on it, break it, and watch it"
        " heal. Everything ends with the demo.",
        demo_options.add_arguments,
        demo.run,
    ),
    _Command(
        "classify",
        "name the faults in logs of ranks, kernels and monitors",
        "Read stderr, kernel and monitor logs and name the faults in them: status, severity, the line"
        " that shows it, and what to do first.",
        classify_options.add_arguments,
        classify.run,
    ),
    _Command(
        "drill",
        "explain what can be broken on purpose, and check that it is seen for what it is",
        "Drills stage faults in a local cluster. Every one is explained, and the matrix runs them all"
        " and compares what was seen with what should be.",
        drill_options.add_arguments,
        drill.run,
    ),
    _Command(
        "plan",
        "divide workers over tasks, of a file or of a cluster",
        "Ask the planner what it would do with the workers and tasks of a file, or of a cluster if something"
        " were different there.",
        plan.add_arguments,
        plan.run,
    ),
    _Command(
        "policy",
        "explain what is done about which fault",
        "What the controller does about which fault.",
        policy.add_arguments,
        policy.run,
    ),
    _Command(
        "profile",
        "estimate and measure what models achieve on clusters",
        "What models achieve on clusters of any size, in their best layouts.",
        profile.add_arguments,
        profile.run,
    ),
    _Command(
        "simulate",
        "show what policies make of months of faults",
        "Run the controller's own core, and other ways to handle failures, through months of faults on a"
        " modelled cluster, which may begin as a real one is now, in seconds.",
        simulate.add_arguments,
        partial(simulate.run, read_cluster=read_cluster),
    ),
    _Command(
        "uncordon",
        "take an isolated node back into service",
        "Ask a running controller to take an isolated node back into service.",
        operate.add_uncordon_arguments,
        operate.run_uncordon,
    ),
    _Command(
        "unreachable",
        "say whether a node out of contact is lost",
        "Tell a running controller whether a node out of contact is lost, or is to be waited for.",
        operate.add_unreachable_arguments,
        operate.run_unreachable,
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
    for command in _COMMANDS:
        command.add_arguments(
            commands.add_parser(command.name, help=command.help, description=command.description)
        )
    parsed = parser.parse_args(arguments)
    run = next(command.run for command in _COMMANDS if command.name == parsed.command)
    try:
        code = run(parsed)
        sys.stdout.flush()
    except OSError as error:
        if parsed.command == "demo" or not is_of_output(error):
            raise  # a demo writes much else
        drop_output()
        return refuse(
            f"unicron {parsed.command}", f"standard output: {str(error.strerror).lower()}"
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
