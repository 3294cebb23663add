"""``unicron policy explain``: prints how the controller responds to each fault."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from controller.arguments import HelpText
from controller.core.rules.policy import Policy
from controller.settings.explain_policy import actions, as_json, rules, settings_of, statuses
from controller.settings.settings_file import SettingsError, load_policy

_EPILOG = """\
A settings file is TOML. Every key of [policy] is optional; times are seconds:

  [policy]
  is_auto_heal = true        # apply plans without an operator's approval
  network_alerts = 2         # isolate a node after this many network faults ...
  network_window_s = 300     # ... within this time
  restarts = 3               # isolate a node after this many SEV2 faults within restart_window_s
  asks_before_loss = true    # ask an operator before an unreachable node is declared lost
  max_recoveries = 3         # hold a task after this many recoveries without a new iteration
  held_retries = 3           # with auto-heal, try a held task again this often

  [failure_domains]          # nodes that fail together; a task's replicas are spread over the domains
  rack-1 = ["n1", "n2"]

examples:
  unicron policy explain
  unicron policy explain --cluster cluster.toml
  unicron policy explain --settings settings.toml --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron policy``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="explain")
    explain = actions.add_parser(
        "explain",
        help="print the action for each fault, the escalation rules, and every setting",
        description="Print the policy: the first action for each fault, the rules of escalation, the"
        " decisions left to operators, and every setting with its value.",
        formatter_class=HelpText,
        epilog=_EPILOG,
    )
    source = explain.add_mutually_exclusive_group()
    source.add_argument(
        "--cluster",
        type=Path,
        metavar="FILE",
        help="a cluster file: its [policy] and [[approval]] tables, with those of its includes",
    )
    source.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help="TOML file with a [policy] section (default: the default settings)",
    )
    explain.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace, policy_of: Callable[[Path], Policy]) -> int:
    """Print the explanation; return 0, or 2 if the file is wrong.

    ``policy_of`` reads a cluster file, and raises ``SettingsError``.
    """
    try:
        if arguments.cluster:
            policy = policy_of(arguments.cluster)
        else:
            policy = load_policy(arguments.settings) if arguments.settings else Policy()
    except SettingsError as error:
        sys.stderr.write(f"unicron policy: {error}\n")
        return 2
    if arguments.json:
        sys.stdout.write(f"{json.dumps(as_json(policy), indent=2)}\n")
        return 0
    console = Console()
    faults = Table(
        "status", "severity", "first action", "meaning", title="Faults", title_justify="left"
    )
    for row in statuses():
        faults.add_row(row["status"], row["severity"], row["action"], row["meaning"])
    console.print(faults)
    for action, text in actions().items():
        console.print(f"[bold]{action}[/bold]: {text}")
    console.print("\n[bold]Rules[/bold]")
    for rule in rules(policy):
        console.print(f"- {rule}", highlight=False)
    settings = Table("setting", "value", "meaning", title="\nSettings", title_justify="left")
    for one in settings_of(policy):
        value = one.value if one.is_default else f"{one.value} (from the file)"
        settings.add_row(one.name, value, one.meaning)
    console.print(settings)
    return 0
