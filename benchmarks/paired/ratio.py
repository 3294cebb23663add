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
        return self.percent_to(1)

    def percent_to(self, digits: int) -> str:
        """The same with so many digits behind the point."""
        value, low, high = (
            f"{100 * (number - 1):+.{digits}f}" for number in (self.value, self.low, self.high)
        )
        return f"{value} % ({low} to {high})"


def ratio_of_pairs(rounds: Sequence[Sequence[Pair]]) -> Ratio:
    """Return the median over all pairs of the ratio of a pair's median times.

    Whatever changes slowly, the speed of a shared machine above all, meets both blocks of a pair
    alike. The bootstrap draws rounds, and of each drawn round its pairs, with replacement: what
    stays the same for the life of a process makes the pairs of a round alike. Equal input gives an
    equal result.

    Raises:
        ValueError: There is no pair.
    """
    return _bootstrap(rounds, _median_of_pairs)


def ratio_of_means(rounds: Sequence[Sequence[Pair]]) -> Ratio:
    """Return the mean time over the mean of the reference: rare long iterations count."""
    return _bootstrap(rounds, _ratio_of_means)


def _median_of_pairs(pairs: Sequence[Pair]) -> float:
    return statistics.median(
        statistics.median(pair.measured) / statistics.median(pair.reference) for pair in pairs
    )


def _ratio_of_means(pairs: Sequence[Pair]) -> float:
    measured = statistics.fmean(time for pair in pairs for time in pair.measured)
    return measured / statistics.fmean(time for pair in pairs for time in pair.reference)


def _bootstrap(rounds: Sequence[Sequence[Pair]], ratio: Callable[[Sequence[Pair]], float]) -> Ratio:
    if not any(rounds):
        raise ValueError("no pair of blocks was measured")
    generator = random.Random(1)  # noqa: S311 - statistics, not secrets
    ratios = []
    for _ in range(_NUM_RESAMPLES):
        drawn = generator.choices(rounds, k=len(rounds))
        ratios.append(ratio([one for pairs in drawn for one in _drawn_from(pairs, generator)]))
    ratios.sort()
    outside = round(_NUM_RESAMPLES * (1 - _CONFIDENCE) / 2)
    value = ratio([pair for pairs in rounds for pair in pairs])
    return Ratio(value, ratios[outside], ratios[-1 - outside])


def _drawn_from(pairs: Sequence[Pair], generator: random.Random) -> list[Pair]:
    return generator.choices(pairs, k=len(pairs))
