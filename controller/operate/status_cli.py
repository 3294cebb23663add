"""``unicron status``: what a running controller knows, once or again and again."""

import argparse

from controller.operate.asking import add_common
from controller.operate.showing import Shown, add_watch, show
from controller.operate.status_report import as_json, tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron status``."""
    add_common(
        parser,
        "With --json it prints one object, with all incidents and plans.",
        (
            "unicron status",
            "unicron status --cluster cluster.toml --watch",
            "unicron status --json | jq '.tasks[] | {name, phase, iteration}'",
            "unicron status --json | jq '.incidents[] | select(.state != \"resolved\")'",
        ),
    )
    add_watch(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the status; return the exit code."""
    return show(
        arguments,
        Shown(
            lambda view: tables(view, arguments.connect),
            lambda view: as_json(view, arguments.connect),
        ),
    )
