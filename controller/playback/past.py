"""The past of a run, at any instant: what a journal and a recording have in common."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from controller.api.views import (
    ClusterView,
    IncidentView,
    LogLevel,
    LogLine,
    MarkView,
    PlanView,
)
from controller.api.wire import ReadEvidence, Reply
from controller.core.rules.policy import Policy
from controller.core.state.cluster import ClusterState


class PastError(Exception):
    """What is to be played back can't be read. The text names the file and the reason."""


class PastLine(NamedTuple):
    """A line of the event stream; see ``LogLine``."""

    at: float
    level: LogLevel
    source: str
    text: str


@dataclass(slots=True)
class PastFacts:
    """What is known of the past beside its views. All times are seconds since the run began.

    Attributes:
        place: The file or directory that it is read from.
        source: What kind of file that is.
        history: File of the run's history, which may not be there; None if there can be none.
        unknown: What it does not hold, as a list in words.
        cluster: Name of the cluster.
        started_wall_s: Wall clock at the start of the run, seconds since the epoch.
        begin: The first instant that can be shown.
        has_earlier: Whether the file holds more, which was left out.
        end: The last one.
        lines: The event stream, in the order of times.
        marks: Instants that are worth looking at, in the order of times.
        wafs: Times at which the WAF changed, and its share of the full cluster from then on.
    """

    place: Path
    source: Literal["journal", "recording"]
    unknown: str
    cluster: str
    started_wall_s: float = 0.0
    begin: float = 0.0
    has_earlier: bool = False
    end: float = 0.0
    lines: list[PastLine] = field(default_factory=list)
    marks: list[MarkView] = field(default_factory=list)
    wafs: list[tuple[float, float]] = field(default_factory=list)
    history: Path | None = None

    def note_waf(self, at: float, waf: float, full: float) -> None:
        """Note the WAF at an instant that is not before the others."""
        share = round(max(0.0, waf) / full, 4) if full > 0 else 0.0
        if not self.wafs or self.wafs[-1][1] != share:
            self.wafs.append((at, share))


class Past(Protocol):
    """The past of one run."""

    facts: PastFacts

    def view_at(self, at: float) -> ClusterView:
        """Return the cluster as it was at an instant between begin and end.

        Raises:
            PastError: The file has changed or is damaged.
        """
        ...

    def evidence(self, question: ReadEvidence, at: float) -> Reply:
        """Return the answer to a question for the evidence that was there at an instant."""
        ...

    def core_at(self, at: float) -> tuple[ClusterState, Policy] | None:
        """Return the core's state and policy at an instant; None if only views are kept.

        Raises:
            PastError: The file has changed or is damaged.
        """
        ...


def mark_of(subject: IncidentView | PlanView) -> MarkView:
    """Return when an incident was found, or a plan made, and what it is about."""
    if isinstance(subject, PlanView):
        return MarkView(at=subject.created_at, kind="plan", name=subject.id, text=subject.seen)
    where = " on ".join(filter(None, (subject.task, subject.node)))
    text = f"{subject.status} {where}".strip()
    return MarkView(at=subject.detected_at, kind="incident", name=subject.id, text=text)


def num_lines_until(lines: Sequence[PastLine], at: float) -> int:
    """Return how many lines were there at an instant."""
    return bisect_right(lines, at, key=lambda line: line.at)


def lines_between(lines: Sequence[PastLine], first: int, end: int) -> list[LogLine]:
    """Return some lines as the API sends them; their numbers are their places, from 1."""
    return [
        LogLine(seq=number, at=line.at, level=line.level, source=line.source, text=line.text)
        for number, line in enumerate(lines[first:end], start=first + 1)
    ]


def next_after(times: Sequence[float], at: float) -> float | None:
    """Return the first of the times in order that is after an instant; None if there is none."""
    place = bisect_right(times, at)
    return times[place] if place < len(times) else None


def last_before(times: Sequence[float], at: float) -> float | None:
    """Return the last of the times in order that is before an instant; None if there is none."""
    place = bisect_left(times, at)
    return times[place - 1] if place else None
