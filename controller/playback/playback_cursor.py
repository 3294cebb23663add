"""The instant of the past that is shown, and how it moves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from controller.api.wire import MovePlayback
from controller.playback.moments import moment_of
from controller.playback.past import PastFacts, last_before, next_after


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
