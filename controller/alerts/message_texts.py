"""The text of a message: title, and a block of lines for each alert."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, NamedTuple

from controller.alerts.alert import Alert
from controller.alerts.alert_gate import AlertMessage

MessageKind = Literal["failure", "warning", "info", "success"]
"""Kinds of messages of apprise, which give them a colour or a symbol."""
_KINDS: Final[dict[str, MessageKind]] = {
    "critical": "failure", "warning": "warning", "info": "info"
}  # fmt: skip
_MOST_BLOCKS: Final = 20


class MessageText(NamedTuple):
    """What is handed to apprise."""

    title: str
    body: str
    kind: MessageKind


def message_text(cluster: str, path: Path, message: AlertMessage) -> MessageText:
    """Return the text of a message about a cluster, whose file is at ``path``."""
    first, *more = message.alerts
    others = f" (and {len(more)} more)" if more else ""
    blocks = [alert_text(path, alert) for alert in message.alerts[:_MOST_BLOCKS]]
    if left := [alert.title for alert in message.alerts[_MOST_BLOCKS:]]:
        blocks.append("\n".join(["and:", *left]))
    if message.note:
        blocks.append(message.note)
    kind = "success" if first.is_over else _KINDS[first.severity]
    return MessageText(f"[unicron {cluster}] {first.title}{others}", "\n\n".join(blocks), kind)


def alert_text(path: Path, alert: Alert) -> str:
    """Return the lines of one alert."""
    rows = [*alert.facts, *(("type", each) for each in full_commands(path, alert.commands))]
    return "\n".join([alert.title, *(f"{label + ':':<7}{text}" for label, text in rows)])


def full_commands(path: Path, commands: Iterable[str]) -> Iterable[str]:
    """Yield commands as they work in any directory."""
    return (f"{command} --cluster {shlex.quote(str(path))}" for command in commands)
