"""Fits the constants to published measurements, and measures their errors on unseen series.

Least squares on the logarithm of throughput, with two safeguards against fitting software versions
instead of physics: every constant has an expected value that it leaves only for a reason, and every
series counts by the square root of its points. Large errors weigh less (Huber).
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profiles.estimate.constants import Constants, published_points
from profiles.estimate.points import parse_points
from profiles.estimate.prediction import PredictionCase, case_of, error_of
from profiles.estimate.training_setup import TrainingSetup

_Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ExpectedConstant:
    """What is expected of a constant before the fit.

    Attributes:
        value: Expected value.
        spread: Standard deviation of its logarithm.
        cap: Largest value that makes sense.
    """

    value: float
    spread: float
    cap: float = math.inf


EXPECTATIONS: Final = {
    "matmul_ampere": ExpectedConstant(0.80, 0.10, 0.97),
    "matmul_hopper": ExpectedConstant(0.75, 0.05, 0.97),
    "matmul_blackwell": ExpectedConstant(0.72, 0.25, 0.97),
    "link": ExpectedConstant(0.75, 0.20, 0.97),
    "memory": ExpectedConstant(0.60, 0.15, 0.97),
    "hidden_tensor": ExpectedConstant(0.60, 0.20, 0.97),
    "hidden_data": ExpectedConstant(0.80, 0.20, 0.97),
    "hidden_sharded": ExpectedConstant(0.70, 0.20, 0.97),
    "square_bytes": ExpectedConstant(6.0, 0.40),
    "straggle": ExpectedConstant(0.008, 0.70),
    "fixed_s": ExpectedConstant(0.05, 0.70),
    "fp8": ExpectedConstant(1.75, 0.10, 2.0),
    "eager": ExpectedConstant(1.5, 0.30),
    "hop_s": ExpectedConstant(1e-3, 0.70),
    "deepspeed": ExpectedConstant(1.1, 0.10),
    "deepspeed_layer_s": ExpectedConstant(3e-3, 1.0),
}
_NOISE: Final = 0.05
"""Standard deviation of a measurement's logarithm, software versions included."""
_HUBER: Final = 0.10
_STEP: Final = 1e-3
_MAX_ROUNDS: Final = 20
_LARGEST_MOVE: Final = 0.5

EXPECTED: Final = Constants(**{name: each.value for name, each in EXPECTATIONS.items()})


@dataclass(frozen=True, slots=True)
class Fit:
    """Points with the setups they are predicted at.

    Attributes:
        cases: Points with a measurement.
        setups: [cases] The way that each is taken to have been trained.
    """

    cases: Sequence[PredictionCase]
    setups: Sequence[TrainingSetup]

    @classmethod
    def of(cls, cases: Sequence[PredictionCase], constants: Constants) -> "Fit":
        """Choose what the points leave open by the given constants."""
        return cls(cases, [case.setup(constants)[0] for case in cases])

    def without(self, places: Sequence[int]) -> "Fit":
        """Leave cases out."""
        kept = [place for place in range(len(self.cases)) if place not in places]
        return Fit([self.cases[place] for place in kept], [self.setups[place] for place in kept])

    def errors(self, constants: Constants) -> _Array:
        """Return [cases] logarithms of predicted over measured."""
        pairs = zip(self.cases, self.setups, strict=True)
        return np.array(
            [
                math.log(case.flops_per_s(setup, constants) / (case.measured_flops_per_s or 1.0))
                for case, setup in pairs
            ]
        )

    def solve(self, start: Constants = EXPECTED) -> Constants:
        """Return the constants that fit best; deterministic."""
        names = list(EXPECTATIONS)
        centre = np.log([EXPECTATIONS[name].value for name in names])
        spreads = np.array([EXPECTATIONS[name].spread for name in names])
        caps = np.log([EXPECTATIONS[name].cap for name in names])
        found = np.log([getattr(start, name) for name in names])
        for _ in range(_MAX_ROUNDS):
            errors, slopes = self._linearised(names, found)
            weights = self._weights(errors)
            matrix = np.vstack([slopes * weights[:, None], np.diag(1 / spreads)])
            aim = np.concatenate([-errors * weights, (centre - found) / spreads])
            move = np.linalg.lstsq(matrix, aim, rcond=None)[0]
            before = found
            found = np.minimum(found + np.clip(move, -_LARGEST_MOVE, _LARGEST_MOVE), caps)
            if np.abs(found - before).max() < 1e-5:
                break
        return _constants(names, found)

    def _linearised(self, names: Sequence[str], found: _Array) -> tuple[_Array, _Array]:
        errors = self.errors(_constants(names, found))
        slopes = np.empty((len(self.cases), len(names)))
        for place in range(len(names)):
            beside = found.copy()
            beside[place] -= _STEP  # downwards, so that a constant at its cap can leave it
            slopes[:, place] = (errors - self.errors(_constants(names, beside))) / _STEP
        return errors, slopes

    def _weights(self, errors: _Array) -> _Array:
        series = [case.series for case in self.cases]
        counts = np.array([series.count(name) for name in series])
        huber = np.minimum(1.0, _HUBER / np.maximum(np.abs(errors), 1e-12))
        weights: _Array = np.sqrt(huber / np.sqrt(counts)) / _NOISE
        return weights


