"""``unicron reload``: has the controller take its changed cluster file in."""

import argparse
import json
import sys
from typing import Any

from controller.api.client import ask
from controller.api.wire import ReloadFile, Reply
from controller.operate.asking import (
    EXIT_CODES_OF_PLANS,
    RefusedError,
    add_common,
    explained,
    guarded,
    printed,
    who_asks,
)
from profiles.records import on_one_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron reload``."""
    add_common(
        parser,
        "The controller reads the cluster file that it was started with, and says what has changed. Nodes and tasks"
        "\nthat left the file leave the cluster; you are asked before. What operators have ordered stays, unless the"
        "\nfile itself gets another value for it. A mistake in the file changes nothing.",
        ("unicron reload --dry-run", "unicron reload", "unicron reload --yes --json"),
        EXIT_CODES_OF_PLANS.replace("the plan was decided or", "the file or the cluster"),
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="only say what it would do")
    parser.add_argument(
        "--yes", action="store_true", help="do not ask before tasks or nodes are removed"
    )


def run(arguments: argparse.Namespace) -> int:
    """Say what has changed, and have it taken in; return the exit code."""

    def work() -> int:
        request_id, actor = who_asks()
        look = ReloadFile(request_id=request_id, actor=actor, is_dry_run=True)
        reply = _answered(arguments, look)
        changes: Any = (reply.data or {}).get("changes", [])
        if arguments.dry_run and arguments.json:
            sys.stdout.write(json.dumps({"changes": changes}) + "\n")
            return 0
        if not arguments.json:
            sys.stdout.writelines(f"{on_one_line(line)}\n" for line in changes)
        if arguments.dry_run or not changes:
            if not changes and not arguments.json:
                sys.stdout.write(f"{reply.message}\n")
            return 0
        if not arguments.yes and any(_removes(line) for line in changes):
            _confirm()
        request_id, actor = who_asks()
        request = ReloadFile(request_id=request_id, actor=actor, expected=tuple(changes))
        return printed(arguments, _answered(arguments, request))

    return guarded(arguments, work)


def _answered(arguments: argparse.Namespace, request: ReloadFile) -> Reply:
    reply = ask(arguments.connect, request)
    if reply.code == "invalid":
        raise RefusedError(explained(reply).replace("\n", "; "), 2)
    if not reply.is_ok and request.is_dry_run:
        raise RefusedError(explained(reply))
    return reply


def _removes(line: str) -> bool:
    return " leaves" in line


def _confirm() -> None:
    """Ask whether tasks or nodes may be removed.

    Raises:
        RefusedError: They may not, or nobody can be asked.
    """
    if not sys.stdin.isatty():
        raise RefusedError("this removes tasks or nodes: add --yes", 2)
    sys.stderr.write("take this in? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise RefusedError("not confirmed: nothing was changed", 2)
