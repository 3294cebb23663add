"""Accounts for the time of every worker, and for the accumulated weighted FLOP.

A worker is held by a task, out of service, or idle. A task's activity is one of ``ACTIVITIES``. The
GPU-hours of all activities sum up to all GPU-hours of the cluster.
"""

from dataclasses import dataclass
from typing import Final, Literal

WorkerActivity = Literal[
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
ACTIVITIES: Final[tuple[WorkerActivity, ...]] = (
    "training", "detection", "transition", "recomputation", "manual", "slow", "waiting", "repair",
)  # fmt: skip
"""
training       iterations are committed for the first time
detection      a fault has occurred, and the recovery has not begun
transition     the recovery is in progress
recomputation  iterations run again that had been committed before
manual         operators roll out a change by hand
slow           the time lost to a slow node of the task
waiting        no task holds the worker, or its task waits
repair         the worker is out of service

A task that a plan has stopped has the activity ``stopped`` and no worker.
"""


@dataclass(slots=True)
class _TaskActivity:
    """A task's present activity."""

    activity: WorkerActivity = "waiting"
    workers: int = 0
    waf: float = 0.0
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class WorkerAccount:
    """The results of one run of a policy.

    Attributes:
        waf: Accumulated weighted FLOP: the integral of F over the time in training.
        gpu_hours: GPU-hours by activity. Their sum is all GPU-hours of the run.
        ettr: Effective training time ratio: the time in training (slow phases count by their speed)
            over the length of the run. All tasks count alike.
        availability: The same over the time in which no plan had stopped the task.
        num_incidents: Faults that hit a task.
        num_plans: Proposed plans; None for a policy without plans.
    """

    waf: float
    gpu_hours: dict[str, float]
    ettr: float
    availability: float
    num_incidents: int
    num_plans: int | None = None


class WorkerTimeLedger:
    """The account of one run, updated at every change of activity."""

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
        activity: WorkerActivity,
        *,
        workers: int,
        waf: float = 0.0,
        speed: float = 1.0,
    ) -> None:
        """Note a task's activity from now on.

        Args:
            at_s: Now, in seconds since the start.
            name: The task.
            activity: Its new activity.
            workers: The workers that it holds and that are in service.
            waf: F of its size, weighted FLOP/s. It counts in training only.
            speed: Its training speed, as a fraction of the usual speed.
        """
        self._settle(at_s)
        self._tasks[name] = _TaskActivity(activity, workers, waf, speed)

    def activity_of(self, name: str) -> WorkerActivity:
        """Return a task's present activity."""
        return self._tasks[name].activity

    def out_of_service(self, at_s: float, num_workers: int) -> None:
        """Note the number of workers out of service from now on."""
        self._settle(at_s)
        self._num_out = num_workers

    def close(self, at_s: float) -> WorkerAccount:
        """End the run and return its account."""
        self._settle(at_s)
        hours: dict[str, float] = {
            name: seconds * self._gpus_per_worker / 3600.0
            for name, seconds in self._worker_s.items()
        }
        ettr = self._training_s / (at_s * len(self._tasks)) if at_s and self._tasks else 0.0
        availability = self._training_s / self._active_s if self._active_s else 0.0
        return WorkerAccount(self._waf, hours, ettr, availability, self.num_incidents)

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
