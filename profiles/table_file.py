"""Throughput tables as files: JSON or TOML, with a version, each point with its origin.

    {"version": 1, "title": "gpt3-7b on a800-80g",
     "points": [{"workers": 8, "flops_per_s": 1.1e15, "layout": {"tp": 1, "pp": 1, "dp": 8},
                 "origin": "measured", "iterations": 40}]}

Tables of one task can be merged. A measurement replaces an estimate, and two measurements count by
their numbers of iterations.
"""

import contextlib
import json
import math
import tomllib
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

from profiles.json_faults import digits_fault
from profiles.records import Record, RecordError, parse_record, read_text, validated

VERSION: Final = 1
_SUFFIXES: Final = (".json", ".toml")
_Workers = Annotated[int, Field(ge=1, le=10**7)]
Origin = Literal["estimated", "measured"]


class LayoutRecord(Record):
    """A layout as a file writes it."""

    tp: _Workers = 1
    pp: _Workers = 1
    dp: _Workers = 1
    cp: _Workers = 1
    """Workers that divide each sample's tokens. No task of Unicron's is trained so."""

    @property
    def num_workers(self) -> int:
        """Workers that the layout needs."""
        return self.tp * self.pp * self.dp * self.cp

    def __str__(self) -> str:
        """As operators read it."""
        context = f" cp{self.cp}" if self.cp > 1 else ""
        return f"tp{self.tp} pp{self.pp} dp{self.dp}{context}"

    @model_serializer(mode="wrap")
    def _leave_out_unused(self, write: SerializerFunctionWrapHandler) -> dict[str, int]:
        """Leave ``cp`` out where there is none: older versions do not know it."""
        written: dict[str, int] = write(self)
        return {key: size for key, size in written.items() if key != "cp" or size > 1}


class TablePoint(Record):
    """One size.

    Attributes:
        workers: Number of workers, x.
        flops_per_s: T(t, x), model FLOP/s of all of them together.
        layout: What achieves it.
        origin: Where the number is from.
        iterations: How many iterations were measured; 0 for an estimate.
        iteration_s: Seconds that one takes; None where that is not known.
    """

    workers: _Workers
    flops_per_s: Annotated[float, Field(gt=0, le=1e30, allow_inf_nan=False)]
    layout: LayoutRecord
    origin: Origin
    iterations: Annotated[int, Field(ge=0, le=10**12)] = 0
    iteration_s: Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)] | None = None


class TableFile(Record):
    """A table as a file holds it."""

    version: int
    title: str
    points: Annotated[list[TablePoint], Field(min_length=1)]


def load_table(path: Path) -> TableFile:
    """Return the table in a file, points by size.

    Raises:
        RecordError: The file can't be read, or something in it is wrong.
    """
    if path.suffix not in _SUFFIXES:
        raise RecordError(f"{path}: a table is a file named .json or .toml")
    table = _read_toml(path) if path.suffix == ".toml" else _read_json(path)
    if table.version != VERSION:
        raise RecordError(f"{path}: version: {table.version} is not known; this is {VERSION}")
    seen: set[int] = set()
    for number, point in enumerate(table.points):
        place = f"{path}: points.{number}"
        if point.workers in seen:
            raise RecordError(f"{place}.workers: {point.workers} is listed twice; list it once")
        seen.add(point.workers)
        size = point.layout.num_workers
        if size != point.workers:
            raise RecordError(
                f"{place}.layout: makes {size} workers, not {point.workers}: tp x pp x dp x cp"
            )
    points = sorted(table.points, key=lambda point: point.workers)
    return table.model_copy(update={"points": points})


def _read_json(path: Path) -> TableFile:
    return parse_record(TableFile, read_text(path), str(path))


def _read_toml(path: Path) -> TableFile:
    text = read_text(path)
    try:
        document = tomllib.loads(text)
    except ValueError as error:
        raise RecordError(f"{path}: not valid TOML: {digits_fault(text) or error}") from error
    except RecursionError as error:
        raise RecordError(f"{path}: tables or lists in it are nested too deep") from error
    return validated(TableFile, document, str(path))


