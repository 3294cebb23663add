"""What the core remembers of one rank."""

from dataclasses import dataclass
from typing import Literal

from controller.core.rules.placement import Worker
from nodeagent.protocol.observations import (
    RankDone,
    RankHalted,
    RankJoined,
    RankObservation,
    RankRaised,
    RankStarted,
)
from nodeagent.protocol.rank_status import RankStatus
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
    """Newest iteration that it is known to have finished; heartbeats may show a newer one."""
    continues: RankRef | None = None
    """The parked rank whose process it continues; None for a process of its own."""
    joined: RankJoined | None = None
    position: Position | None = None
    """Where it has parked."""
    is_attached: bool = False
    """It is a command whose program has attached."""
    is_broken: bool = False
    """Its process can't continue: it raised an exception of its own, or does not answer."""
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
        self.is_attached = status.is_attached

    def note_listed_as_spare(self, status: RankStatus) -> None:
        """The node lists it, as a spare or as a rank."""
        self.is_seen, self.pid = True, status.pid

    def note_broken(self) -> None:
        """The process can't continue in another generation."""
        self.is_broken = True

    def note_sound(self) -> None:
        """The process has raised an exception for a fault elsewhere: it can continue."""
        self.is_broken = False

    def note_gone(self) -> None:
        """It has no process any more."""
        self.is_alive = False

    def note_returned(self) -> None:
        """A rank that was given up with its node lives."""
        self.is_alive = True

    def note_left_over(self) -> None:
        """It lives on although nothing is left to do: it is ended, and counts as done."""
        self.done, self.is_broken = self.done or "finished", True

    def note_finished(self) -> None:
        """It has done all iterations."""
        self.done = "finished"
