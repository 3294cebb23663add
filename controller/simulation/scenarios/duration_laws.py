"""Laws of durations, as a scenario writes them. Each law draws durations at random.

{law = "constant", s = 5.6}
{law = "uniform", low_s = 43200, high_s = 172800}
{law = "exponential", mean_s = 3600}
{law = "lognormal", median_s = 600, sigma = 0.8}
{law = "weibull", scale_s = 600, shape = 0.7}
{law = "gamma", scale_s = 600, shape = 0.7}
{law = "empirical", trace = "stepfun"}            durations of the faults of a trace
"""

import math
import random
from typing import Annotated, Literal

from pydantic import Field, model_validator

from controller.simulation.scenarios.fault_traces import repair_times_s
from profiles.records import Record

_MAX_S = 1e10
_Seconds = Annotated[float, Field(ge=0, le=_MAX_S, allow_inf_nan=False)]


class Constant(Record):
    """Always the same duration."""

    law: Literal["constant"]
    s: _Seconds

    def draw(self, _rng: random.Random) -> float:
        """Return a duration, seconds."""
        return self.s

    @property
    def mean_s(self) -> float:
        """The mean, seconds."""
        return self.s


class Uniform(Record):
    """Uniform between two bounds."""

    law: Literal["uniform"]
    low_s: _Seconds
    high_s: _Seconds

    @model_validator(mode="after")
    def _is_in_order(self) -> "Uniform":
        if self.low_s > self.high_s:
            raise ValueError(f"low_s {self.low_s:g} is above high_s {self.high_s:g}")
        return self

    def draw(self, rng: random.Random) -> float:
        """Return a duration, seconds."""
        return rng.uniform(self.low_s, self.high_s)

    @property
    def mean_s(self) -> float:
        """The mean, seconds."""
        return (self.low_s + self.high_s) / 2


class Exponential(Record):
    """Exponential, with the given mean."""

    law: Literal["exponential"]
    mean_s: _Seconds

    def draw(self, rng: random.Random) -> float:
        """Return a duration, seconds."""
        return rng.expovariate(1.0) * self.mean_s


class LogNormal(Record):
    """Log-normal: the logarithm is normal with standard deviation ``sigma``."""

    law: Literal["lognormal"]
    median_s: _Seconds
    sigma: Annotated[float, Field(ge=0, le=5)]

    def draw(self, rng: random.Random) -> float:
        """Return a duration, seconds."""
        return self.median_s * math.exp(self.sigma * rng.gauss(0.0, 1.0))

    @property
    def mean_s(self) -> float:
        """The mean, seconds."""
        return self.median_s * math.exp(self.sigma**2 / 2)


class Weibull(Record):
    """Weibull: with a shape below 1, short and very long durations are frequent."""

    law: Literal["weibull"]
    scale_s: _Seconds
    shape: Annotated[float, Field(ge=0.1, le=100)]

    def draw(self, rng: random.Random) -> float:
        """Return a duration, seconds."""
        return rng.weibullvariate(self.scale_s, self.shape)

    @property
    def mean_s(self) -> float:
        """The mean, seconds."""
        return self.scale_s * math.gamma(1.0 + 1.0 / self.shape)


class Gamma(Record):
    """Gamma: the sum of ``shape`` exponential durations, also for fractions."""

    law: Literal["gamma"]
    scale_s: _Seconds
    shape: Annotated[float, Field(ge=0.01, le=1e4)]

    def draw(self, rng: random.Random) -> float:
        """Return a duration, seconds."""
        return rng.gammavariate(self.shape, 1.0) * self.scale_s

    @property
    def mean_s(self) -> float:
        """The mean, seconds."""
        return self.shape * self.scale_s


class Empirical(Record):
    """One of the durations in a trace, each equally likely."""

    law: Literal["empirical"]
    trace: Literal["stepfun"]

    def draw(self, rng: random.Random) -> float:
        """Return a duration, seconds."""
        return rng.choice(repair_times_s(self.trace))

    @property
    def mean_s(self) -> float:
        """The mean, seconds."""
        times = repair_times_s(self.trace)
        return sum(times) / len(times)


Law = Annotated[
    Constant | Uniform | Exponential | LogNormal | Weibull | Gamma | Empirical,
    Field(discriminator="law"),
]


def seeded_random(*names: str | int) -> random.Random:
    """Return a random generator that is seeded by ``names``. It is not for secrets."""
    return random.Random(":".join(map(str, names)))  # noqa: S311
