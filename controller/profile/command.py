"""``unicron profile``: what models achieve on clusters."""

import argparse

from controller.profile import check, estimate, tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron profile``."""
    what = parser.add_subparsers(dest="what", required=True, metavar="{estimate,check,show,merge}")
    estimate.add_arguments(what)
    check.add_arguments(what)
    tables.add_arguments(what)


def run(arguments: argparse.Namespace) -> int:
    """Run one of them and return its exit code."""
    if arguments.what in {"show", "merge"}:
        return tables.run(arguments)
    return check.run(arguments) if arguments.what == "check" else estimate.run(arguments)
