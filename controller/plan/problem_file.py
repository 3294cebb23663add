"""A planner's problem as a JSON file: the workers after the event, and the tasks.

    {"workers": 128, "worker_mtbf_hours": 2000, "running_s": null,
     "tasks": [{"name": "gpt3-7b", "weight": 1.0, "workers": 32, "faulted": false, "min_workers": 8,
                "transition_s": 45, "throughput": {"8": 1.1e15, "16": 2.1e15, "32": 4.0e15}}]}

A mistake is one ``RecordError`` that names the file, the place and the mend.
``controller.core.rules.planner.cost`` defines the quantities.
"""

from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from controller.core.rules.planner.cost import PlanTask, Problem as PlanProblem, horizon_s
from nodeagent.protocol.ids import TaskId
from profiles.rates import Rates
from profiles.records import Record, RecordError, parse_record, read_text

MAX_WORKERS: Final = 10**7
_MAX_DIGITS: Final = 18
MAX_NUMBER: Final = 1e30
"""Far above any real rate, weight or time. The product of several stays within a float."""


def _digits(text: str) -> str:
    if (
        not text.isascii()
        or not text.isdecimal()
        or text.startswith("0")
        or len(text) > _MAX_DIGITS
    ):
        raise ValueError("must be a number of workers in decimal digits, 1 or more")
    return text


_Number = Annotated[float, Field(ge=0, le=MAX_NUMBER, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, le=MAX_WORKERS)]
_Size = Annotated[str, AfterValidator(_digits)]


class ProblemTask(Record):
    """One task of a problem. ``docs/planner.md`` explains the keys."""

    name: str = Field(min_length=1)
    workers: _Count
    throughput: dict[_Size, _Number]
    transition_s: _Number
    weight: _Number = 1.0
    faulted: bool = False
    min_workers: _Count = 1
    remaining_s: _Number | None = None
    keeps_running: bool = False
    layout_change_s: _Number | None = None
    layout_change_sizes: list[_Count] = Field(default_factory=list)

    @property
    def rates(self) -> Rates:
        """T(t, x); the sizes of another layout of the model are of model 1, all others of 0."""
        rates = {int(size): rate for size, rate in self.throughput.items()}
        return Rates.of(rates, {size: int(size in self.layout_change_sizes) for size in rates})


class ProblemFile(Record):
    """A problem, as the file gives it.

    Attributes:
        workers: n', the number of workers after the event.
        tasks: Tasks, with distinct names.
        worker_mtbf_hours: Mean time between the SEV1 faults of one worker, hours.
        running_s: D_running, seconds; None if it follows from the MTBF.
    """

    workers: _Count
    tasks: list[ProblemTask]
    worker_mtbf_hours: Annotated[float, Field(gt=0, le=MAX_NUMBER)] | None = None
    running_s: _Number | None = None

    @property
    def horizon_s(self) -> float:
        """D_running, seconds."""
        if self.running_s is not None:
            return self.running_s
        assert self.worker_mtbf_hours is not None, "load_problem demands one of the two"
        return horizon_s(3600.0 * self.worker_mtbf_hours, self.workers)

    @property
    def planner_problem(self) -> PlanProblem:
        """The problem in the planner's own types."""
        return PlanProblem(tuple(self.plan_tasks), self.workers, self.horizon_s)

    @property
    def plan_tasks(self) -> list[PlanTask]:
        """The tasks in the planner's own types."""
        return [
            PlanTask(
                name=TaskId(task.name),
                weight=task.weight,
                rates=task.rates,
                workers=task.workers,
                min_workers=task.min_workers,
                is_faulted=task.faulted,
                transition_s=task.transition_s,
                remaining_s=task.remaining_s,
                keeps_running=task.keeps_running,
                layout_change_s=task.layout_change_s,
                model=0,
            )
            for task in self.tasks
        ]


def load_problem(path: Path) -> ProblemFile:
    """Return the problem in a file.

    Raises:
        RecordError: The file can't be read, or something in it is wrong.
    """
    text = read_text(path)
    problem = parse_record(ProblemFile, text, str(path))
    if problem.worker_mtbf_hours is None and problem.running_s is None:
        raise RecordError(f"{path}: give worker_mtbf_hours, or running_s")
    seen: set[str] = set()
    for number, task in enumerate(problem.tasks):
        if task.name in seen:
            raise RecordError(f"{path}: tasks.{number}.name: {task.name!r} names two tasks")
        seen.add(task.name)
        unlisted = [x for x in task.layout_change_sizes if str(x) not in task.throughput]
        if unlisted:
            where = f"{path}: tasks.{number}.layout_change_sizes"
            raise RecordError(f"{where}: {unlisted[0]} is no size of throughput")
        if task.layout_change_sizes and task.layout_change_s is None:
            raise RecordError(f"{path}: tasks.{number}: layout_change_sizes needs layout_change_s")
    return problem
