"""What the core remembers of one rank."""

from dataclasses import dataclass
from typing import Literal

from controller.core.rules.placement import Worker
from nodeagent.protocol.observations import RankJoined
from nodeagent.protocol.regroup import Position, RankRef


@dataclass(slots=True)
class RankState:
    """One rank of the task's present generation, or a spare beside it.

    Written by ``lifecycle.rank_records``.
    """

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