def save_table(table: TableFile, path: Path) -> None:
    """Write a table as JSON, as a whole: who reads meanwhile finds the old one.

    Raises:
        OSError: It can't be written.
    """
    scratch = path.with_name(f".{path.name}.new")
    try:
        scratch.write_text(json.dumps(table.model_dump(), indent=1) + "\n", encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        error.filename = str(path)
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise


def merged(tables: Iterable[TableFile]) -> TableFile:
    """Return one table of all, with the title of the first.

    Of an estimate and a measurement the measurement stays, of two estimates the later one. Two
    measurements in one layout are averaged, each by its iterations; in two layouts the faster
    stays.
    """
    every = list(tables)
    found: dict[int, TablePoint] = {}
    for point in chain.from_iterable(table.points for table in every):
        known = found.get(point.workers)
        found[point.workers] = point if known is None else _one_of(known, point)
    points = [found[workers] for workers in sorted(found)]
    return TableFile(version=VERSION, title=every[0].title, points=points)


def _scaled(point: TablePoint, factor: float) -> TablePoint:
    rate = point.flops_per_s * factor
    try:
        return TablePoint.model_validate(point.model_dump() | {"flops_per_s": rate})
    except ValidationError as error:
        text = f"{point.workers} workers would be estimated at {rate:g} FLOP/s, which can't be"
        raise RecordError(f"{text}: is the measurement sound?") from error


def calibrated(table: TableFile, tables: Iterable[TableFile]) -> TableFile:
    """Return ``table`` with its estimates scaled by the ratio of measurements to estimates.

    The nearest size, in ratio, that one of ``tables`` estimates and ``table`` has measured gives
    the ratio; of two as near the smaller one. Estimates of other sizes are off by about the same
    factor, so without this the planner would compare them with measurements as if they were none.

    Raises:
        RecordError: No size is both measured and estimated.
    """
    estimates = {
        point.workers: point.flops_per_s
        for each in tables
        for point in each.points
        if point.origin == "estimated"
    }
    factors = {
        point.workers: point.flops_per_s / estimates[point.workers]
        for point in table.points
        if point.origin == "measured" and point.workers in estimates
    }
    if not factors:
        raise RecordError("no size is both measured and estimated: nothing to calibrate by")

    def factor(workers: int) -> float:
        return factors[min(factors, key=lambda size: (abs(math.log(size / workers)), size))]

    points = [
        point if point.origin == "measured" else _scaled(point, factor(point.workers))
        for point in table.points
    ]
    return table.model_copy(update={"points": points})


def _one_of(known: TablePoint, new: TablePoint) -> TablePoint:
    if known.origin != new.origin:
        return known if known.origin == "measured" else new
    if new.origin == "estimated":
        return new
    if known.layout != new.layout:
        return max(known, new, key=lambda point: point.flops_per_s)
    # A mean over iterations is one of times, and time is work over rate.
    count = known.iterations + new.iterations
    time = known.iterations / known.flops_per_s + new.iterations / new.flops_per_s
    rate = count / time if count else new.flops_per_s
    iteration_s = None
    if known.iteration_s and new.iteration_s and count:
        total_s = known.iterations * known.iteration_s + new.iterations * new.iteration_s
        iteration_s = total_s / count
    return new.model_copy(
        update={"flops_per_s": rate, "iterations": count, "iteration_s": iteration_s}
    )


def estimated_table(title: str, layouts: Iterable[dict[str, Any]]) -> TableFile:
    """Return the table of what ``unicron profile estimate`` has found."""
    points = [
        TablePoint(
            workers=row["workers"],
            flops_per_s=row["flops_per_s"],
            layout=LayoutRecord(tp=row["tp"], pp=row["pp"], dp=row["dp"], cp=row["cp"]),
            origin="estimated",
        )
        for row in layouts
    ]
    return TableFile(version=VERSION, title=title, points=points)
