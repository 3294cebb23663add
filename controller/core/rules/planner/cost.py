"""The worth of a size to a task: the paper's F, WAF and G (Unicron, arXiv 2401.00134, section 5).

    F(t, x)  =  w(t) * T(t, x)                                  weighted achieved FLOP/s
    WAF      =  sum over the tasks of F(t, x)
    G(t, x') =  F(t, x') * D_running  -  1(t, x -> x') * F(t, x) * D_transition

G is in weighted FLOP. The first term is the work until the next expected fault. The second term is
the work that the task misses during the transition. The indicator is 1 if the size changes or a
worker of the task failed. A stopped task has F(t, 0) = 0, so starting it is free: the paper's rule.

Our own additions: a task that ends before the next expected fault earns only until its end. Moving
it shortly before its end is not worth the transition. D_transition depends on the size: a layout
that splits the model in another way takes a new start from disk.

T is neither linear nor monotone in x. A size is unusable and earns nothing if the table does not
list it or if it is below the user's minimum. That holds for the present size too. Size 0 (stopped)
is allowed, unless the task keeps running (``controller.core.rules.planner.floors``).

Units are FLOP/s, seconds and FLOP. ``controller.core.rules.planner.solver`` decides the sizes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from controller.core.rules.planner.options import Options
from nodeagent.protocol.ids import TaskId
from profiles.rates import Rates

_SIGNIFICANT_BITS: Final = 52
"""Bits of the largest possible sum of gains. One less than a float has: see ``Quantum``."""
_MAX_EXPONENT: Final = 1000
"""A float can hold two to the power of this, and of its negative."""


@dataclass(frozen=True, slots=True)
class PlanTask:
    """One task as the planner sees it.

    Attributes:
        name: The task. Names break ties.
        weight: w(t), positive.
        rates: T(t, x) in FLOP/s.
        workers: x, the size before the event, also while the task runs on survivors; 0 if it did
            not run. The table need not list it.
        min_workers: The user's minimum. Smaller sizes are not allowed.
        is_faulted: Whether the task lost a worker. Then even its present size needs a transition.
        transition_s: D_transition, expected seconds without training if the task moves.
        layout_change_s: D_transition to a size whose layout splits the model in another way; None
            if it is the same.
        model: How the present layout splits the model (``Layout.model``); None if the task has
            none.
        remaining_s: Expected seconds to the task's last iteration; None if unknown or unlimited.
        keeps_running: Whether it may be stopped only if its smallest size has no room.
    """

    name: TaskId
    weight: float
    rates: Rates
    workers: int
    min_workers: int
    is_faulted: bool
    transition_s: float
    remaining_s: float | None = None
    keeps_running: bool = False
    layout_change_s: float | None = None
    model: int | None = None

    def choices(self, num_workers: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the allowed sizes up to ``num_workers``, ascending from 0, and F of each size."""
        first, end = self._usable(num_workers)
        sizes = np.zeros(1 + end - first, np.int64)
        wafs = np.zeros(len(sizes))
        sizes[1:] = self.rates.sizes[first:end]
        np.multiply(self.rates.flops_per_s[first:end], self.weight, out=wafs[1:])
        return sizes, wafs

    def _usable(self, num_workers: int) -> tuple[int, int]:
        first = int(self.rates.sizes.searchsorted(self.min_workers))
        return first, max(first, int(self.rates.sizes.searchsorted(num_workers + 1)))

    def layout_changes(self, num_workers: int) -> NDArray[np.bool_] | None:
        """Return which of the choices change how the model is split; None if none costs more."""
        if self.layout_change_s is None or self.model is None or self.rates.models is None:
            return None
        first, end = self._usable(num_workers)
        models = self.rates.models[first:end]
        changes = np.zeros(1 + len(models), np.bool_)
        np.not_equal(models, self.model, out=changes[1:])
        return changes

    def transition_to_s(self, workers: int) -> float:
        """Return D_transition to a size, in seconds."""
        model = self.rates.model_at(workers) if workers else None
        if self.layout_change_s is None or None in {self.model, model} or model == self.model:
            return self.transition_s
        return self.layout_change_s

    @property
    def longest_transition_s(self) -> float:
        """The longest D_transition, in seconds."""
        return max(self.transition_s, self.layout_change_s or 0.0)

    def waf(self, workers: int) -> float:
        """Return F(t, workers) in weighted FLOP/s; 0 for a size that is not allowed."""
        if workers < self.min_workers:
            return 0.0
        return self.weight * self.rates.at(workers)

    @property
    def smallest_size(self) -> int | None:
        """The smallest size at which the task can run; None if there is none."""
        first = int(self.rates.sizes.searchsorted(self.min_workers))
        return int(self.rates.sizes[first]) if first < len(self.rates.sizes) else None

    @property
    def most_waf(self) -> float:
        """The largest F of all allowed sizes, in weighted FLOP/s."""
        first = self.rates.sizes.searchsorted(self.min_workers)
        return self.weight * float(self.rates.flops_per_s[first:].max(initial=0.0))

    def pays(self, workers: int) -> bool:
        """Return the indicator: whether going to ``workers`` interrupts the task."""
        return workers != self.workers or self.is_faulted


