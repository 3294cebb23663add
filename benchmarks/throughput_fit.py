"""Fit the constants of the throughput estimate again, and tell how far it is off on unseen series.

    python benchmarks/throughput_fit.py [--write]

prints JSON: the constants, and the errors in sample, for series and for sources left out, and
of the baseline (one constant per GPU type and recompute mode). ``--write`` keeps the constants in
the repository.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fitting.constants_fit import (
    baseline_errors,
    fit_constants,
    left_out_errors,
    published_cases,
    source_of,
    within_series_errors,
)

from profiles.estimate.prediction import PredictionCase, error_of, spread

_KEPT = Path(__file__).parents[1] / "profiles" / "data" / "throughput" / "constants.json"


def figures(cases: list[PredictionCase], errors: list[float]) -> dict[str, float]:
    """Return median and 90th percentile, over all points and within series, in percent."""
    median, p90 = spread(errors)
    within_median, within_p90 = spread(within_series_errors(cases, errors))
    found = {
        "median": median, "p90": p90, "within_median": within_median, "within_p90": within_p90,
    }  # fmt: skip
    return {name: round(100 * value, 1) for name, value in found.items()}


def report() -> tuple[dict[str, Any], str]:
    """Return the figures, and the text of the constants' file."""
    cases = published_cases()
    constants = fit_constants(cases)
    in_sample = [
        error_of(
            case.flops_per_s(case.setup(constants)[0], constants), case.measured_flops_per_s or 0
        )
        for case in cases
    ]
    left_out = left_out_errors(cases)
    by_series: dict[str, list[float]] = {}
    for case, error in zip(cases, left_out, strict=True):
        by_series.setdefault(case.series, []).append(round(100 * error, 1))
    answer = {
        "points": len(cases),
        "constants": asdict(constants),
        "in_sample": figures(cases, in_sample),
        "leave_one_series_out": figures(cases, left_out),
        "baseline": figures(cases, baseline_errors(cases)),
        "leave_one_source_out": figures(cases, left_out_errors(cases, source_of)),
        "baseline_by_source": figures(cases, baseline_errors(cases, source_of)),
        "left_out_errors_by_series": by_series,
    }
    return answer, constants.as_text()


def main() -> int:
    """Print the report."""
    parser = argparse.ArgumentParser(description="Fit the throughput estimate's constants again.")
    parser.add_argument("--write", action="store_true", help=f"keep the constants in {_KEPT.name}")
    arguments = parser.parse_args()
    answer, text = report()
    if arguments.write:
        _KEPT.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{json.dumps(answer, indent=2)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
