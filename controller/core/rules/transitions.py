"""How a task goes from one generation to the next: the kind, its steps, and how long each takes.

    park              a halt is ordered until every rank has said where it stands
    stop              instead of it where processes end: a stop is ordered until all are gone
    start             the decision until the last rank has met its peers, less the next two
    form              the process groups
    state             the state, and the partial results of the iteration
    first iteration   until the first iteration is committed

What each step will take is predicted from what it took before: a moving average per task, kind and
step. A kind that the task has not seen is expected to take what the step took in others, and the first
of all what the policy says. The sum is the planner's D_transition. Time that a parked
task waits, for an operator or for workers of others, belongs to no step.
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
    """One transition, under way or done.

    Attributes:
        kind: What it is.
        decided_at: When the new generation was begun.
        predicted_s: Seconds that each step was expected to take, in order.
        actual_s: Seconds that the steps so far took.
        joined_at: When the last rank had its state.
        is_done: Whether the new generation has committed an iteration.
        teaches: Whether what it took says what the next one will take.
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
        """All ranks have their state."""
        self.joined_at = at
        self.actual_s["start"] = max(0.0, at - self.decided_at - form_s - state_s)
        self.actual_s["form"], self.actual_s["state"] = form_s, state_s

    def finish(self, at: float) -> None:
        """The new generation has committed its first iteration."""
        self.is_done = True
        since = self.decided_at if self.joined_at is None else self.joined_at
        self.actual_s["first iteration"] = at - since


@dataclass(slots=True)
class Experience:
    """What the transitions of one task took."""

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
        """Take in a transition that is done; one of which a step is not known teaches nothing."""
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
        # Steps are much alike in all kinds; the longest is the cautious guess.
        others = [mean_s for (_, other), mean_s in self.mean_s.items() if other == step]
        return max(others, default=defaults[step])


def kind_of(
    old: Layout, new: Layout, *, is_same_place: bool, has_new_process: bool
) -> TransitionKind:
    """Return what going from one layout to the other is called."""
    if (old.tp, old.pp) != (new.tp, new.pp):
        return "layout change"
    if old.dp != new.dp:
        return "shrink" if new.dp < old.dp else "grow"
    if not is_same_place:
        return "move"
    return "restart" if has_new_process else "reattempt"


def _steps_of(kind: TransitionKind) -> tuple[Step, ...]:
    return _STOP_AND_START if kind == "layout change" else _REGROUP