@dataclass(frozen=True, slots=True)
class Problem:
    """The input of the planner.

    Attributes:
        tasks: Tasks with distinct names.
        num_workers: n', workers available after the event.
        running_s: D_running, seconds until the next expected fault.
    """

    tasks: tuple[PlanTask, ...]
    num_workers: int
    running_s: float


def horizon_s(worker_mtbf_s: float, num_workers: int) -> float:
    """Return D_running(n'): the expected time to the next fault among ``num_workers``, in seconds.

    Faults of workers count as independent and memoryless, so their rates add. Without workers
    nothing can fail and nothing can be earned: any horizon gives the same plan, and this returns 0.
    """
    return worker_mtbf_s / num_workers if num_workers else 0.0


def gain(task: PlanTask, workers: int, running_s: float) -> float:
    """Return G(t, workers) in weighted FLOP; negative if the transition costs more."""
    return earned(task, workers, running_s) - forgone(task, workers)


def earned(task: PlanTask, workers: int, running_s: float) -> float:
    """Return the first term of G: weighted FLOP until the next fault or the end of the task."""
    return task.waf(workers) * horizon_of(task, running_s)


def horizon_of(task: PlanTask, running_s: float) -> float:
    """Return how many seconds a task can earn: until the next fault, or until its end if sooner."""
    return running_s if task.remaining_s is None else min(running_s, task.remaining_s)


def forgone(task: PlanTask, workers: int) -> float:
    """Return the second term of G: weighted FLOP missed during the transition to ``workers``."""
    if not task.pays(workers):
        return 0.0
    return task.waf(task.workers) * task.transition_to_s(workers)


@dataclass(frozen=True, slots=True)
class Quantum:
    """The unit in which gains are compared: a power of two, so that their sums are exact.

    A sum of floats depends on the order of the additions. The winner between two equally good
    divisions would then depend on how the search is written. So both terms of G are rounded,
    separately, to multiples of 2^exponent and compared as integers.

    The unit is as fine as possible while every sum of both terms over all tasks stays below 2^53.
    So a vectorised search in floats gets the same sums exactly. One unit is below 1e-15 of all that
    the tasks could gain.

    The unit follows from the tables, the weights, the horizon and the transition times. It does not
    depend on the order of the tasks, their present sizes, or their faults.
    """

    exponent: int

    @classmethod
    def for_tasks(cls, tasks: Sequence[PlanTask], running_s: float) -> "Quantum":
        """Return the unit for dividing workers among ``tasks``.

        Raises:
            OverflowError: The gains are too large for a float.
        """
        bound = math.fsum(task.most_waf * (running_s + task.longest_transition_s) for task in tasks)
        if not math.isfinite(bound):
            raise OverflowError("the gains are too large for a float")
        # The bound is below 2^52 units. The rest up to 2^53 is for rounding: half a unit per term.
        return cls(math.frexp(bound)[1] - _SIGNIFICANT_BITS)

    def count(self, weighted_flops: float) -> int:
        """Return ``weighted_flops`` in units, rounded to the nearest (halves to even)."""
        return round(math.ldexp(weighted_flops, -self.exponent))

    def _in_units(self, weighted_flops: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ``weighted_flops`` in units, before rounding. May change the array."""
        if abs(self.exponent) > _MAX_EXPONENT:
            return np.ldexp(weighted_flops, -self.exponent)
        weighted_flops *= math.ldexp(1.0, -self.exponent)  # the same, and several times faster
        return weighted_flops

    def options(self, task: PlanTask, num_workers: int, running_s: float) -> Options:
        """Return the options of a task with up to ``num_workers``. Gains are G in units."""
        sizes, wafs = task.choices(num_workers)
        wafs *= horizon_of(task, running_s)
        # Both terms are rounded before they are subtracted, so adding the transition back below is
        # exact.
        earned = self._in_units(wafs)
        paid = self.count(task.waf(task.workers) * task.transition_s)
        gains = np.rint(earned, out=earned).astype(np.int64)
        gains -= paid
        changes = task.layout_changes(num_workers)
        extra = 0
        if changes is not None and task.layout_change_s is not None:
            extra = self.count(task.waf(task.workers) * task.layout_change_s) - paid
            gains[changes] -= extra
        # The present size of a healthy task pays no transition: give back the deduction.
        if not task.is_faulted:
            present = int(sizes.searchsorted(task.workers))
            if present < len(sizes) and sizes[present] == task.workers:
                gains[present] += paid
                if changes is not None and changes[present]:
                    gains[present] += extra
        # The change of a size is its distance from the present size: of equally good divisions the
        # one that moves the fewest workers wins.
        return Options(sizes, gains, abs(sizes - task.workers))
