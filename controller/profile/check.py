"""``unicron profile check``: compares predictions with measured points."""

import argparse
import json
import sys
from typing import Any

from controller.arguments import file_path
from controller.printing import plain_console, print_table, refuse
from profiles.estimate.constants import Constants, fitted_constants
from profiles.estimate.points import Point, load_points
from profiles.estimate.prediction import case_of, error_of, spread
from profiles.estimate.training_setup import TrainingSetup
from profiles.records import RecordError


def add_arguments(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Define the options."""
    parser = actions.add_parser(
        "check",
        help="compare predictions with measurements",
        description="Predict each measured point of a JSONL file, in the layout that the point names or else"
        " in the best one. Print both in TFLOP/s per GPU, and the error relative to the measurement."
        " docs/profiles.md explains the keys of a point.",
    )
    parser.add_argument(
        "points", type=file_path, metavar="POINTS.jsonl", help="file of measured points"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Predict and print; return 0, or 2 if the file is wrong."""
    try:
        points = load_points(arguments.points)
    except RecordError as error:
        return refuse("unicron profile", str(error))
    answer = check(points)
    if arguments.json:
        sys.stdout.write(f"{json.dumps(answer)}\n")
    else:
        _print(answer)
    return 0


def check(points: list[Point]) -> dict[str, Any]:
    """Return predictions and errors as JSON; null with a reason if a point can't be predicted."""
    constants = fitted_constants()
    rows = [_row(point, constants) for point in points]
    errors = [row["error"] for row in rows if row["error"] is not None]
    median, p90 = spread(errors) if errors else (None, None)
    return {"points": rows, "median_error": median, "p90_error": p90}


def _row(point: Point, constants: Constants) -> dict[str, Any]:
    measured = point.model_tflops_per_gpu
    row: dict[str, Any] = {"id": point.id, "measured": measured, "predicted": None, "error": None}
    try:
        case = case_of(point)
    except RecordError as error:
        return row | {"reason": str(error)}
    if case is None:
        return row | {"reason": point.missing}
    setup, fits = case.setup(constants)
    inconsistencies = _inconsistencies(point, setup)
    rate = case.flops_per_s(setup, constants) * case.counted_share
    predicted = rate / case.request.workers / 1e12
    if not fits:
        inconsistencies.append(f"does not fit: {case.misfit(setup, constants)}")
    row |= {
        "predicted": predicted,
        "error": None if measured is None else error_of(predicted, measured),
        "layout": str(setup.layout) + (f" cp{setup.cp}" if setup.cp > 1 else ""),
        "virtual_stages": setup.virtual,
        "micro_batch": setup.micro_batch,
        "recompute": setup.recompute.value,
        "recompute_layers": setup.recompute_layers,
        "stack": case.stack.name,
        "flops": point.flops or "megatron",
        "hardware": case.gpu.name,
        "unmeasured": case.unmeasured,
        "fits": not inconsistencies,
    }
    if inconsistencies:
        row["note"] = "; ".join(inconsistencies)
    return row if measured is not None else row | {"reason": "model_tflops_per_gpu not given"}


def _inconsistencies(point: Point, setup: TrainingSetup) -> list[str]:
    """Return which data of the point conflict. Such a point is predicted all the same."""
    inconsistencies = []
    layout = setup.layout
    if point.layers and layout.pp > point.layers:
        inconsistencies.append(f"{layout.pp} stages for {point.layers} layers")
    if point.gpus and setup.num_workers != point.gpus:
        inconsistencies.append(f"{layout} has {setup.num_workers} of {point.gpus} GPUs")
    if point.dp and layout.dp != point.dp:
        inconsistencies.append(f"dp {point.dp} is named, and {layout.dp} taken")
    return inconsistencies


def _print(answer: dict[str, Any]) -> None:
    console = plain_console()
    rows = [
        (
            row["id"],
            _shown(row["measured"], ".1f"),
            _shown(row["predicted"], ".1f"),
            _shown(row["error"], "+.1%"),
            ", ".join(filter(None, (row.get("layout") or row["reason"], row.get("note")))),
            row.get("recompute", ""),
        )
        for row in answer["points"]
    ]
    heads = ("point", "measured", "predicted", "error", "layout", "recompute")
    print_table(console, heads, rows, numbers=range(1, 4))
    if answer["median_error"] is not None:
        console.print(
            f"TFLOP/s per GPU; median error {answer['median_error']:.1%}, 90th percentile"
            f" {answer['p90_error']:.1%}"
        )
    unmeasured = sorted({name for row in answer["points"] for name in row.get("unmeasured", ())})
    if unmeasured:
        console.print(f"not measured: {', '.join(unmeasured)}")


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
