"""What a person should know or decide now, the most urgent first, with the command that helps.

These are the alerts of ``unicron alerts``, found in the same view.
"""

from typing import Final

from console.viewmodel.console_state import State
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import seconds
from console.viewmodel.drawing.table_layout import Column, TableRow, TextTable, draw
from console.viewmodel.drawing.text import Tone, cell
from console.viewmodel.words import StateWord, marked
from controller.alerts.alert import Alert, AlertSeverity
from controller.alerts.present_alerts import present_alerts

_WORDS: Final[dict[AlertSeverity, StateWord]] = {
    "critical": ("bad", "critical", Tone.BAD),
    "warning": ("warn", "warning", Tone.WARN),
    "info": ("dot", "info", Tone.DIM),
}


def alerts_of(state: State) -> list[Alert]:
    """Return the alerts of the newest view that are not over."""
    view = state.view
    return [] if view is None else [each for each in present_alerts(view) if not each.is_over]


def alert_table(state: State, width: int, glyphs: Glyphs) -> TextTable:
    """Return one row per alert."""
    alerts = alerts_of(state)
    columns = (
        Column("severity", f"ALERTS {len(alerts)}", 0, least=10),
        Column("title", "what", 0, least=20, most=90),
        Column("age", "age", 2, least=6, align_right=True),
        Column("command", "in a shell", 1, least=16, most=60, is_flexible=True),
    )
    return draw(columns, [_row(state, alert, glyphs) for alert in alerts], width, glyphs)


def _row(state: State, alert: Alert, glyphs: Glyphs) -> TableRow:
    cells = {
        "severity": marked(_WORDS[alert.severity], glyphs),
        "title": cell(alert.title),
    }
    if alert.since is not None:
        cells["age"] = cell(seconds(state.cluster_now - alert.since), Tone.DIM)
    if alert.commands:
        cells["command"] = cell(alert.commands[0], Tone.KEY)
    return TableRow(alert.key, cells)
