"""The instant of the past that is shown, how it moves, and how people name others."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Self

from controller.api.wire import MovePlayback
from controller.playback.past import PastError, PastFacts, last_before, next_after

_TIME_OF_DAY: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?Z?")
_DAY_S: Final = 86_400
_LONGEST_RUN_S: Final = 365 * 10 * _DAY_S


@dataclass(frozen=True, slots=True)
class PlaybackCursor:
    """An instant between begin and end.

    Attributes:
        at: Seconds since the start of the run.
        speed: Seconds of the past in a second.
        is_playing: Whether time passes.
    """

    at: float
    speed: float = 1.0
    is_playing: bool = False

    def after(self, seconds: float, end: float) -> Self:
        """Return the cursor when some time has passed. It stops at the end."""
        if not self.is_playing:
            return self
        at = min(end, self.at + seconds * self.speed)
        return replace(self, at=at, is_playing=at < end)

    def moved(self, move: MovePlayback, facts: PastFacts) -> Self:
        """Return the cursor after a request. A step where nothing follows goes to begin or end.

        Raises:
            PastError: The past has no such moment.
        """
        at = self.at if move.moment is None else moment_of(move.moment, facts)
        at += move.by_s or 0.0
        if move.step is not None:
            times = _times_of(move, facts)
            found = last_before(times, at) if move.is_back else next_after(times, at)
            at = found if found is not None else facts.begin if move.is_back else facts.end
        at = min(max(facts.begin, at), facts.end)
        is_playing = self.is_playing if move.is_playing is None else move.is_playing
        return replace(
            self, at=at, speed=move.speed or self.speed, is_playing=is_playing and at < facts.end
        )


def _times_of(move: MovePlayback, facts: PastFacts) -> Sequence[float]:
    if move.step == "incident":
        return [mark.at for mark in facts.marks if mark.kind == "incident"]
    return [line.at for line in facts.lines]


def moment_of(text: str, facts: PastFacts) -> float:
    """Return a moment in seconds since the start of the run.

    Args:
        text: How a person names it.
        facts: The past that it is a moment of.

    Raises:
        PastError: It is no moment, or not one of this past.
    """
    incidents = {mark.name: mark.at for mark in facts.marks if mark.kind == "incident"}
    if text in incidents:
        return incidents[text]
    if re.fullmatch(r"I-\d+", text):
        there = f"it has {', '.join(incidents)}" if incidents else "it has no incidents"
        there += "; --last reads further back" if facts.has_earlier else ""
        raise PastError(f"{facts.place}: there is no incident {text}; {there}")
    at = _time_of(text, facts.started_wall_s + facts.end)
    if at is None:
        raise PastError(
            f"{text!r:.40} is no moment: write I-3, 14:02:30, 2026-11-28T14:02:30Z, or seconds since the"
            " start of the run"
        )
    at = at - facts.started_wall_s if at > _LONGEST_RUN_S else at
    if not facts.begin <= at <= facts.end:
        span = f"{instant(facts.started_wall_s + facts.begin)} to {instant(facts.started_wall_s + facts.end)}"
        more = "; --last reads further back" if facts.has_earlier and at < facts.begin else ""
        raise PastError(f"{facts.place}: {text} is not in it: it reaches from {span}{more}")
    return at


def _time_of(text: str, end_wall_s: float) -> float | None:
    """Return seconds since the epoch, or a small number: seconds since the start of the run."""
    if found := _TIME_OF_DAY.fullmatch(text):
        hour, minute, second = (int(each or 0) for each in found.groups())
        of_day = hour * 3600 + minute * 60 + second
        day = end_wall_s // _DAY_S * _DAY_S
        return day + of_day if day + of_day <= end_wall_s else day + of_day - _DAY_S
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def instant(wall_s: float) -> str:
    """Return seconds since the epoch as date and time in UTC."""
    return datetime.fromtimestamp(wall_s, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
