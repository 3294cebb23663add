"""Task profiles: what a training task is like, read from TOML and checked as a whole.

A profile says everything about a task that does not depend on the cluster it runs on: its model,
how it trains, its weight, and T(t, x). A file holds one ``[[task]]`` table per task, in the shape
of ``TaskProfile``. Any mistake is one ``ProfileError`` that names the file, the place, the value
and what is allowed; nothing is guessed, and no profile of a file with a mistake is used.

Whether the tasks fit a cluster is not checked here.

With the key ``file``, T(t, x) comes from a table in a file:

    [task.throughput]
    file = "profiles/gpt-a.json"        # relative to the tasks file

Sizes of the table stand for those of ``points``, which may be left out then; the other ones stay.
"""

import json
import math
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field, ValidationError, model_validator

from profiles.command_task import CommandTask
from profiles.json_faults import digits_fault
from profiles.key_mistakes import KeyMistake, key_mistakes, shorten
from profiles.layout import LARGEST, Layout
from profiles.model import ModelShape
from profiles.records import RecordError
from profiles.table_file import TablePoint, load_table
from profiles.throughput import ThroughputPoint, ThroughputTable
from profiles.training_program import Program, TrainingSettings

DEMO_TASKS: Final = resources.files("profiles").joinpath("data", "demo.toml")
"""The file with the demo's tasks, ``gpt-a`` and ``gpt-b``."""

_MAX_WEIGHT: Final = 1e9

_NEEDED_TO_TRAIN: Final = ("model", "num_micro_batches")
_OF_ANY_TASK: Final = frozenset(
    {
        "name", "weight", "workers", "min_workers", "keeps_running", "command", "long_intervals",
        "num_micro_batches", "throughput", "checkpoint_dir", "workdir", "shared",
    }
)  # fmt: skip
"""Keys that go with a command too; how it trains is its own business."""


class ProfileError(Exception):
    """Task profiles can't be used. The text is one line and names file, place and mend."""


def _is_name(name: str) -> str:
    # Names become part of file names, of drill targets and of rank identities.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", name):
        raise ValueError(
            "must be 1 to 32 letters, digits, '-' or '_', and begin with a letter or digit"
        )
    return name


