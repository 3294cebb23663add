"""What the core remembers of a task to notice that it stalls, gets slow, or trains nonsense."""

import copy
import math
from dataclasses import dataclass, field
from typing import Literal

from controller.core.rules.loss_scale import LossScale
from controller.core.rules.pace import Pace
from controller.core.rules.spikes import Levels
from nodeagent.protocol.standing import Standing

Stage = Literal["iteration", "forming", "silent", "ending"]
"""What a generation may be stuck in: an iteration, its way to the first, or its way out.

A command is silent while it runs without any iteration having been seen.
"""


@dataclass(slots=True)
class Inspection:
    """The agents were asked where the ranks are. Written by ``monitoring.task_watch``."""

    since: float
    stage: Stage = "iteration"
    is_last: bool = False
    """The start has failed, whatever the answers are."""
    standings: dict[int, Standing] = field(default_factory=dict)
    """The answers, by global rank."""


@dataclass(slots=True)
class Slowness:
    """Announced slowness. Written by ``monitoring.slowness``."""

    late_from_s: float | None = None
    """The average iteration when lateness was announced; None: not late."""
    stragglers: set[int] = field(default_factory=set)
    """Ranks that were announced as stragglers."""

    @property
    def is_late(self) -> bool:
        """Whether lateness was announced, and not yet that it is over."""
        return self.late_from_s is not None


@dataclass(slots=True)
class Watch:
    """One generation of a task under watch. Written by ``monitoring.task_watch``."""

    pace: Pace = field(default_factory=Pace)
    levels: Levels = field(default_factory=Levels)
    loss_scale: LossScale = field(default_factory=LossScale)
    slowness: Slowness = field(default_factory=Slowness)
    committed_at: float | None = None
    """When the newest iteration of the generation was committed, by the clock of its node."""
    moved_at: float = 0.0
    """When the generation was last known to progress."""
    iteration: int = 0
    """Newest iteration that any rank was known to have finished then."""
    inspection: Inspection | None = None
    done_at: float | None = None
    """When a rank of the generation first had done all its work."""

    def of_next_generation(self, now: float, scale: float | None) -> "Watch":
        """Return the watch of the generation that follows; see ``Pace.begin`` for ``scale``."""
        pace = copy.copy(self.pace)
        pace.begin(scale)
        late_from_s = self.slowness.late_from_s
        if self.slowness.is_late and scale != 1.0:
            late_from_s = math.inf  # the usual time in another layout is no measure
        return Watch(
            pace,
            self.levels,
            self.loss_scale,
            Slowness(late_from_s),
            moved_at=now,
            iteration=self.iteration,
        )
