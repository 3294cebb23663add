"""``unicron notify``: the channels of a cluster file, and a test message over each."""

import argparse
import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.alerts.alert import Alert
from controller.alerts.alert_gate import AlertMessage
from controller.alerts.message_texts import message_text
from controller.alerts.notify_tables import ChannelError, NotifyChannel
from controller.alerts.sending import send, without_secrets
from controller.arguments import HelpText, file_path
from controller.clusterfile.cluster_reader import Cluster, load_cluster
from controller.clusterfile.controller_choice import DEFAULT_FILE, VARIABLE
from controller.clusterfile.file_mistakes import ClusterFileError
from controller.printing import plain_console, print_table, refuse

_PROGRAM: Final = "unicron notify"
_EXIT_UNKNOWN: Final = 4
_EPILOG: Final = """\
Channels are [[notify]] tables of the cluster file:

  [[notify]]
  name = "on-call"
  url_file = "/etc/unicron/pagerduty.url"   # or url = "slack://...": https://appriseit.com has them all
  severity = "critical"                     # or warning (the default), or info

Without --test the channels are listed. With it, each gets a message from this machine, now; no controller is needed.
The controller of the cluster sends from its own machine.

exit codes:
  0  done; with --test: every message was taken
  1  a message could not be sent; the line says why
  2  wrong options, or a mistake in the cluster file
  4  there is no channel of that name

examples:
  unicron notify
  unicron notify --test
  unicron notify on-call --test --json
"""


@dataclass(frozen=True, slots=True)
class _Outcome:
    channel: NotifyChannel
    problem: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron notify``."""
    parser.formatter_class, parser.epilog = HelpText, _EPILOG
    parser.add_argument("channels", nargs="*", metavar="CHANNEL", help="only these channels")
    parser.add_argument(
        "--cluster",
        type=file_path,
        metavar="FILE",
        help=f"the cluster file (default: ${VARIABLE}, else ./{DEFAULT_FILE})",
    )
    parser.add_argument("--test", action="store_true", help="send a test message over each")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """List or test the channels; return the exit code."""
    path = arguments.cluster or Path(os.environ.get(VARIABLE) or DEFAULT_FILE)
    try:
        cluster = load_cluster(path)
    except ClusterFileError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    known = {channel.name: channel for channel in cluster.channels}
    for name in arguments.channels:
        if name not in known:
            are = f"{', '.join(known)} exist" if known else f"{path} has no [[notify]] table"
            refuse(_PROGRAM, f"there is no channel {name}: {are}")
            return _EXIT_UNKNOWN
    chosen = [known[name] for name in arguments.channels] or list(known.values())
    if not arguments.test:
        _list(chosen, path, is_json=arguments.json)
        return 0
    outcomes = asyncio.run(_test(cluster, chosen))
    _print(outcomes, is_json=arguments.json)
    return 1 if any(each.problem for each in outcomes) else 0


async def _test(cluster: Cluster, channels: list[NotifyChannel]) -> list[_Outcome]:
    alert = Alert(
        "test",
        "info",
        "this is a test of unicron notify",
        (("what", "somebody tries out this channel"), ("needs", "nothing")),
        ("unicron alerts",),
    )
    text = message_text(cluster.name, cluster.path, AlertMessage((alert,)))

    async def outcome(channel: NotifyChannel) -> _Outcome:
        try:
            return _Outcome(channel, await send(channel.read_url(), text))
        except ChannelError as error:
            return _Outcome(channel, str(error))

    async with asyncio.TaskGroup() as group:
        sending = [group.create_task(outcome(channel)) for channel in channels]
    return [each.result() for each in sending]


def _list(channels: list[NotifyChannel], path: Path, *, is_json: bool) -> None:
    if is_json:
        rows = [
            {
                "name": each.name,
                "leads_to": _leads_to(each),
                "severity": each.severity,
                "tasks": each.tasks,
                "most_per_hour": each.most_per_hour,
            }
            for each in channels
        ]
        sys.stdout.write(f"{json.dumps(rows)}\n")
    elif not channels:
        sys.stdout.write(f"{path} has no [[notify]] table: nobody is notified\n")
    else:
        print_table(
            plain_console(),
            ("channel", "leads to", "severity", "tasks", "an hour at most"),
            [
                (
                    each.name,
                    _leads_to(each),
                    each.severity,
                    ", ".join(each.tasks) or "all",
                    str(each.most_per_hour),
                )
                for each in channels
            ],
            numbers=frozenset({4}),
        )


def _leads_to(channel: NotifyChannel) -> str:
    return str(channel.url_file) if channel.url_file else without_secrets(channel.url, channel.url)


def _print(outcomes: list[_Outcome], *, is_json: bool) -> None:
    if is_json:
        rows = [
            {"name": each.channel.name, "is_ok": not each.problem, "problem": each.problem}
            for each in outcomes
        ]
        sys.stdout.write(f"{json.dumps(rows)}\n")
        return
    for each in outcomes:
        sys.stdout.write(f"{each.channel.name}: {each.problem or 'sent'}\n")
    if not outcomes:
        sys.stdout.write("there is no [[notify]] table: nobody is notified\n")
