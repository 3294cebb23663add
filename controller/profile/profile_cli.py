"""``unicron profile``: what models achieve on clusters."""

import argparse

from controller.profile import check, estimate, measure, table_commands as tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron profile``."""
    what = parser.add_subparsers(
        dest="what", required=True, metavar="{estimate,check,measure,show,merge}"
    )
    estimate.add_arguments(what)
    check.add_arguments(what)
    measure.add_arguments(what)
    tables.add_arguments(what)


def run(arguments: argparse.Namespace) -> int:
    """Run one of them and return its exit code."""
    run_of = {"estimate": estimate.run, "check": check.run, "measure": measure.run}
    return run_of.get(arguments.what, tables.run)(arguments)
