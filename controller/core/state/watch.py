"""What the core remembers of a task to notice that it stalls, gets slow, or trains nonsense."""

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from controller.core.rules.loss_scale import LossScale
from controller.core.rules.pace import Pace
from controller.core.rules.spikes import Levels
from nodeagent.protocol.observations import IterationCommitted
from nodeagent.protocol.standing import Standing

Stage = Literal["iteration", "forming", "silent", "ending"]
"""What a generation may be stuck in: an iteration, its way to the first, or its way out.

A command is silent while it runs without any iteration having been seen.
"""


@dataclass(slots=True)
class Inspection:
    """The agents were asked where the ranks are."""

    since: float
    stage: Stage = "iteration"
    is_last: bool = False
    """The start has failed, whatever the answers are."""
    standings: dict[int, Standing] = field(default_factory=dict)
    """The answers, by global rank."""

    def note_standing(self, number: int, standing: Standing) -> None:
        """An agent reports where a rank stands."""
        self.standings[number] = standing

    def leave_out(self, numbers: Iterable[int]) -> None:
        """Forget what was seen of these ranks."""
        for number in numbers:
            self.standings.pop(number, None)


@dataclass(slots=True)
class Slowness:
    """Announced slowness."""

    late_from_s: float | None = None
    """The average iteration when lateness was announced; None: not late."""
    stragglers: set[int] = field(default_factory=set)
    """Ranks that were announced as stragglers."""
    waited_s: float = 0.0
    """How long a rank waited for a core in one iteration, at most; 0 if that is short."""

    @property
    def is_late(self) -> bool:
        """Whether lateness was announced, and not yet that it is over."""
        return self.late_from_s is not None

    def note_late(self, average_s: float | None) -> float | None:
        """Lateness begins at this average, or is over if None; return the average before."""
        before_s, self.late_from_s = self.late_from_s, average_s
        return before_s

    def note_straggler(self, number: int) -> None:
        """A rank is slower than its peers."""
        self.stragglers.add(number)

    def end_straggler(self, number: int) -> None:
        """A rank is as fast as its peers again."""
        self.stragglers.remove(number)

    def note_waiting(self, waited_s: float) -> None:
        """Ranks wait for a core for as long, at most."""
        self.waited_s = waited_s


@dataclass(slots=True)
class Watch:
    """One generation of a task under watch: what it was last seen to do."""

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

    def note_movement(self, at: float) -> None:
        """The generation progresses."""
        self.moved_at = at

    def note_movement_unseen(self, at: float) -> None:
        """The generation may have progressed unseen: earlier observations do not count."""
        self.moved_at, self.inspection = at, None

    def forgive_absence(self, at: float) -> None:
        """No controller watched until now: that time counts against no rank."""
        self.note_movement_unseen(at)
        if self.done_at is not None:
            self.done_at = at

    def expect_iteration_after(self, iteration: int) -> None:
        """The iteration after this one is the next that is expected."""
        self.iteration = iteration

    def note_done_rank(self, at: float) -> None:
        """A rank has done all its work: the other ranks should end soon."""
        self.done_at = at if self.done_at is None else self.done_at

    def time_commit(
        self, commit: IterationCommitted, observed_at: float, *, is_command: bool
    ) -> tuple[float, int]:
        """Note when one was committed; return the time since the last, and for how many it is."""
        num = 1
        since, self.committed_at = self.committed_at, observed_at
        if is_command:
            # Its lines are read in bunches, and one may stand for several iterations.
            num = max(1, commit.iteration - self.iteration)
            duration_s = num * commit.duration_s
        else:
            duration_s = commit.duration_s if since is None else max(0.0, observed_at - since)
        return duration_s, num

    def add_to_pace(self, at: float, duration_s: float, *, is_long: bool) -> None:
        """Take a committed iteration into the pace: the generation progresses."""
        self.pace.add(duration_s, is_long=is_long)
        self.note_movement_unseen(at)

    def begin_inspection(self, inspection: Inspection) -> None:
        """The agents are asked where the ranks stand."""
        self.inspection = inspection

    def end_inspection(self) -> None:
        """The answers are judged now."""
        self.inspection = None
