"""``unicron profile``: dispatches to its commands."""

import argparse

from controller.profile import check, estimate, measure, table_commands as tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron profile``."""
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="{estimate,check,measure,show,merge}"
    )
    estimate.add_arguments(actions)
    check.add_arguments(actions)
    measure.add_arguments(actions)
    tables.add_arguments(actions)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    run_of = {"estimate": estimate.run, "check": check.run, "measure": measure.run}
    return run_of.get(arguments.action, tables.run)(arguments)
