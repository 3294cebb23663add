"""``unicron alerts``: what a person should know or decide now, with the commands to type."""

import argparse
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from controller.alerts.alert import Alert, AlertSeverity, severity_rank
from controller.alerts.present_alerts import present_alerts, utc_of
from controller.api.views import ClusterView
from controller.operate.asking import add_common
from controller.operate.showing import Shown, add_watch, show
from controller.operate.status_report import StatusTable

_CHOICES: Final[tuple[AlertSeverity, ...]] = ("info", "warning", "critical")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron alerts``."""
    add_common(
        parser,
        "The alerts of now, the most urgent first. critical: a person has to decide. warning: one has to"
        " look today.\ninfo: Unicron cures it by itself. The channels of [[notify]] tables get the same.",
        (
            "unicron alerts",
            "unicron alerts --severity critical --watch",
            "unicron alerts --json | jq -r '.[].commands[]'",
        ),
    )
    add_watch(parser)
    parser.add_argument(
        "--severity", choices=_CHOICES, default="info", help="these and more urgent ones only"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print them; return the exit code."""

    def chosen(view: ClusterView) -> list[Alert]:
        least = severity_rank(arguments.severity)
        return [each for each in present_alerts(view) if not each.is_over and each.rank >= least]

    return show(
        arguments,
        Shown(
            lambda view: [_table(view, chosen(view))],
            lambda view: [_as_json(view, each) for each in chosen(view)],
        ),
    )


def _table(view: ClusterView, alerts: Iterable[Alert]) -> StatusTable:
    rows: list[tuple[str, ...]] = [
        (each.severity, _since(view, each), each.title, _need(each), "; ".join(each.commands))
        for each in alerts
    ]
    return StatusTable("alerts", ("severity", "since", "what", "needs", "type"), rows)


def _need(alert: Alert) -> str:
    return dict(alert.facts).get("needs", "")


def _as_json(view: ClusterView, alert: Alert) -> dict[str, Any]:
    return {**asdict(alert), "facts": dict(alert.facts), "since_utc": _since(view, alert)}


def _since(view: ClusterView, alert: Alert) -> str:
    return "" if alert.since is None else utc_of(view, alert.since)
