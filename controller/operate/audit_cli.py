"""``unicron audit``: the requests of operators to the controller, with their answers."""

import argparse
import json
import sys
from datetime import UTC, datetime
from typing import Any

from controller.api.client import ask
from controller.api.wire import ReadHistory
from controller.arguments import positive_int
from controller.operate.asking import (
    RefusedError,
    add_common,
    complete_names,
    explained,
    guarded,
    who_asks,
)
from controller.operate.showing import newest_view
from controller.printing import plain_console, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron audit``."""
    add_common(
        parser,
        "Each request of an operator that changes something is recorded with its answer, by this and by"
        " former\ncontrollers, refused ones too. Without a controller: `unicron history audit DIR`.\n"
        "With --json each request is an object of its own.",
        ("unicron audit", "unicron audit --name n3", "unicron audit --json | jq 'select(.code != \"ok\")'"),
    )  # fmt: skip
    name = parser.add_argument("--name", help="only about this plan, node, task or measurement")
    complete_names(name, "task", "node", "plan")
    parser.add_argument(
        "--limit", type=positive_int, default=50, metavar="N", help="the newest N (default 50)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the requests; return the exit code."""

    def work() -> int:
        started_wall_s = newest_view(arguments.connect).started_wall_s
        request_id, actor = who_asks()
        question = ReadHistory(
            request_id=request_id, actor=actor, table="audit", name=arguments.name,
            limit=min(arguments.limit, 10_000),
        )  # fmt: skip
        reply = ask(arguments.connect, question)
        if not reply.is_ok or reply.data is None:
            raise RefusedError(explained(reply))
        rows: Any = reply.data["rows"]
        for row in rows:
            moment = datetime.fromtimestamp(started_wall_s + row["at"], tz=UTC)
            row["time"] = moment.isoformat(timespec="seconds")
        _print(rows, is_json=arguments.json)
        return 0

    return guarded(arguments, work)


def _print(rows: list[dict[str, Any]], *, is_json: bool) -> None:
    if is_json:
        sys.stdout.writelines(f"{json.dumps(row)}\n" for row in rows)
        return
    if not rows:
        sys.stdout.write("nobody has asked for anything\n")
        return
    print_table(
        plain_console(),
        ("when", "who", "what", "about", "outcome"),
        [
            (
                datetime.fromisoformat(row["time"]).astimezone().strftime("%Y-%m-%d %H:%M:%S"),
                row["actor"],
                row["verb"],
                row["subject"],
                row["outcome"] if row["code"] == "ok" else f"refused: {row['outcome']}",
            )
            for row in rows
        ],
    )