class TaskProfile(TrainingSettings):
    """One task. How it trains is in ``TrainingSettings``.

    Attributes:
        name: Unique in its file.
        weight: Priority w(t): multiplies the throughput in the WAF.
        workers: Size at the start; a listed one.
        min_workers: Smallest size that the task may run at; a listed one.
        keeps_running: Whether a plan may stop it only if ``min_workers`` have no room.
        command: What to run in the manner of torchrun instead of a training loop of ours; how it
            trains is then its own business, so ``model`` and the training settings are not allowed
            here, except ``num_micro_batches``, which its arguments can hold as ``{micro_batches}``.
        model: Shape of the model. FLOPs are counted by it also where the program is one's own.
        long_intervals: After every multiple of one of these the program evaluates, or saves on its
            own account: the iteration that follows takes longer, and says nothing about the others.
        checkpoint_dir: Directory of its checkpoints, shared by all nodes; a command gets it as its
            task directory. Empty: a folder of its name below the run's.
        data: Text to train on, on every node. Empty: the run's.
        workdir: Folder with the program, which is copied to the nodes that run the task. Empty:
            the program is at the same path on every node.
        shared: Whether ``workdir`` is on every node already, so that nothing is copied.
        throughput: T(t, x), with a layout for each size; tp and pp may differ. In a file, ``file``
            names a table to take it from (``profiles.task_profiles``).
    """

    name: Annotated[str, AfterValidator(_is_name)]
    weight: float = Field(gt=0, le=_MAX_WEIGHT, allow_inf_nan=False)
    workers: int = Field(gt=0, le=LARGEST)
    min_workers: int = Field(gt=0, le=LARGEST)
    keeps_running: bool = False
    command: CommandTask | None = None
    model: ModelShape | None = None
    long_intervals: tuple[Annotated[int, Field(gt=1, le=LARGEST)], ...] = ()
    checkpoint_dir: str = ""
    data: str = ""
    workdir: str = ""
    shared: bool = False
    throughput: ThroughputTable

    @model_validator(mode="after")
    def _fits_together(self) -> "TaskProfile":
        self._check_keys()
        self._check_sizes()
        for point in self.throughput.points:
            if self.model is not None:
                self._check_layout(point, self.model)
            if "num_micro_batches" in self.model_fields_set:
                self._check_micro_batches(point)
        return self

    def _check_keys(self) -> None:
        given = self.model_fields_set
        if "shared" in given and not self.workdir:
            raise ValueError("shared: says that workdir is on every node; add workdir, or leave it")
        if self.workdir and self.command is None and self.program is None:
            raise ValueError("workdir: the built-in GPT needs no folder; leave it out")
        inner = self.command.cwd if self.command else self.program.directory if self.program else ""
        inner = os.path.normpath(inner or ".")
        if self.workdir and (inner.startswith("/") or inner.split("/")[0] == ".."):
            key = "command.cwd" if self.command else "program.directory"
            raise ValueError(f"{key}: {inner!r:.60} is not in workdir; a path is relative to it")
        if self.command is not None:
            if foreign := sorted(given - _OF_ANY_TASK):
                raise ValueError(f"{foreign[0]}: a command trains as it likes; leave it out")
            if "micro_batches" in self.command.placeholders and "num_micro_batches" not in given:
                raise ValueError("num_micro_batches is missing: the command has {micro_batches}")
        elif missing := [key for key in _NEEDED_TO_TRAIN if key not in given]:
            raise ValueError(f"{missing[0]} is missing")

    def _check_sizes(self) -> None:
        sizes = self.throughput.sizes
        for key, size in (("workers", self.workers), ("min_workers", self.min_workers)):
            if size not in sizes:
                raise ValueError(f"{key} = {size}: must be a listed size: {_list(sizes)}")
        if self.workers < self.min_workers:
            raise ValueError(
                f"workers = {self.workers}: must be at least min_workers, {self.min_workers}"
            )

    def _check_layout(self, point: ThroughputPoint, model: ModelShape) -> None:
        misfit = model.misfit(point.layout) if self.program is None else None
        if misfit:
            raise ValueError(
                f"throughput: layout {point.layout} does not fit the model: {misfit};"
                f" {_allowed_layouts(model)}"
            )

    def _check_micro_batches(self, point: ThroughputPoint) -> None:
        if self.num_micro_batches % point.layout.dp:
            step = math.lcm(*(each.layout.dp for each in self.throughput.points))
            raise ValueError(
                f"num_micro_batches = {self.num_micro_batches}: must be a multiple of dp"
                f" {point.layout.dp}, the layout of {point.workers} workers; {step} suits all sizes"
            )


def _allowed_layouts(model: ModelShape) -> str:
    tp = math.gcd(model.num_attention_heads, model.vocab_size)
    return f"tp must divide {tp} and pp must divide {model.num_layers}"


def default_task_profiles() -> list[TaskProfile]:
    """Return the demo's tasks, ``gpt-a`` and ``gpt-b``."""
    return _parse(DEMO_TASKS.read_bytes(), "profiles/data/demo.toml", Path())


