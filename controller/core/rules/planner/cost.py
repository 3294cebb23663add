"""What a size is worth to a task: the paper's F, WAF and G (Unicron, arXiv 2401.00134, section 5).

    F(t, x)  =  w(t) * T(t, x)                                  weighted achieved FLOP/s
    WAF      =  sum over the tasks of F(t, x)
    G(t, x') =  F(t, x') * D_running  -  1(t, x -> x') * F(t, x) * D_transition

G is in weighted FLOP: what the task does until the next fault is expected, less what it would have
done while it moves. A task whose end comes sooner than the fault has that much time only (our own
addition): moving it shortly before its end is not worth the transition. The indicator is 1 if the size changes or a worker of the task failed. A task
that did not run has F(t, 0) = 0, so starting it, or starting it again, is free: the paper's rule.

T is neither linear nor monotone in x. A size that the table does not list, or that is below the
user's minimum, can't be used and earns nothing, also where it is the present one; size 0 (stopped)
always can be used.

Units are FLOP/s, seconds and FLOP throughout. Which sizes the tasks get is not decided here
(``controller.core.rules.planner.solver``).
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
"""Bits of the largest conceivable sum of gains. One less than a float has: see ``Quantum``."""
_MAX_EXPONENT: Final = 1000
"""Two to the power of this, and of its negative, is a float."""


@dataclass(frozen=True, slots=True)
class PlanTask:
    """One task as the planner sees it.

    Attributes:
        name: The task; names break ties.
        weight: w(t), positive.
        rates: T(t, x) in FLOP/s.
        workers: x, the size before the event, also while the task runs on survivors; 0 if it did
            not run. It need not be listed.
        min_workers: The user's minimum; a smaller size can't be used.
        is_faulted: Whether it lost a worker: it pays for a transition even at the same size.
        transition_s: D_transition, expected seconds without training if it moves.
        remaining_s: Expected seconds to its last iteration; None if it has none, or is not timed.
    """

    name: TaskId
    weight: float
    rates: Rates
    workers: int
    min_workers: int
    is_faulted: bool
    transition_s: float
    remaining_s: float | None = None

    def choices(self, num_workers: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the sizes that may be used with ``num_workers`` available, ascending from 0, and F of each."""
        first = self.rates.sizes.searchsorted(self.min_workers)
        usable = slice(first, max(first, self.rates.sizes.searchsorted(num_workers + 1)))
        sizes = np.zeros(1 + usable.stop - usable.start, np.int64)
        wafs = np.zeros(len(sizes))
        sizes[1:] = self.rates.sizes[usable]
        np.multiply(self.rates.flops_per_s[usable], self.weight, out=wafs[1:])
        return sizes, wafs

    def waf(self, workers: int) -> float:
        """Return F(t, workers) in weighted FLOP/s; 0 for a size that can't be used."""
        if workers < self.min_workers:
            return 0.0
        return self.weight * self.rates.at(workers)

    @property
    def most_waf(self) -> float:
        """The largest F of any size that can be used at all, in weighted FLOP/s."""
        first = self.rates.sizes.searchsorted(self.min_workers)
        return self.weight * float(self.rates.flops_per_s[first:].max(initial=0.0))

    def pays(self, workers: int) -> bool:
        """Return the indicator: whether going to ``workers`` interrupts the task."""
        return workers != self.workers or self.is_faulted


@dataclass(frozen=True, slots=True)
class Problem:
    """What a division is decided for.

    Attributes:
        tasks: Tasks with distinct names.
        num_workers: n', workers available after the event.
        running_s: D_running, seconds until the next expected fault.
    """

    tasks: tuple[PlanTask, ...]
    num_workers: int
    running_s: float


def horizon_s(worker_mtbf_s: float, num_workers: int) -> float:
    """Return D_running(n'): the expected time to the next fault among ``num_workers``, seconds.

    Faults of workers are taken as independent and memoryless, so their rates add. Without workers
    nothing can fail and nothing can be earned either; any horizon gives the same plan, and it is 0.
    """
    return worker_mtbf_s / num_workers if num_workers else 0.0


def gain(task: PlanTask, workers: int, running_s: float) -> float:
    """Return G(t, workers) in weighted FLOP; negative where the transition costs more."""
    return earned(task, workers, running_s) - forgone(task, workers)


def earned(task: PlanTask, workers: int, running_s: float) -> float:
    """Return the first term of G: weighted FLOP until the next fault, or until the task's end."""
    return task.waf(workers) * horizon_of(task, running_s)


def horizon_of(task: PlanTask, running_s: float) -> float:
    """Return how long a task can earn, seconds: until the next fault, or its end if that is sooner."""
    return running_s if task.remaining_s is None else min(running_s, task.remaining_s)


def forgone(task: PlanTask, workers: int) -> float:
    """Return the second term of G: weighted FLOP not done during the transition to ``workers``."""
    return task.waf(task.workers) * task.transition_s if task.pays(workers) else 0.0


@dataclass(frozen=True, slots=True)
class Quantum:
    """The unit in which gains are compared: a power of two, so that their sums are exact.

    Sums of floats depend on the order of the additions; which of two equally good divisions wins
    would then depend on how the search is written. So both terms of G are rounded, separately, to
    whole multiples of one unit 2^exponent and compared as integers. The unit is as fine as it can
    be while every sum of both terms over all tasks stays below 2^53, so that floats (a vectorised
    search) hold the same sums exactly. That is below 1e-15 of the sum of all that the tasks could gain.

    The unit follows from the tables, the weights, the horizon and the transition times: not from the
    order of the tasks, their present sizes, or their faults.
    """

    exponent: int

    @classmethod
    def for_tasks(cls, tasks: Sequence[PlanTask], running_s: float) -> "Quantum":
        """Return the unit for dividing workers among ``tasks``.

        Raises:
            OverflowError: The gains are too large for a float.
        """
        bound = math.fsum(task.most_waf * (running_s + task.transition_s) for task in tasks)
        if not math.isfinite(bound):
            raise OverflowError("the gains are too large for a float")
        # The bound is below 2^52 units; what is left up to 2^53 is for rounding, half a unit a term.
        return cls(math.frexp(bound)[1] - _SIGNIFICANT_BITS)

    def count(self, weighted_flops: float) -> int:
        """Return ``weighted_flops`` in units, rounded to the nearest (halves to even)."""
        return round(math.ldexp(weighted_flops, -self.exponent))

    def _in_units(self, weighted_flops: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ``weighted_flops`` in units, before rounding. The array may be changed."""
        if abs(self.exponent) > _MAX_EXPONENT:
            return np.ldexp(weighted_flops, -self.exponent)
        weighted_flops *= math.ldexp(1.0, -self.exponent)  # the same, and several times faster
        return weighted_flops

    def options(self, task: PlanTask, num_workers: int, running_s: float) -> Options:
        """Return what the task may take of ``num_workers``, with G of every size in units: its two terms are rounded separately."""
        sizes, wafs = task.choices(num_workers)
        wafs *= horizon_of(task, running_s)
        earned = self._in_units(wafs)
        paid = self.count(task.waf(task.workers) * task.transition_s)
        gains = np.rint(earned, out=earned).astype(np.int64)
        gains -= paid
        if not task.is_faulted:
            present = int(sizes.searchsorted(task.workers))
            if present < len(sizes) and sizes[present] == task.workers:
                gains[present] += paid
        return Options(sizes, gains, abs(sizes - task.workers))
