"""Task profiles: what a training task is like, read from TOML and checked as a whole.

A profile says everything about a task that does not depend on the cluster it runs on: its model,
how it trains, its weight, and T(t, x). A mistake is one error that names the file, the place, the
value and what is allowed; nothing is guessed.
"""

import difflib
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from profiles.model import ModelShape
from profiles.throughput import ThroughputPoint, ThroughputTable


class ProfileError(Exception):
    """A file of task profiles can't be used; the text names file, place and mend."""


class TaskProfile(BaseModel):
    """One task.

    Attributes:
        name: Letters, digits, ``-`` and ``_``; unique.
        weight: Priority in the WAF.
        workers: Size at the start.
        min_workers: Smallest size that is of use.
        model: Shape of the model.
        num_micro_batches: Micro-batches of the global batch; a multiple of every layout's dp.
        micro_batch_size: Samples of a micro-batch.
        learning_rate: Adam's step size.
        checkpoint_interval: Iterations between checkpoints.
        iteration_floor_s: Shortest time of an iteration, for toys that would be too fast to watch.
        throughput: T(t, x) by size.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")]
    weight: float = Field(gt=0, allow_inf_nan=False)
    workers: int = Field(gt=0)
    min_workers: int = Field(default=1, gt=0)
    model: ModelShape
    num_micro_batches: int = Field(gt=0)
    micro_batch_size: int = Field(default=1, gt=0)
    learning_rate: float = Field(default=1e-3, gt=0)
    checkpoint_interval: int = Field(default=5, gt=0)
    iteration_floor_s: float = Field(default=0.0, ge=0)
    throughput: ThroughputTable

    @model_validator(mode="after")
    def _fits_its_layouts(self) -> "TaskProfile":
        for point in self.throughput.points:
            self._check_layout(point)
        if len({(point.layout.tp, point.layout.pp) for point in self.throughput.points}) > 1:
            raise ValueError("layouts differ in tp or pp: checkpoints restore with another dp only")
        for key, size in (("workers", self.workers), ("min_workers", self.min_workers)):
            if size not in self.throughput.sizes:
                listed = ", ".join(map(str, self.throughput.sizes))
                raise ValueError(f"{key} {size} is not a listed size: {listed}")
        return self

    def _check_layout(self, point: ThroughputPoint) -> None:
        misfit = self.model.misfit(point.layout)
        if misfit is None and self.num_micro_batches % point.layout.dp:
            misfit = f"num_micro_batches {self.num_micro_batches} is not a multiple of dp"
            misfit += f" {point.layout.dp}"
        if misfit:
            raise ValueError(f"size {point.workers} ({point.layout}): {misfit}")


def default_task_profiles() -> list[TaskProfile]:
    """Return the demo's tasks, ``gpt-a`` and ``gpt-b``."""
    text = (resources.files("profiles") / "data" / "demo.toml").read_text(encoding="utf-8")
    return _parse(text, "profiles/data/demo.toml")


def load_task_profiles(path: Path) -> list[TaskProfile]:
    """Read the task profiles in ``path``.

    Raises:
        ProfileError: The file is missing, empty, not TOML, or a profile in it is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path}: not UTF-8 at byte {error.start}") from error
    return _parse(text, str(path))


def _parse(text: str, source: str) -> list[TaskProfile]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{source}: not TOML: {error}") from error
    unknown = sorted(tables.keys() - {"task"})
    if unknown:
        raise ProfileError(f"{source}: unknown table [{unknown[0]}]; tasks are [[task]]")
    entries = tables.get("task")
    if not isinstance(entries, list) or not entries:
        raise ProfileError(f"{source}: no task in it; write one [[task]] table per task")
    profiles = [_parse_task(entry, position, source) for position, entry in enumerate(entries, 1)]
    _check_names(profiles, source)
    return profiles


def _parse_task(entry: object, position: int, source: str) -> TaskProfile:
    name = entry.get("name", f"number {position}") if isinstance(entry, dict) else position
    try:
        return TaskProfile.model_validate(_with_points(entry))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        where = f"{source}: task {name}" + (f", {place}" if place else "")
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            message = _nearest(str(first["loc"][-1]))
        elif first["type"] not in {"value_error", "missing"}:
            message += f" (is {first['input']!r})"
        raise ProfileError(f"{where}: {message}") from error


def _with_points(entry: object) -> object:
    """Turn ``[[task.size]]`` tables (workers, flops_per_s, tp, pp, dp) into a throughput table."""
    if not isinstance(entry, dict) or not isinstance(entry.get("size"), list):
        return entry
    fields = {key: value for key, value in entry.items() if key != "size"}
    points = []
    for size in entry["size"]:
        layout = {key: size[key] for key in ("tp", "pp", "dp") if key in size}
        rest = {key: value for key, value in size.items() if key not in layout}
        points.append({**rest, "layout": layout})
    return {**fields, "throughput": {"points": points}}


def _nearest(key: str) -> str:
    known = {*TaskProfile.model_fields, *ModelShape.model_fields, *ThroughputPoint.model_fields}
    close = difflib.get_close_matches(key, sorted(known), n=1)
    return f"unknown key {key!r}" + (f"; did you mean {close[0]!r}?" if close else "")


def _check_names(profiles: Sequence[TaskProfile], source: str) -> None:
    names = [profile.name for profile in profiles]
    for name in names:
        if names.count(name) > 1:
            raise ProfileError(f"{source}: two tasks are called {name!r}")
