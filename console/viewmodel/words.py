"""Conditions, phases and levels as a sign, a word and a tone.

The tables are total over their enumerations, so a new member is found by the tests and not by an
operator.
"""

from collections.abc import Mapping
from typing import Final

from console.viewmodel.activity import ActionPhase
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.text import TASK_TONES, Cell, Tone, span
from controller.api.views import IncidentState, LogLevel, NodeCondition, PlanState, TaskPhase

StateWord = tuple[str, str, Tone]
"""Name of the sign in ``Glyphs``, the word, the tone."""

NODE_WORDS: Final[Mapping[NodeCondition, StateWord]] = {
    NodeCondition.EXPECTED: ("idle", "expected", Tone.DIM),
    NodeCondition.HEALTHY: ("ok", "healthy", Tone.GOOD),
    NodeCondition.UNREACHABLE: ("ask", "unreachable", Tone.WARN),
    NodeCondition.LOST: ("bad", "lost", Tone.BAD),
    NodeCondition.REMOVED: ("idle", "removed", Tone.DIM),
}

ISOLATED_WORD: Final[StateWord] = ("held", "isolated", Tone.BAD)
"""Instead of the condition, for a node in contact that is out of service."""

UPKEEP_WORDS: Final[Mapping[str, StateWord]] = {
    "cordoned": ("held", "cordoned", Tone.WARN),
    "draining": ("busy", "draining", Tone.WARN),
    "drained": ("held", "drained", Tone.WARN),
    "repair": ("held", "repair", Tone.WARN),
    "returning": ("busy", "returning", Tone.BUSY),
}
"""Instead of the condition, for a node in contact for which an operator has ordered something."""

TASK_WORDS: Final[Mapping[TaskPhase, StateWord]] = {
    TaskPhase.WAITING: ("idle", "waiting", Tone.BUSY),
    TaskPhase.STARTING: ("busy", "starting", Tone.BUSY),
    TaskPhase.RUNNING: ("ok", "running", Tone.GOOD),
    TaskPhase.PARKING: ("busy", "parking", Tone.WARN),
    TaskPhase.STOPPING: ("busy", "stopping", Tone.WARN),
    TaskPhase.HELD: ("held", "held", Tone.BAD),
    TaskPhase.STOPPED: ("held", "stopped", Tone.DIM),
    TaskPhase.FINISHED: ("done", "finished", Tone.GOOD),
}

INCIDENT_WORDS: Final[Mapping[IncidentState, StateWord]] = {
    IncidentState.DETECTED: ("warn", "detected", Tone.WARN),
    IncidentState.DECIDED: ("ask", "decided", Tone.WARN),
    IncidentState.ACTING: ("busy", "acting", Tone.BUSY),
    IncidentState.RESOLVED: ("done", "resolved", Tone.GOOD),
    IncidentState.HELD: ("held", "held", Tone.BAD),
}

PLAN_WORDS: Final[Mapping[PlanState, StateWord]] = {
    PlanState.PENDING: ("warn", "waits", Tone.WARN),
    PlanState.APPROVED: ("busy", "approved", Tone.BUSY),
    PlanState.APPLIED: ("done", "applied", Tone.GOOD),
    PlanState.REJECTED: ("bad", "rejected", Tone.BAD),
    PlanState.SUPERSEDED: ("idle", "superseded", Tone.DIM),
}

LEVEL_WORDS: Final[Mapping[LogLevel, StateWord]] = {
    LogLevel.INFO: ("dot", "info", Tone.PLAIN),
    LogLevel.GOOD: ("done", "good", Tone.GOOD),
    LogLevel.WARNING: ("warn", "warning", Tone.WARN),
    LogLevel.ERROR: ("bad", "error", Tone.BAD),
    LogLevel.DRILL: ("drill", "drill", Tone.DRILL),
}

ACTION_WORDS: Final[Mapping[ActionPhase, StateWord]] = {
    ActionPhase.SENT: ("busy", "sent", Tone.BUSY),
    ActionPhase.ACCEPTED: ("busy", "accepted", Tone.BUSY),
    ActionPhase.DONE: ("done", "done", Tone.GOOD),
    ActionPhase.REFUSED: ("bad", "refused", Tone.BAD),
    ActionPhase.UNKNOWN: ("ask", "outcome unknown", Tone.WARN),
}

SEVERITY_TONES: Final[Mapping[str, Tone]] = {
    "SEV1": Tone.BAD,
    "SEV2": Tone.WARN,
    "SEV3": Tone.BUSY,
}


def marked(word: StateWord, glyphs: Glyphs) -> Cell:
    """Return sign and word in the word's tone."""
    sign, text, tone = word
    return (span(f"{getattr(glyphs, sign)} {text}", tone),)


def task_letter(position: int) -> str:
    """Return the letter of the task at ``position``: A to Z, then a to z, then ``*``."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    return letters[position] if position < len(letters) else "*"


def task_tone(position: int) -> Tone:
    """Return the tone of the task at ``position``; letters distinguish tasks of one tone."""
    return TASK_TONES[position % len(TASK_TONES)]
