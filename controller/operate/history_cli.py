"""``unicron history``: what a run has been through, from the file that its controller writes."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

from controller.arguments import HelpText, positive_int
from controller.printing import plain_console, print_table, refuse
from controller.store.history import HISTORY_NAME, HistoryError, read_rows

_PROGRAM: Final = "unicron history"
_EPILOG: Final = """\
DIR is the directory of a controller's run. Its controller may run meanwhile. Times are seconds since the start of
the run. `keep_days` and `keep_mb` in [cluster] say how much is kept.

exit codes:
  0  done
  2  wrong arguments, or there is no history in DIR

examples:
  unicron history iterations /var/lib/unicron/run --name gpt-a --limit 20
  unicron history incidents /var/lib/unicron/run --json | jq 'select(.status == "gpu_lost")'
  unicron history lines /var/lib/unicron/run --since 86400
"""
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "iterations": ("at", "task", "iteration", "generation", "loss", "duration_s", "is_rerun"),
    "incidents": ("id", "fault_at", "task", "node", "status", "action", "state", "recovery_s"),
    "plans": ("id", "revision", "created_at", "seen", "state", "waf_before", "waf_after"),
    "lines": ("at", "level", "source", "text"),
    "audit": ("at", "actor", "verb", "subject", "code", "outcome"),
}
_WORDS: Final = frozenset(
    {
        "task",
        "node",
        "status",
        "action",
        "state",
        "id",
        "seen",
        "level",
        "source",
        "text",
        "actor",
        "verb",
        "subject",
        "code",
        "outcome",
    }
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron history``."""
    parser.formatter_class, parser.epilog = HelpText, _EPILOG
    parser.add_argument("table", choices=sorted(_COLUMNS), help="what to show")
    parser.add_argument("directory", metavar="DIR", type=Path, help="the directory of the run")
    parser.add_argument(
        "--name", help="only of this task, incident or plan, or about this node, task or plan"
    )
    parser.add_argument(
        "--since", type=float, default=0.0, metavar="SECONDS", help="leave out what was before"
    )
    parser.add_argument(
        "--limit", type=positive_int, default=100, metavar="N", help="the newest N (default 100)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


def run(arguments: argparse.Namespace) -> int:
    """Print a table of the history; return the exit code."""
    path = arguments.directory / HISTORY_NAME
    if not path.is_file():
        text = f"{arguments.directory}: there is no {HISTORY_NAME}; name the directory of a run"
        return refuse(_PROGRAM, text)
    try:
        rows = list(
            read_rows(
                path, arguments.table, since=arguments.since, name=arguments.name,
                limit=arguments.limit,
            )
        )  # fmt: skip
    except HistoryError as error:
        return refuse(_PROGRAM, str(error))
    if arguments.json:
        sys.stdout.writelines(f"{json.dumps(row)}\n" for row in rows)
        return 0
    columns = _COLUMNS[arguments.table]
    print_table(
        plain_console(),
        [name.removesuffix("_s").replace("_", " ") for name in columns],
        [[_cell(row.get(name)) for name in columns] for row in rows],
        numbers={n for n, name in enumerate(columns) if name not in _WORDS},
    )
    return 0


def _cell(value: Any) -> str:  # noqa: ANN401 - of JSON
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else ""
        case float():
            return f"{value:,.3f}" if abs(value) < 1e6 else f"{value:.3g}"
        case _:
            return str(value)
