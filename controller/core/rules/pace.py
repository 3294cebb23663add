"""How long a task's iterations take: a robust average per layout, and which are late or overdue.

The average is the median of the newest ``_WINDOW`` plain iterations, each measured from commit to
commit by the clock of the reporting node. Outliers in half of the window do not move it. A lasting
change moves it after half a window.

Iterations that are not plain are left out:

- The first ``_NUM_WARM_UP`` iterations of a generation. The first one includes the recovery. With
  new processes the second one makes the connections of in-memory checkpoints.
- *Long* iterations. Those that follow a multiple of one of the task's ``long_intervals`` also save
  a checkpoint, or evaluate. They have a median of their own.

If only the number of replicas changes, the average is scaled by the micro-batches per replica. The
slowest replica decides, so the largest number counts. No task scales exactly like that, least of
all one that grows. So until the new layout has an average of its own, no iteration is called late.
Limits are those of a recovering iteration: twice as long, and at least ``recovering_limit_s``. With
another tp or pp the average starts anew.

A stall that was called a hang doubles the limit until the task has shown ``_NUM_KNOWN`` plain
iterations in one generation. So a limit that is too short corrects itself, and no task is regrouped
again and again.

Late is more than 1.1 x the average, a hang more than 3 x (paper, section 4.1). A hang also takes at
least ``hang_floor_s`` over the average, because a machine may suspend a process for that long.
"""

from dataclasses import dataclass, field
from statistics import median
from typing import Final

from controller.core.rules.policy import Policy

_WINDOW: Final = 32
_NUM_KNOWN: Final = 3
"""Plain iterations of a layout that make an average."""
_NUM_WARM_UP: Final = 2
_MAX_BACKOFF: Final = 8.0
_NUM_SPREADS: Final = 2.0
_LEAST_JUDGED_S: Final = 0.1
"""Iterations that take less are never called late."""
_TOGETHER: Final = 0.01
"""Below this share of the average, an iteration was reported together with the one before."""


@dataclass(slots=True)
class Pace:
    """What is known about one task in its present layout. Times are in seconds."""

    plain: list[float] = field(default_factory=list)
    long: list[float] = field(default_factory=list)
    scaled_s: float | None = None
    """The average of another layout, scaled to this one."""
    first_s: float = 0.0
    """The first iteration of the generation, which includes the recovery."""
    backoff: float = 1.0
    """Factor by which the limits are longer since the newest hang."""
    num_plain: int = 0
    """Plain iterations of the generation."""
    best_s: float | None = None
    """The shortest iteration of the generation, the first and long ones left out."""
    num_commits: int = 0
    """Iterations of the generation."""

    @property
    def average_s(self) -> float | None:
        """The average; None until enough plain iterations were seen."""
        return median(self.plain) if self.is_known else self.scaled_s

    @property
    def is_known(self) -> bool:
        """Whether the average comes from iterations in the present layout."""
        return len(self.plain) >= _NUM_KNOWN

    @property
    def is_warm(self) -> bool:
        """Whether the running iteration is past the warm-up iterations."""
        return self.num_commits >= _NUM_WARM_UP

    def begin(self, scale: float | None) -> None:
        """Begin a generation; its iterations take ``scale`` times as long (None if not known)."""
        average_s = self.average_s
        if scale is None or average_s is None:
            self.plain, self.long, self.scaled_s = [], [], None
        elif scale != 1.0:
            self.plain, self.scaled_s = [], average_s * scale
            self.long = [duration_s * scale for duration_s in self.long]
        self.first_s, self.best_s, self.num_commits, self.num_plain = 0.0, None, 0, 0

    def note_hang(self) -> None:
        """Make the limit longer, because the running iteration was called a hang."""
        self.backoff = min(2.0 * self.backoff, _MAX_BACKOFF)

    def add(self, duration_s: float, *, is_long: bool) -> None:
        """Add an iteration of the generation. Iterations must be added in order."""
        if self.num_commits == 0:
            self.first_s = duration_s
        elif not is_long:
            self.best_s = min(duration_s, self.best_s or duration_s)
        if self.is_warm:
            window = self.long if is_long else self.plain
            window.append(duration_s)
            del window[:-_WINDOW]
            self._note_plain(is_long=is_long)
        self.num_commits += 1

    def _note_plain(self, *, is_long: bool) -> None:
        self.num_plain += not is_long
        if self.num_plain >= _NUM_KNOWN:
            self.backoff = 1.0

    def limit_s(self, policy: Policy, *, is_long: bool) -> float:
        """Return how long the running iteration may take before its ranks are looked at."""
        return self.backoff * self._usual_limit_s(policy, is_long=is_long)

    def _usual_limit_s(self, policy: Policy, *, is_long: bool) -> float:
        average_s = self.average_s
        if average_s is None:
            return max(policy.recovering_limit_s, policy.stall_factor * self.first_s)
        limit_s = max(policy.stall_factor * average_s, average_s + policy.hang_floor_s)
        if not (self.is_warm and self.is_known):
            return max(policy.recovering_limit_s, 2 * limit_s)
        if is_long:
            known_s = policy.stall_factor * median(self.long) if self.long else 0.0
            return max(limit_s, known_s or limit_s + policy.long_limit_s)
        return limit_s

    def is_in_band(self, policy: Policy) -> bool:
        """Return whether the generation has shown an iteration that is not late.

        If no average is known, any second iteration is sufficient.
        """
        if self.best_s is None:
            return False
        return self.average_s is None or self.best_s <= policy.late_factor * self.average_s

    def newest_s(self, policy: Policy) -> float | None:
        """Return the median of the newest ``late_iterations`` plain iterations; None if none."""
        return median(self.plain[-policy.late_iterations :]) if self.plain else None

    def late_s(self, policy: Policy) -> float | None:
        """Return the present duration of iterations if it is late; None if it is within its band.

        The median of the newest ``late_iterations`` plain iterations is compared with the average
        and with the usual spread around it. Of short iterations, and of iterations whose lines come
        several at once, the times of single ones are those of reading the log.
        """
        num = policy.late_iterations
        if len(self.plain) < num + _NUM_KNOWN:
            return None
        now_s, average_s = median(self.plain[-num:]), median(self.plain)
        if average_s < _LEAST_JUDGED_S or min(self.plain) < _TOGETHER * average_s:
            return None
        return now_s if now_s > self.late_limit_s(policy, average_s) else None

    def late_limit_s(self, policy: Policy, average_s: float) -> float:
        """Return from when on iterations are late: above their average and its usual spread."""
        spread_s = median(abs(each - average_s) for each in self.plain) if self.is_known else 0.0
        return max(policy.late_factor * average_s, average_s + _NUM_SPREADS * spread_s)
