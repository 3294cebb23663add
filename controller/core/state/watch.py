"""What the core remembers of a task to notice that it stalls, gets slow, or trains nonsense."""

import math
from dataclasses import dataclass, field
from typing import Literal

from controller.core.rules.pace import Pace
from controller.core.rules.spikes import Levels
from nodeagent.protocol.standing import Standing

Stage = Literal["iteration", "forming", "ending"]
"""What a generation may be stuck in: an iteration, its way to the first, or its way out."""


@dataclass(slots=True)
class Inspection:
    """The agents have been asked where the ranks stand."""

    since: float
    stage: Stage = "iteration"
    is_last: bool = False
    """The start has failed, whatever is seen."""
    standings: dict[int, Standing] = field(default_factory=dict)
    """What they have answered, by global rank."""


@dataclass(slots=True)
class Watch:
    """One task under watch. What is about a generation is begun anew with each."""

    pace: Pace = field(default_factory=Pace)
    levels: Levels = field(default_factory=Levels)
    committed_at: float | None = None
    """When the newest iteration of the generation was committed, by the clock of its node."""
    moved_at: float = 0.0
    """When the generation was last known to go on."""
    iteration: int = 0
    """Newest iteration that any rank was known to have finished then."""
    inspection: Inspection | None = None
    done_at: float | None = None
    """When a rank of the generation first had done all that it was to do."""
    late_from_s: float | None = None
    """The average of the iterations when operators were told that they take too long; None: they don't."""
    stragglers: set[int] = field(default_factory=set)
    """Ranks that operators were told of."""

    def begin(self, now: float, scale: float | None) -> None:
        """Begin a generation; see ``Pace.begin``."""
        self.pace.begin(scale)
        self.committed_at, self.moved_at = None, now
        self.inspection = self.done_at = None
        self.stragglers.clear()
        if self.is_late and scale != 1.0:
            self.late_from_s = math.inf  # what was usual in another layout is no measure

    @property
    def is_late(self) -> bool:
        """Whether operators were told that iterations take too long, and not yet that this is over."""
        return self.late_from_s is not None

    def go_on(self, now: float) -> None:
        """Nobody watched until now: that time speaks against no rank."""
        self.moved_at, self.inspection = now, None
        if self.done_at is not None:
            self.done_at = now
