"""``unicron profile show`` and ``merge``: print throughput tables, draw them, and merge them."""

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from rich.console import RenderableType
from rich.progress_bar import ProgressBar

from controller.arguments import file_path
from controller.printing import plain_console, print_table as print_rows, refuse
from profiles.records import RecordError, on_one_line
from profiles.table_file import TableFile, TablePoint, calibrated, load_table, merged, save_table

_BAR: Final = 30
_UNITS: Final = (("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("MFLOP/s", 1e6), ("FLOP/s", 1.0))


def add_arguments(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Define the options of both commands."""
    show = actions.add_parser(
        "show",
        help="print a table, or draw it",
        description="Print a throughput table with a bar per size, or draw it into a PNG file.",
    )
    show.add_argument("table", type=file_path, metavar="TABLE", help="table file, .json or .toml")
    show.add_argument(
        "--png", type=file_path, metavar="FILE.png", help="draw the table into this file"
    )
    show.add_argument("--force", action="store_true", help="replace the PNG file if it exists")
    show.add_argument("--json", action="store_true", help="print one JSON object")
    merge = actions.add_parser(
        "merge",
        help="merge several tables into one",
        description="Merge throughput tables of one task. Measurements are kept, estimates fill the gaps,"
        " and measurements of the same layout are averaged, weighted by their iterations.",
    )
    merge.add_argument(
        "tables", type=file_path, nargs="+", metavar="TABLE", help="table file, .json or .toml"
    )
    merge.add_argument(
        "--output",
        type=file_path,
        required=True,
        metavar="FILE.json",
        help="write the merged table to this file",
    )
    merge.add_argument(
        "--calibrate",
        action="store_true",
        help="scale each estimate by the ratio of measurement to estimate at the nearest size",
    )
    merge.add_argument("--force", action="store_true", help="replace the file if it exists")


def run(arguments: argparse.Namespace) -> int:
    """Show or merge; return 0, or 2 if a file can't be used."""
    try:
        if arguments.action == "merge":
            _merge(arguments)
        else:
            _show(arguments)
    except RecordError as error:
        return refuse("unicron profile", str(error))
    except OSError as error:
        if error.filename is None:
            raise
        return refuse("unicron profile", f"{error.filename}: {error.strerror}")
    return 0


def _merge(arguments: argparse.Namespace) -> None:
    output: Path = arguments.output
    tables = [load_table(path) for path in arguments.tables]
    table = merged(tables)
    if arguments.calibrate:
        table = calibrated(table, tables)
    _check_target(output, ".json", is_forced=arguments.force)
    save_table(table, output)
    sys.stderr.write(f"{output}: {len(table.points)} sizes of {len(tables)} tables\n")


def _check_target(path: Path, suffix: str, *, is_forced: bool) -> None:
    """Refuse a file with the wrong suffix, or one that exists unless ``is_forced``.

    Raises:
        RecordError: The file is refused.
    """
    if path.suffix != suffix:
        raise RecordError(f"{path}: give a name that ends in {suffix}")
    if path.exists() and not is_forced:
        raise RecordError(f"{path}: exists already; --force replaces it")


def _show(arguments: argparse.Namespace) -> None:
    table, png = load_table(arguments.table), arguments.png
    if png is not None:
        _check_target(png, ".png", is_forced=arguments.force)
        _draw(table, png)
        sys.stderr.write(f"wrote the plot to {on_one_line(str(png))}\n")
    if arguments.json:
        sys.stdout.write(f"{json.dumps(table.model_dump())}\n")
    elif png is None:
        print_table(table)


def print_table(table: TableFile) -> None:
    """Print a table with a bar per size."""
    most = max(point.flops_per_s / point.workers for point in table.points)
    unit, scale = next((unit for unit in _UNITS if most >= unit[1]), _UNITS[-1])
    print_rows(
        plain_console(),
        ("workers", unit, "per worker", "", "layout", "origin"),
        [_row(point, scale, most) for point in table.points],
        numbers=range(3),
        title=table.title,
    )


def _row(point: TablePoint, scale: float, most: float) -> tuple[RenderableType, ...]:
    each = point.flops_per_s / point.workers
    count = f", {point.iterations} iterations" if point.iterations else ""
    count += f" of {point.iteration_s:.3g} s" if point.iteration_s else ""
    return (
        str(point.workers),
        f"{point.flops_per_s / scale:,.1f}",
        f"{each / scale:.1f}",
        ProgressBar(total=most, completed=each, width=_BAR),
        str(point.layout),
        f"{point.origin}{count}",
    )


def _draw(table: TableFile, png: Path) -> None:
    """Draw the rate by number of workers, with marks for measured and estimated points."""
    # The import takes half a second, and only this command needs it.
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    first = table.points[0]
    ideal = [first.flops_per_s * point.workers / first.workers / 1e15 for point in table.points]
    axes.plot([point.workers for point in table.points], ideal, "--", color="0.7", label="linear")
    for origin, mark in (("estimated", "o"), ("measured", "s")):
        points = [point for point in table.points if point.origin == origin]
        if points:
            rates = [point.flops_per_s / 1e15 for point in points]
            axes.plot([point.workers for point in points], rates, mark, label=origin)
    axes.set(xlabel="workers", ylabel="PFLOP/s", ylim=(0, None), xlim=(0, None))
    axes.set_title(on_one_line(table.title), parse_math=False)
    axes.legend()
    figure.savefig(png, format="png", dpi=150)