def _constants(names: Sequence[str], logarithms: _Array) -> Constants:
    values = np.exp(logarithms).tolist()
    return replace(EXPECTED, **dict(zip(names, values, strict=True)))


def published_cases() -> list[PredictionCase]:
    """Return the published points that can be predicted and have a measurement."""
    source = "published.jsonl"
    cases = [case_of(point) for point in parse_points(published_points(), source)]
    return [case for case in cases if case is not None and case.point.model_tflops_per_gpu]


def fit_constants(cases: Sequence[PredictionCase]) -> Constants:
    """Return the constants of all cases together; what is open is chosen by the expected ones."""
    return Fit.of(cases, EXPECTED).solve()


def series_of(case: PredictionCase) -> str:
    """Return the series of a case."""
    return case.series


def source_of(case: PredictionCase) -> str:
    """Return who published a case: the first word of its series (``nemo``, ``bloom``, ``dgxc``)."""
    return re.split(r"[^a-z]", case.series, maxsplit=1)[0]


def left_out_errors(
    cases: Sequence[PredictionCase], group_of: Callable[[PredictionCase], str] = series_of
) -> list[float]:
    """Return [cases] signed relative errors, each by constants that have not seen its group.

    A GPU generation that only the left-out group has keeps its expected efficiency.
    """
    whole = Fit.of(cases, EXPECTED)
    start = whole.solve()
    errors = [0.0] * len(cases)
    for group in dict.fromkeys(map(group_of, cases)):
        places = [place for place, case in enumerate(cases) if group_of(case) == group]
        constants = whole.without(places).solve(start)
        for place in places:
            case = cases[place]
            predicted = case.flops_per_s(case.setup(constants)[0], constants)
            errors[place] = error_of(predicted, case.measured_flops_per_s or math.nan)
    return errors


def baseline_errors(
    cases: Sequence[PredictionCase], group_of: Callable[[PredictionCase], str] = series_of
) -> list[float]:
    """Return [cases] what one constant per GPU type and recompute mode would have said.

    The constant is the median TFLOP/s of the other groups; of the same GPU where the mode is new,
    and for a GPU type seen nowhere else the median share of the peak of all others.
    """
    errors = []
    for case in cases:
        others = [other for other in cases if group_of(other) != group_of(case)]
        same_gpu = [other for other in others if other.gpu == case.gpu]
        same = [other for other in same_gpu if other.point.recompute == case.point.recompute]
        shares = [_share_of_peak(other) for other in same or same_gpu or others]
        errors.append(error_of(float(np.median(shares)), _share_of_peak(case)))
    return errors


def within_series_errors(cases: Sequence[PredictionCase], errors: Sequence[float]) -> list[float]:
    """Return the errors of points over their series' mean, for series of two points and more."""
    found: list[float] = []
    for series in dict.fromkeys(case.series for case in cases):
        places = [place for place, case in enumerate(cases) if case.series == series]
        if len(places) < 2:
            continue
        measured = np.array([_share_of_peak(cases[place]) for place in places])
        predicted = measured * (1 + np.array([errors[place] for place in places]))
        ratios = (predicted / predicted.mean()) / (measured / measured.mean())
        found.extend((ratios - 1).tolist())
    return found


def _share_of_peak(case: PredictionCase) -> float:
    return (case.point.model_tflops_per_gpu or math.nan) * 1e12 / case.gpu.peak_flops_per_s
