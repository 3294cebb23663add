"""How a task changes from one generation to the next: the kind, its steps, their durations.

    park              from the halt until every rank has reported its position
    stop              replaces park if processes end: from the order until all are gone
    start             from the decision until the last rank has met its peers, less the next two
    form              the process groups
    state             the state, and the partial results of the iteration
    first iteration   until the first iteration is committed

The duration of each step is predicted by a moving average per task, kind and step. For a kind that
the task has not seen, the step's duration in other kinds is used. The very first prediction comes
from the policy. The sum of all steps is the planner's D_transition. Time that a parked task waits
for an operator, or for workers of other tasks, belongs to no step.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from profiles.layout import Layout

TransitionKind = Literal["reattempt", "restart", "shrink", "grow", "move", "layout change"]

Step = Literal["park", "stop", "start", "form", "state", "first iteration"]

_REGROUP: Final[tuple[Step, ...]] = ("park", "start", "form", "state", "first iteration")
_STOP_AND_START: Final[tuple[Step, ...]] = ("stop", "start", "form", "state", "first iteration")

_SMOOTHING: Final = 0.3
"""Weight of the newest transition in the moving averages."""


@dataclass(slots=True)
class Transition:
    """One transition, in progress or done.

    Attributes:
        kind: Its kind.
        decided_at: When the new generation was begun.
        predicted_s: Expected seconds of each step, in order.
        actual_s: Seconds of the steps so far.
        joined_at: When the last rank had its state.
        is_done: Whether the new generation has committed an iteration.
        teaches: Whether its durations are typical, so that predictions may learn from them.
    """

    kind: TransitionKind
    decided_at: float
    predicted_s: dict[Step, float]
    actual_s: dict[Step, float]
    joined_at: float | None = None
    is_done: bool = False
    teaches: bool = True

    @property
    def total_predicted_s(self) -> float:
        """Expected duration of all steps."""
        return sum(self.predicted_s.values())

    @property
    def total_actual_s(self) -> float:
        """Duration of the steps so far."""
        return sum(self.actual_s.values())

    def join(self, at: float, *, form_s: float, state_s: float) -> None:
        """Note that all ranks have their state."""
        self.joined_at = at
        self.actual_s["start"] = max(0.0, at - self.decided_at - form_s - state_s)
        self.actual_s["form"], self.actual_s["state"] = form_s, state_s

    def finish(self, at: float) -> None:
        """Note that the new generation has committed its first iteration."""
        self.is_done = True
        since = self.decided_at if self.joined_at is None else self.joined_at
        self.actual_s["first iteration"] = at - since

    def rule_out(self) -> None:
        """Its durations are not typical: predictions do not learn from them."""
        self.teaches = False


@dataclass(slots=True)
class Experience:
    """Average durations of one task's transitions."""

    mean_s: dict[tuple[TransitionKind, Step], float] = field(default_factory=dict)

    def begin(
        self,
        kind: TransitionKind,
        first: tuple[Literal["park", "stop"], float],
        at: float,
        defaults: Mapping[Step, float],
    ) -> Transition:
        """Return a transition whose first step is done and took the given seconds."""
        steps = _REGROUP if first[0] == "park" else _STOP_AND_START
        predicted = {step: self._predict(kind, step, defaults) for step in steps}
        return Transition(kind, at, predicted, {first[0]: first[1]})

    def learn(self, transition: Transition) -> None:
        """Learn from a transition that is done. A transition with an unknown step is ignored."""
        if transition.joined_at is None or not transition.teaches:
            return
        for step, actual_s in transition.actual_s.items():
            mean_s = self.mean_s.get((transition.kind, step), actual_s)
            self.mean_s[transition.kind, step] = mean_s + _SMOOTHING * (actual_s - mean_s)

    def learned_s(self, kind: TransitionKind, steps: Iterable[Step]) -> float | None:
        """Return how long these steps of a kind took together; None if the kind was never seen."""
        known = [self.mean_s.get((kind, step)) for step in steps]
        return sum(filter(None, known)) if None not in known else None

    def expected_s(
        self, kinds: tuple[TransitionKind, ...], defaults: Mapping[Step, float]
    ) -> float:
        """Return the expected duration of the longest of these kinds."""
        return max(
            sum(self._predict(kind, step, defaults) for step in _steps_of(kind)) for kind in kinds
        )

    def _predict(self, kind: TransitionKind, step: Step, defaults: Mapping[Step, float]) -> float:
        if (kind, step) in self.mean_s:
            return self.mean_s[kind, step]
        # Steps are much alike in kinds that go the same way; the longest is the cautious guess. A
        # start of new processes says little about processes that continue.
        alike = [
            mean_s
            for (other_kind, other), mean_s in self.mean_s.items()
            if other == step and _steps_of(other_kind) == _steps_of(kind)
        ]
        return max(alike, default=defaults[step])


def kind_of(
    old: Layout, new: Layout, *, is_same_place: bool, has_new_process: bool
) -> TransitionKind:
    """Return the kind of transition between two layouts."""
    if (old.tp, old.pp) != (new.tp, new.pp):
        return "layout change"
    if old.dp != new.dp:
        return "shrink" if new.dp < old.dp else "grow"
    if not is_same_place:
        return "move"
    return "restart" if has_new_process else "reattempt"


def _steps_of(kind: TransitionKind) -> tuple[Step, ...]:
    return _STOP_AND_START if kind == "layout change" else _REGROUP
