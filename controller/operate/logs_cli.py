"""``unicron logs``: what the ranks of a task write, and what they write next."""

import argparse
import json
import sys
import time
from contextlib import suppress
from typing import Any, Final

from controller.api.client import ask
from controller.api.wire import LogPosition, ReadLogs
from controller.arguments import count_of, positive_int
from controller.operate.asking import (
    EXIT_UNKNOWN,
    RefusedError,
    add_common,
    complete_names,
    explained,
    guarded,
    who_asks,
)
from controller.printing import refuse
from profiles.records import on_one_line

_INTERVAL_S: Final = 1.0
_MOST_BYTES: Final = 65_536


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron logs``."""
    add_common(
        parser,
        "The controller asks the nodes for the output of the ranks: standard output and standard error. Of several"
        "\nranks each line begins with the rank. A rank that has ended is shown as far as its node keeps its log."
        "\nWith --json each line is an object of its own.",
        (
            "unicron logs gpt-a:0",
            "unicron logs gpt-a:0,3 --follow",
            "unicron logs gpt-a --tail 2",
            "unicron logs gpt-a:1 --previous",
        ),
    )  # fmt: skip
    task = parser.add_argument(
        "ranks", metavar="TASK[:RANK[,RANK]]", help="the task, and which of its ranks (all)"
    )
    complete_names(task, "task")
    parser.add_argument(
        "--follow", action="store_true", help="then print each new line, until Ctrl-C"
    )
    parser.add_argument(
        "--tail", type=positive_int, default=20, metavar="N",
        help="the last N lines of each rank (default 20), of 64 KiB at most",
    )  # fmt: skip

    parser.add_argument(
        "--previous", action="store_true",
        help="the output of the process that each rank had before this one: what it wrote before it ended",
    )  # fmt: skip
    node = parser.add_argument(
        "--node", metavar="NODE", help="read on this node, where the ranks may have run before"
    )
    complete_names(node, "node")


def run(arguments: argparse.Namespace) -> int:
    """Print the output; return the exit code."""
    if arguments.previous and arguments.follow:
        return refuse("unicron logs", "--previous has an end: it can't be followed")
    task, colon, numbers = arguments.ranks.partition(":")
    ranks = [count_of(number) for number in numbers.split(",")] if colon else []
    if not task or None in ranks:
        text = f"{arguments.ranks}: write TASK, or TASK:RANK, or TASK:RANK,RANK"
        return refuse("unicron logs", text)
    reader = _Reader(arguments, task, tuple(number for number in ranks if number is not None))

    def work() -> int:
        with suppress(KeyboardInterrupt):
            reader.read(arguments.tail)
            while arguments.follow:
                time.sleep(_INTERVAL_S)
                reader.read(None)
        return 1 if reader.has_nothing else 0

    return guarded(arguments, work)


class _Reader:
    """Reads the output of ranks, each part once."""

    def __init__(self, arguments: argparse.Namespace, task: str, ranks: tuple[int, ...]) -> None:
        self._arguments, self._task, self._ranks = arguments, task, ranks
        self._after: dict[int, LogPosition] = {}
        self._begun: dict[int, str] = {}
        """By rank, a line that has no end yet."""
        self._errors: dict[int, str] = {}
        self.has_nothing = False
        """Whether no rank had any output that could be read."""

    def read(self, tail: int | None) -> None:
        """Print what is new; of the first part the last ``tail`` lines of each rank.

        Raises:
            RefusedError: The controller refuses.
            NoControllerError: No controller answers.
        """
        request_id, actor = who_asks()
        question = ReadLogs(
            request_id=request_id, actor=actor, task=self._task, ranks=self._ranks,
            after=self._after, max_bytes=_MOST_BYTES, is_previous=self._arguments.previous,
            node=self._arguments.node or "",
        )  # fmt: skip
        reply = ask(self._arguments.connect, question)
        if not reply.is_ok:
            code = EXIT_UNKNOWN if reply.code == "unknown" else 1
            raise RefusedError(explained(reply), code)
        data: dict[str, Any] = reply.data or {}
        if self._arguments.previous and not data.get("is_previous"):
            raise RefusedError("this controller is too old to read what former processes wrote")
        logs = data.get("logs", [])
        self.has_nothing = bool(logs) and all(log.get("error") for log in logs)
        for log in logs:
            self._print(log, tail, is_alone=len(logs) == 1)
        sys.stdout.flush()

    def _print(self, log: dict[str, Any], tail: int | None, *, is_alone: bool) -> None:
        rank, error = log["rank"], log.get("error", "")
        if error != self._errors.get(rank, ""):
            self._errors[rank] = error
            if error:
                sys.stderr.write(f"rank {rank} on {log['node']}: {on_one_line(error)}\n")
        if error:
            return
        self._after[rank] = LogPosition(name=log["name"], end=log["end"])
        *lines, begun = (self._begun.pop(rank, "") + log["text"]).split("\n")
        if tail is not None and not self._arguments.follow and begun:
            lines, begun = [*lines, begun], ""
        self._begun[rank] = begun
        for line in lines if tail is None else lines[-tail:]:
            if self._arguments.json:
                told = {"rank": rank, "node": log["node"], "line": line}
                sys.stdout.write(json.dumps(told) + "\n")
            else:
                head = "" if is_alone else f"{rank:>4} | "
                sys.stdout.write(f"{head}{on_one_line(line)}\n")