def load_task_profiles(path: Path) -> list[TaskProfile]:
    """Read the task profiles in the TOML file ``path``, in their order; at least one.

    Throughput tables, and directories of programs and commands, are relative to the file's; a
    command without one is run there.

    Raises:
        ProfileError: The file can't be read, is empty or not TOML, or a profile in it is wrong.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ProfileError(f"{path}: {reason}; name a TOML file with task profiles") from error
    return [anchored(profile, path.parent) for profile in _parse(content, str(path), path.parent)]


def anchored(profile: TaskProfile, folder: Path) -> TaskProfile:
    """Return the profile with its paths, which are relative to ``folder``, made absolute."""
    paths = {key: getattr(profile, key) for key in ("checkpoint_dir", "data", "workdir")}
    absolute = {key: str((folder / path).resolve()) for key, path in paths.items() if path}
    profile = profile.model_copy(update=absolute)
    if profile.workdir:
        folder = Path(profile.workdir)
    if profile.command is not None:
        cwd = str((folder / profile.command.cwd).resolve())
        return profile.model_copy(
            update={"command": profile.command.model_copy(update={"cwd": cwd})}
        )
    program = profile.program
    if program is None or not (program.directory or profile.workdir):
        return profile
    directory = str((folder / program.directory).resolve())
    anchored = program.model_copy(update={"directory": directory})
    return profile.model_copy(update={"program": anchored})


def _parse(content: bytes, source: str, folder: Path) -> list[TaskProfile]:
    entries = _task_tables(_decode(content, source), source)
    profiles = [
        _parse_task(entry, number, source, folder) for number, entry in enumerate(entries, start=1)
    ]
    names = [profile.name for profile in profiles]
    for number, name in enumerate(names, start=1):
        if (first := names.index(name) + 1) != number:
            raise ProfileError(
                f"{source}: tasks {first} and {number} are both called {name!r};"
                " every task needs a name of its own"
            )
    return profiles


def read_task(entry: object, folder: Path) -> TaskProfile | list[KeyMistake]:
    """Return the profile that a ``[[task]]`` table stands for, or all mistakes in it.

    Args:
        entry: The table.
        folder: Throughput tables are relative to it. Other paths stay as they are (``anchored``).
    """
    # By way of JSON, because pydantic is strict about types there (no "4" or true for 4) and yet
    # takes arrays and tables for what they stand for. A date becomes text, which no key accepts.
    try:
        whole = with_points_of_file(entry, folder)
        return TaskProfile.model_validate_json(json.dumps(whole, default=str), strict=True)
    except RecordError as error:
        return [KeyMistake(("throughput", "file"), str(error))]
    except ValidationError as error:
        return key_mistakes(error, _KNOWN_KEYS)


def _decode(content: bytes, source: str) -> dict[str, object]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ProfileError(
            f"{source}: line {line} is not UTF-8 (byte 0x{content[error.start]:02x});"
            " save the file as UTF-8"
        ) from error
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise ProfileError(f"{source}: not valid TOML: {digits_fault(text) or error}") from error


def _task_tables(document: dict[str, object], source: str) -> list[object]:
    unknown = sorted(document.keys() - {"task"})
    if unknown:
        raise ProfileError(
            f"{source}: unknown key {unknown[0]!r}: only [[task]] tables belong here"
        )
    entries = document.get("task", [])
    if not isinstance(entries, list):
        raise ProfileError(f"{source}: 'task' must be a list of tables: write [[task]], not [task]")
    if not entries:
        raise ProfileError(f"{source}: no task in it: write one [[task]] table per task")
    return entries


def _parse_task(entry: object, number: int, source: str, folder: Path) -> TaskProfile:
    name = entry.get("name") if isinstance(entry, dict) else None
    place = f"{source}: task {shorten(repr(name) if isinstance(name, str) else str(number))}"
    profile = read_task(entry, folder)
    if isinstance(profile, TaskProfile):
        return profile
    raise ProfileError(f"{place}: {profile[0].text}")


_KNOWN_KEYS: Final[Mapping[str, Collection[str]]] = {
    "": TaskProfile.model_fields,
    "command": CommandTask.model_fields,
    "model": ModelShape.model_fields,
    "program": Program.model_fields,
    "throughput": [*ThroughputTable.model_fields, "file"],
    "points": ThroughputPoint.model_fields,
    "layout": Layout.__dataclass_fields__,
}


def _list(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes))


def with_points_of_file(entry: object, folder: Path) -> object:
    """Return the ``[[task]]`` table ``entry`` with the points of its file, if it names one.

    The caller checks the rest of the table.

    Raises:
        RecordError: The file can't be read, or is no throughput table.
    """
    throughput = entry.get("throughput") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(throughput, dict) or "file" not in throughput:
        return entry
    name, given = throughput["file"], throughput.get("points", [])
    if not isinstance(name, str) or not name:
        raise RecordError(f"throughput.file = {name!r:.60}: must be the path of a table")
    if not isinstance(given, list):
        raise RecordError(f"throughput.points = {given!r:.60}: must be a list")
    if "\0" in name:
        raise RecordError(f"throughput.file = {name!r:.60}: must be the path of a table")
    points = [_trainable(point, folder / name) for point in load_table(folder / name).points]
    sizes = {point["workers"] for point in points}
    kept = [each for each in given if not (isinstance(each, dict) and each.get("workers") in sizes)]
    rest = {key: value for key, value in throughput.items() if key != "file"}
    return entry | {"throughput": rest | {"points": [*kept, *points]}}


def _trainable(point: TablePoint, path: Path) -> dict[str, object]:
    """Return a point as a task lists it.

    Raises:
        RecordError: No task is trained in its layout.
    """
    if point.layout.cp > 1:
        raise RecordError(
            f"{path}: {point.workers} workers: {point.layout}: Unicron trains no task with context"
            " parallelism; estimate the table without --context-parallel"
        )
    return {
        "workers": point.workers,
        "flops_per_s": point.flops_per_s,
        "layout": point.layout.model_dump(),
    }
