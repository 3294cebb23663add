"""Incidents, newest first: status, place, action, and how long detection and cure took."""

from typing import Final

from console.viewmodel.console_state import State
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import latency, seconds
from console.viewmodel.drawing.table_layout import Column, TableRow, TextTable, draw
from console.viewmodel.drawing.text import Cell, Line, Tone, cell, fit, span
from console.viewmodel.words import INCIDENT_WORDS, SEVERITY_TONES, marked
from controller.api.views import IncidentView

_MAX_NODES: Final = 2
"""Nodes of an incident that are named."""


def incident_table(state: State, width: int, glyphs: Glyphs) -> TextTable:
    """Return one row per incident, newest first.

    ``found`` is the time from the fault to its detection, ``cured`` from the fault to its end; an
    open incident shows its age there instead. A task that prints no iteration has neither.
    """
    incidents = list(reversed(state.view.incidents)) if state.view else []
    columns = (
        Column("id", f"INCIDENTS {len(incidents)}", 0, least=11, most=14),
        Column("severity", "sev", 2, least=4),
        Column("status", "status", 0, least=12, most=24 if width < 80 else 34),
        Column("where", "where", 1, least=8, most=30),
        Column("action", "action", 5, least=9, most=14),
        Column("state", "state", 0, least=10),
        Column("found", "found", 4, least=6, align_right=True),
        Column("cured", "cured", 3, least=6, align_right=True),
        Column("reason", "reason", 6, least=16, is_flexible=True),
    )
    rows = [_row(state, incident, glyphs) for incident in incidents]
    return draw(columns, rows, width, glyphs)


def _row(state: State, incident: IncidentView, glyphs: Glyphs) -> TableRow:
    tone = SEVERITY_TONES.get(incident.severity, Tone.PLAIN)
    cells = {
        "id": cell(incident.id, Tone.STRONG),
        "severity": cell(incident.severity, tone),
        "status": cell(incident.status),
        "where": cell(where(incident, glyphs)),
        "action": cell(incident.action or glyphs.dash),
        "state": marked(INCIDENT_WORDS[incident.state], glyphs),
        "found": cell(
            glyphs.dash
            if incident.is_recovery_unseen
            else latency(incident.detected_at - incident.fault_at)
        ),
        "cured": _cured(state, incident, glyphs),
    }
    if incident.reason:
        cells["reason"] = cell(incident.reason, Tone.DIM)
    return TableRow(incident.id, cells)


def incident_line(state: State, incident: IncidentView, width: int, glyphs: Glyphs) -> Line:
    """Return an incident in one line, for lists about a task or a node."""
    tone = SEVERITY_TONES.get(incident.severity, Tone.PLAIN)
    spans = (
        span(f"{incident.id:<8}", Tone.STRONG),
        span(f"{incident.severity:<5}", tone),
        *marked(INCIDENT_WORDS[incident.state], glyphs),
        span(f"  {incident.status} on {where(incident, glyphs)}  "),
        *_cured(state, incident, glyphs),
    )
    return Line(fit(spans, width, glyphs.ellipsis))


def _cured(state: State, incident: IncidentView, glyphs: Glyphs) -> Cell:
    if incident.resolved_at is None:
        return (span(f"open {seconds(state.cluster_now - incident.fault_at)}", Tone.WARN),)
    if incident.is_recovery_unseen:
        return cell(glyphs.dash)
    return cell(latency(incident.resolved_at - incident.fault_at))


def _nodes(incident: IncidentView) -> str:
    """Return the nodes of an incident: both of two, and else the first and how many more."""
    if len(incident.nodes) > _MAX_NODES:
        return f"{incident.nodes[0]} and {len(incident.nodes) - 1} more"
    return ", ".join(incident.nodes) or incident.node or ""


def where(incident: IncidentView, glyphs: Glyphs) -> str:
    """Return what an incident hit: ``gpt-a rank 1 on n2``, as far as it is known."""
    words = [incident.task] if incident.task else []
    if incident.rank is not None:
        words.append(f"rank {incident.rank}")
    nodes = _nodes(incident)
    if nodes:
        words.append(f"on {nodes}" if words else nodes)
    return " ".join(words) or glyphs.dash
