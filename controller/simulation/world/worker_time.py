"""Where the time goes: what every worker does at every moment, and the weighted FLOP that come of it.

A worker is held by a task, out of service, or idle. What a task does with its workers is one of
``ACTIVITIES``; their sum, with what is out of service, is all GPU-hours there are.
"""

from dataclasses import dataclass
from typing import Final, Literal

Activity = Literal[
    "training",
    "detection",
    "transition",
    "recomputation",
    "manual",
    "slow",
    "waiting",
    "repair",
    "stopped",
]
ACTIVITIES: Final[tuple[Activity, ...]] = (
    "training", "detection", "transition", "recomputation", "manual", "slow", "waiting", "repair",
)  # fmt: skip
"""
training       iterations are committed for the first time
detection      a fault has happened, and the recovery has not begun
transition     the recovery is under way
recomputation  iterations are run that had been committed before
manual         a change by hand is rolled out
slow           what is lost while a slow node holds its task up
waiting        no task has the worker, or its task waits for others
repair         the worker is out of service

A task that a plan has stopped does nothing, with no worker.
"""


@dataclass(slots=True)
class _TaskActivity:
    """What a task does now."""

    activity: Activity = "waiting"
    workers: int = 0
    waf: float = 0.0
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class WorkerAccount:
    """What a policy made of a run.

    Attributes:
        waf: Accumulated weighted FLOP: the integral of F over the time in training.
        gpu_hours: By activity; their sum is all there were.
        ettr: Effective training time ratio: the time in training, slow phases at their speed, over all
            the time in which a task was not stopped by a plan.
        num_incidents: Faults that hit a task.
        num_plans: Plans that were proposed; None of a policy that has none.
    """

    waf: float
    gpu_hours: dict[str, float]
    ettr: float
    num_incidents: int
    num_plans: int | None = None


class WorkerTimeLedger:
    """The account of one run, as it goes on."""

    def __init__(self, num_workers: int, gpus_per_worker: int, tasks: list[str]) -> None:
        self._num_workers = num_workers
        self._gpus_per_worker = gpus_per_worker
        self._tasks = {name: _TaskActivity() for name in tasks}
        self._worker_s = dict.fromkeys(ACTIVITIES, 0.0)
        self._waf = 0.0
        self._training_s = 0.0
        self._active_s = 0.0
        self._num_out = 0
        self._since = 0.0
        self.num_incidents = 0

    def task(
        self,
        at_s: float,
        name: str,
        activity: Activity,
        *,
        workers: int,
        waf: float = 0.0,
        speed: float = 1.0,
    ) -> None:
        """From now on a task does this with so many workers.

        Args:
            at_s: Now, seconds from the beginning.
            name: The task.
            activity: What it does.
            workers: That it holds and that are in service.
            waf: F of its size, weighted FLOP/s; counts in training.
            speed: In training, as a part of the usual speed.
        """
        self._settle(at_s)
        self._tasks[name] = _TaskActivity(activity, workers, waf, speed)

    def activity_of(self, name: str) -> Activity:
        """Return what a task does now."""
        return self._tasks[name].activity

    def out_of_service(self, at_s: float, num_workers: int) -> None:
        """From now on so many workers are out of service."""
        self._settle(at_s)
        self._num_out = num_workers

    def close(self, at_s: float) -> WorkerAccount:
        """End the run and return its account."""
        self._settle(at_s)
        hours: dict[str, float] = {
            name: seconds * self._gpus_per_worker / 3600.0
            for name, seconds in self._worker_s.items()
        }
        ettr = self._training_s / self._active_s if self._active_s else 0.0
        return WorkerAccount(self._waf, hours, ettr, self.num_incidents)

    def _settle(self, at_s: float) -> None:
        passed_s = at_s - self._since
        if passed_s <= 0:
            return
        self._since = at_s
        held = 0
        for task in self._tasks.values():
            if task.activity == "stopped":
                continue
            held += task.workers
            self._active_s += passed_s
            if task.activity == "training":
                self._waf += task.waf * task.speed * passed_s
                self._training_s += task.speed * passed_s
                self._worker_s["training"] += task.workers * task.speed * passed_s
                self._worker_s["slow"] += task.workers * (1 - task.speed) * passed_s
            else:
                self._worker_s[task.activity] += task.workers * passed_s
        self._worker_s["repair"] += self._num_out * passed_s
        self._worker_s["waiting"] += (self._num_workers - self._num_out - held) * passed_s
