"""Whether a program divides its loss by something that depends on the number of replicas.

A program that accumulates gradients divides each loss by its number of micro-batches. If it reports
the divided loss, the figure halves when the task shrinks from two replicas to one, because the one
then has twice as many micro-batches. A loss that is divided by the number of replicas doubles. The
training may be right, but losses of different sizes can't be compared.

The loss must change by that factor at the very iteration at which the number of replicas changes,
and stay there. All values before and after must be closer to their own level than to the other one.
So a noisy loss, a slow decline and a fast one are no evidence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import median
from typing import Final

_WINDOW: Final = 64
"""Iterations that are kept: a command may run as many again after a fault."""
_NUM_BEFORE: Final = 8
_NUM_AFTER: Final = 6
_LAST_AFTER: Final = 12
"""Iterations with the new number of replicas after which the question is closed."""
_SMALLEST_FACTOR: Final = math.log(1.2)
"""A smaller factor looks like the usual changes of a loss."""
_TOLERANCE: Final = 0.1
_SHARE: Final = 0.25
"""Largest error of the factor, and drift of a level, as a share of the factor's logarithm."""


@dataclass(frozen=True, slots=True)
class ScaledLoss:
    """The loss followed the number of replicas.

    Attributes:
        before: Its level with ``replicas_before``.
        after: Its level with ``replicas_after``.
    """

    before: float
    after: float
    replicas_before: int
    replicas_after: int

    @property
    def divisor(self) -> str:
        """What the loss seems to be divided by."""
        grew = self.replicas_after > self.replicas_before
        is_larger = self.after > self.before
        return "the micro-batches of a replica" if grew == is_larger else "the number of replicas"


@dataclass(slots=True)
class LossScale:
    """The newest losses of one task, with its present and with its last number of replicas."""

    num_replicas: int = 0
    losses: dict[int, float] = field(default_factory=dict)
    """By iteration, in the order of their arrival."""
    earlier_replicas: int = 0
    earlier: dict[int, float] = field(default_factory=dict)
    is_told: bool = False

    def take(
        self, iteration: int, loss: float | None, num_replicas: int, num_micro_batches: int
    ) -> ScaledLoss | None:
        """Add an iteration, new or run again; return the change if the loss is scaled, once.

        Args:
            iteration: Its number.
            loss: Its loss; None if it is not known.
            num_replicas: Replicas that ran it.
            num_micro_batches: Micro-batches of the global batch; less than 2 if that is not known.
        """
        if self.is_told or loss is None or not math.isfinite(loss) or loss <= 0:
            return None
        self._turn_to(num_replicas)
        self.losses.pop(iteration, None)
        self.losses[iteration] = loss
        if len(self.losses) > _WINDOW:
            del self.losses[next(iter(self.losses))]
        if not _NUM_AFTER <= len(self.losses) <= _LAST_AFTER or not self.earlier:
            return None
        factors = _factors(self.earlier_replicas, num_replicas, num_micro_batches)
        found = self._judged(factors)
        self.is_told = found is not None
        return found

    def _turn_to(self, num_replicas: int) -> None:
        if num_replicas == self.num_replicas:
            return
        is_known = len(self.losses) >= _NUM_BEFORE
        if is_known:
            self.earlier_replicas, self.earlier = self.num_replicas, self.losses
        self.num_replicas, self.losses = num_replicas, {}
        if not is_known and num_replicas == self.earlier_replicas:
            # Back at once: the level before still counts.
            self.losses, self.earlier = self.earlier, {}

    def _judged(self, factors: Sequence[float]) -> ScaledLoss | None:
        newest = list(self.earlier.values())[-_NUM_BEFORE:]
        level, last = median(newest), max(self.earlier)
        again = {n: loss for n, loss in self.losses.items() if n in self.earlier}
        if len(again) >= _NUM_AFTER:
            # An iteration that is run again is compared with itself, whatever training changes.
            steps = [math.log(loss / self.earlier[n]) for n, loss in again.items()]
            noise = [0.0, 0.0]
        else:
            new = [loss for n, loss in self.losses.items() if last < n <= last + _WINDOW]
            steps = [math.log(loss / level) for loss in new]
            noise = [math.log(loss / level) for loss in newest]
        if len(steps) < _NUM_AFTER:
            return None
        if not any(_explains(factor, steps, noise) for factor in factors):
            return None
        after = median(islice(self.losses.values(), _LAST_AFTER))
        return ScaledLoss(level, after, self.earlier_replicas, self.num_replicas)


def _factors(before: int, after: int, num_micro_batches: int) -> list[float]:
    """Return the logarithms of the factors by which a divided loss would change."""
    ratios = [after / before]
    if num_micro_batches >= 2:
        # Uneven shares: a program counts those of the first replica.
        ratios.append(math.ceil(num_micro_batches / before) / math.ceil(num_micro_batches / after))
    logs = [math.log(ratio) for ratio in ratios]
    return [each for log in logs if abs(log) >= _SMALLEST_FACTOR for each in (log, -log)]


def _explains(factor: float, steps: Sequence[float], noise: Sequence[float]) -> bool:
    """Return whether ``factor`` separates the values after the change from those before."""
    size = abs(factor)
    is_apart = all(abs(step - factor) < size / 2 for step in steps) and all(
        abs(each) < size / 2 for each in noise
    )
    is_near = abs(median(steps) - factor) <= min(_TOLERANCE, _SHARE * size)
    return is_apart and is_near and max(_drift(steps), _drift(noise)) <= _SHARE * size


def _drift(values: Sequence[float]) -> float:
    half = len(values) // 2
    return abs(median(values[half:]) - median(values[:half]))
