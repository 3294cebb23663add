"""What the core remembers of one rank."""

from dataclasses import dataclass
from typing import Literal

from controller.core.rules.placement import Worker
from nodeagent.protocol.messages import RankStatus
from nodeagent.protocol.observations import (
    RankDone,
    RankHalted,
    RankJoined,
    RankObservation,
    RankRaised,
    RankStarted,
)
from nodeagent.protocol.regroup import Position, RankRef


@dataclass(slots=True)
class RankState:
    """One rank of the task's present generation, or a spare beside it."""

    worker: Worker
    is_alive: bool = True
    """Launched, and not known to be gone."""
    is_seen: bool = False
    """Its node has reported it, as a rank of this generation."""
    pid: int | None = None
    iteration: int = 0
    rss_bytes: int | None = None
    continues: RankRef | None = None
    """The parked rank whose process it continues; None for a process of its own."""
    joined: RankJoined | None = None
    position: Position | None = None
    """Where it has parked."""
    is_attached: bool = False
    """It is a command whose program has attached."""
    is_broken: bool = False
    """Its process can't continue: it raised an exception of its own, or does not answer."""
    missing_since: float | None = None
    """When its node's heartbeats stopped listing it, although no exit was reported."""
    busy_s: float = 0.0
    """How long its own computing takes; 0 if that is not known."""
    busy_spread_s: float = 0.0
    """By how much single iterations differ from that."""
    waited_s: float = 0.0
    """How long its threads waited for a core in one iteration; 0 if that is not known."""
    num_slow_beats: int = 0
    """Heartbeats that showed it slower than its peers; other heartbeats count back."""
    done: Literal["stopped", "finished"] | None = None

    @property
    def can_go_on(self) -> bool:
        """Whether its process is parked and can be a rank of another generation."""
        is_fit = self.is_alive and not self.is_broken and self.done is None
        return is_fit and self.position is not None

    def observe(self, observation: RankObservation) -> None:
        """Record the facts of an observation about the process. Other modules judge them."""
        self.is_seen = True
        match observation:
            case RankJoined():
                self.joined = observation
            case RankHalted() | RankRaised():
                if observation.position is not None:
                    self.position = observation.position
            case RankStarted():
                self.pid = observation.pid
            case RankDone():
                self.done = observation.reason
            case _:
                pass

    def observe_as_spare(self, observation: RankObservation) -> None:
        """Record the facts of an observation about a spare."""
        self.is_seen = True
        match observation:
            case RankStarted():
                self.pid = observation.pid
            case RankHalted():
                self.position = observation.position
            case _:
                pass

    def note_iteration(self, iteration: int) -> None:
        """It has finished an iteration."""
        self.iteration = max(self.iteration, iteration)

    def note_listed(self, status: RankStatus) -> None:
        """The node lists it as a rank of the present generation."""
        self.note_listed_as_spare(status)
        self.note_iteration(status.iteration)
        self.busy_s, self.busy_spread_s = status.busy_s, status.busy_spread_s
        self.waited_s = status.waited_s
        self.is_attached = status.is_attached

    def note_listed_as_spare(self, status: RankStatus) -> None:
        """The node lists it, as a spare or as a rank."""
        self.is_seen = True
        self.pid, self.rss_bytes = status.pid, status.rss_bytes

    def note_missing(self, at: float, *, is_listed: bool) -> float:
        """Keep since when the node does not list it; return that, or now if it lists it."""
        if is_listed:
            self.missing_since = None
            return at
        self.missing_since = at if self.missing_since is None else self.missing_since
        return self.missing_since

    def note_broken(self) -> None:
        """The process can't continue in another generation."""
        self.is_broken = True

    def note_sound(self) -> None:
        """The process has raised an exception for a fault elsewhere: it can continue."""
        self.is_broken = False

    def note_gone(self) -> None:
        """It has no process any more."""
        self.is_alive, self.rss_bytes = False, None

    def note_returned(self) -> None:
        """A rank that was given up with its node lives."""
        self.is_alive = True

    def note_left_over(self) -> None:
        """It lives on although nothing is left to do: it is ended, and counts as done."""
        self.done, self.is_broken = self.done or "finished", True

    def note_finished(self) -> None:
        """It has done all iterations."""
        self.done = "finished"

    def count_slow_beat(self, *, is_slow: bool, most: int) -> int:
        """Count a heartbeat that shows it slow, or count back; return the count."""
        step = 1 if is_slow else -1
        self.num_slow_beats = min(most, max(0, self.num_slow_beats + step))
        return self.num_slow_beats
