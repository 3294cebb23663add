"""The ratio of two kinds of iteration times, and how sure it is."""

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

_NUM_RESAMPLES: Final = 2000
_CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Pair:
    """Iteration times, seconds, of two neighbouring blocks: the measured way and its reference."""

    measured: Sequence[float]
    reference: Sequence[float]


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio, and the 95 % confidence interval that a bootstrap gives it."""

    value: float
    low: float
    high: float

    @property
    def percent(self) -> str:
        """How much more the measured way takes, with the interval."""
        value, low, high = (100 * (number - 1) for number in (self.value, self.low, self.high))
        return f"{value:+.1f} % ({low:+.1f} to {high:+.1f})"


def ratio_of_medians(rounds: Sequence[Sequence[Pair]]) -> Ratio:
    """Return the median time of the measured way over that of the reference.

    The bootstrap draws rounds, and of each drawn round its pairs of blocks, with replacement: times of one
    block resemble each other, and so do those of one round. Equal input gives an equal result.

    Raises:
        ValueError: There is no pair.
    """
    return _bootstrap(rounds, statistics.median)


def ratio_of_means(rounds: Sequence[Sequence[Pair]]) -> Ratio:
    """Return the same for means: rare long iterations count."""
    return _bootstrap(rounds, statistics.fmean)


def _bootstrap(
    rounds: Sequence[Sequence[Pair]], average: Callable[[Sequence[float]], float]
) -> Ratio:
    if not any(rounds):
        raise ValueError("no pair of blocks was measured")
    generator = random.Random(1)  # noqa: S311 - statistics, not secrets
    ratios = []
    for _ in range(_NUM_RESAMPLES):
        drawn = generator.choices(rounds, k=len(rounds))
        ratios.append(_ratio([generator.choices(pairs, k=len(pairs)) for pairs in drawn], average))
    ratios.sort()
    outside = round(_NUM_RESAMPLES * (1 - _CONFIDENCE) / 2)
    return Ratio(_ratio(rounds, average), ratios[outside], ratios[-1 - outside])


def _ratio(rounds: Sequence[Sequence[Pair]], average: Callable[[Sequence[float]], float]) -> float:
    pairs = [pair for pairs in rounds for pair in pairs]
    measured = average([time for pair in pairs for time in pair.measured])
    return measured / average([time for pair in pairs for time in pair.reference])
