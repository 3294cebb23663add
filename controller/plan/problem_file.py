"""A planner's problem as a JSON file: the workers that are left, and the tasks that want them.

    {"workers": 128, "worker_mtbf_hours": 2000, "running_s": null,
     "tasks": [{"name": "gpt3-7b", "weight": 1.0, "workers": 32, "faulted": false, "min_workers": 8,
                "transition_s": 45, "throughput": {"8": 1.1e15, "16": 2.1e15, "32": 4.0e15}}]}

A mistake is one ``ProblemError`` that names the file, the place and the mend. What the numbers mean is told in
``controller.core.cost``.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from controller.core.cost import PlanTask, horizon_s
from nodeagent.protocol.ids import TaskId
from profiles.rates import Rates

_MAX_WORKERS: Final = 10**7
MAX_NUMBER: Final = 1e30
"""Far above any machine, weight or time; keeps their product inside a float."""

_Number = Annotated[float, Field(ge=0, le=MAX_NUMBER, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, le=_MAX_WORKERS)]
_Size = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,7}$")]

_MENDS: Final = {
    "extra_forbidden": "unknown key",
    "missing": "is missing",
    "string_pattern_mismatch": "must be a number of workers in decimal digits, 1 or more",
    "finite_number": "must be a finite number",
}


class ProblemError(Exception):
    """A problem file can't be used. The text is one line and names file, place and mend."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Task(_Record):
    """One task of a problem; its keys are told in ``docs/planner.md``."""

    name: str = Field(min_length=1)
    workers: _Count
    throughput: dict[_Size, _Number]
    transition_s: _Number
    weight: _Number = 1.0
    faulted: bool = False
    min_workers: _Count = 1
    remaining_s: _Number | None = None


class Problem(_Record):
    """A problem, as it was given.

    Attributes:
        workers: n', workers that are left after the event.
        tasks: Tasks, with distinct names.
        worker_mtbf_hours: Mean time between the SEV1 faults of one worker, hours.
        running_s: D_running, seconds; None derives it from the MTBF.
    """

    workers: _Count
    tasks: list[Task]
    worker_mtbf_hours: Annotated[float, Field(gt=0, le=MAX_NUMBER)] | None = None
    running_s: _Number | None = None

    @property
    def horizon_s(self) -> float:
        """D_running, seconds."""
        if self.running_s is not None:
            return self.running_s
        assert self.worker_mtbf_hours is not None, "one of the two is given"
        return horizon_s(3600.0 * self.worker_mtbf_hours, self.workers)

    @property
    def plan_tasks(self) -> list[PlanTask]:
        """The tasks as the planner sees them."""
        return [
            PlanTask(
                name=TaskId(task.name),
                weight=task.weight,
                rates=Rates.of({int(size): rate for size, rate in task.throughput.items()}),
                workers=task.workers,
                min_workers=task.min_workers,
                is_faulted=task.faulted,
                transition_s=task.transition_s,
                remaining_s=task.remaining_s,
            )
            for task in self.tasks
        ]


def load_problem(path: Path) -> Problem:
    """Return the problem in a file.

    Raises:
        ProblemError: The file can't be read, or something in it is wrong.
    """
    try:
        document = json.loads(
            path.read_text(encoding="utf-8"),
            object_pairs_hook=_without_repetition,
            parse_constant=_refuse_constant,
        )
    except OSError as error:
        raise ProblemError(f"{path}: {(error.strerror or 'unreadable').lower()}") from error
    except json.JSONDecodeError as error:
        text = "is empty" if not error.doc.strip() else f"not valid JSON: {error}"
        raise ProblemError(f"{path}: {text}") from error
    except (ValueError, RecursionError) as error:
        raise ProblemError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise ProblemError(f'{path}: must be an object with "workers" and "tasks"')
    try:
        problem = Problem.model_validate(document)
    except ValidationError as error:
        raise ProblemError(f"{path}: {_first_mistake(error)}") from error
    return _checked(path, problem)


def _checked(path: Path, problem: Problem) -> Problem:
    if problem.worker_mtbf_hours is None and problem.running_s is None:
        raise ProblemError(f"{path}: give worker_mtbf_hours, or running_s")
    seen: set[str] = set()
    for number, task in enumerate(problem.tasks):
        if task.name in seen:
            raise ProblemError(
                f"{path}: tasks[{number}].name: {task.name!r} is the name of two tasks"
            )
        seen.add(task.name)
    return problem


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key!r} is given twice in one object")
        found[key] = value
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number: give a finite one")


def _first_mistake(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    place = ""
    for part in first["loc"]:
        if part == "[key]":
            continue
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else str(part)
    if first["type"] in {"missing", "extra_forbidden"}:
        return f"{place}: {_MENDS[first['type']]}"
    mend = _MENDS.get(first["type"], first["msg"].lower().replace("input should be", "must be"))
    return f"{place}: {first['input']!r:.80} {mend}"
