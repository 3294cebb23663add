"""The command line of the controller: ``unicron COMMAND``."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from controller.classify import command as classify, options as classify_options
from controller.demo import command as demo, options as demo_options
from controller.demo.matrix import command as drill, options as drill_options
from controller.operate import command as operate
from controller.settings import command as policy

_DESCRIPTION = """\
Unicron keeps Megatron training alive: it names faults, takes the cheapest cure, and divides the
workers that are left over all tasks so that the most weighted FLOP/s come out.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="unicron",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Start here: unicron-console --demo, or unicron demo --help",
    )
    parser.add_argument("--version", action="version", version=f"unicron {version('unicron')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo_options.add_arguments(
        commands.add_parser(
            "demo",
            help="heal two real training tasks on a local cluster of SSH nodes",
            description="Build a local cluster of SSH nodes, train two Megatron tasks on it, break"
            " it, and watch it heal. Everything ends with the demo.",
        )
    )
    classify_options.add_arguments(
        commands.add_parser(
            "classify",
            help="name the faults in logs of ranks, kernels and monitors",
            description="Read stderr, kernel and monitor logs and name the faults in them: status,"
            " severity, the line that shows it, and what to do first.",
        )
    )
    drill_options.add_arguments(
        commands.add_parser(
            "drill",
            help="explain what can be broken on purpose, and check that it is seen for what it is",
            description="Drills stage faults in a local cluster. Every one is explained, and the"
            " matrix runs them all and compares what was seen with what should be.",
        )
    )
    policy.add_arguments(
        commands.add_parser(
            "policy",
            help="explain what is done about which fault",
            description="What the controller does about which fault.",
        )
    )
    operate.add_uncordon_arguments(
        commands.add_parser(
            "uncordon",
            help="take an isolated node back into service",
            description="Ask a running controller to take an isolated node back into service.",
        )
    )
    operate.add_unreachable_arguments(
        commands.add_parser(
            "unreachable",
            help="say whether a node out of contact is lost",
            description="Tell a running controller whether a node out of contact is lost, or is to be"
            " waited for.",
        )
    )
    parsed = parser.parse_args(arguments)
    run = {
        "demo": demo.run,
        "classify": classify.run,
        "drill": drill.run,
        "policy": policy.run,
        "uncordon": operate.run_uncordon,
        "unreachable": operate.run_unreachable,
    }[parsed.command]
    return run(parsed)


if __name__ == "__main__":
    sys.exit(main())
