"""The constants are what the fit gives, and they hold for series that the fit has not seen."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from fitting.constants_fit import (
    EXPECTATIONS,
    EXPECTED,
    Fit,
    baseline_errors,
    fit_constants,
    left_out_errors,
    published_cases,
    source_of,
    within_series_errors,
)

from profiles.estimate.constants import fitted_constants
from profiles.estimate.prediction import spread


def test_the_kept_constants_are_what_the_fit_gives() -> None:
    found = asdict(fit_constants(published_cases()))
    assert found == pytest.approx(asdict(fitted_constants()), rel=2e-3)


def test_constants_stay_physical() -> None:
    for name, value in asdict(fitted_constants()).items():
        assert 0 < value <= EXPECTATIONS[name].cap


def test_the_fit_finds_constants_that_made_the_measurements() -> None:
    truth = replace(EXPECTED, matmul_ampere=0.7, link=0.5, straggle=0.02)
    cases = published_cases()
    setups = Fit.of(cases, EXPECTED).setups
    made = [
        replace(
            case,
            point=case.point.model_copy(
                update={
                    "model_tflops_per_gpu": case.flops_per_s(setup, truth)
                    / case.request.workers
                    / 1e12
                }
            ),
        )
        for case, setup in zip(cases, setups, strict=True)
    ]
    found = Fit(made, setups).solve()
    assert found.matmul_ampere == pytest.approx(0.7, rel=0.03)
    assert np.abs(Fit(made, setups).errors(found)).max() < 0.02


@pytest.mark.thorough  # whole sources are left out in the next test
def test_unseen_series_are_predicted_better_than_by_one_constant_each() -> None:
    cases = published_cases()
    errors = left_out_errors(cases)
    median, p90 = spread(errors)
    _, within_p90 = spread(within_series_errors(cases, errors))
    baseline_median, baseline_p90 = spread(baseline_errors(cases))
    assert median <= 0.05 < baseline_median
    assert p90 <= 0.12 < baseline_p90
    assert within_p90 <= 0.07


def test_sources_that_the_fit_has_not_seen_are_predicted_with_fsdp_and_fp8_too() -> None:
    cases = published_cases()
    errors = left_out_errors(cases, source_of)
    median, p90 = spread(errors)
    assert median <= 0.04
    assert p90 <= 0.12
    new = [
        error
        for case, error in zip(cases, errors, strict=True)
        if case.stack.fully_sharded or "fp8" in (case.point.precision or "")
    ]
    assert len(new) == 16
    median, p90 = spread(new)
    assert median <= 0.08
    assert p90 <= 0.18


def test_a_source_is_the_first_word_of_its_series() -> None:
    sources = {source_of(case) for case in published_cases()}
    assert sources == {
        "sc",
        "nemo",
        "bloom",
        "megascale",
        "mtnlg",
        "dgxc",
        "mcore",
        "bridge",
        "foundry",
    }
