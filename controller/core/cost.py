"""What an allocation is worth: the paper's WAF and G (Unicron, arXiv 2401.00134, section 5).

    F(t, x) = w(t) * T(t, x)                     weighted achieved aggregate FLOP/s
    WAF     = sum over the tasks of F
    G       = F(t, x') * D_running - 1(t, x -> x') * F(t, x) * D_transition

T is not linear in x and not even monotone. A size that the table does not list, or below the
task's minimum, earns nothing and is not used; size 0 (stopped) always can be. The indicator is 1 if
the size changes or a worker of the task failed: then what the task earned before is forgone while
it moves. A task that did not run pays nothing.
"""

from dataclasses import dataclass

from nodeagent.protocol.ids import TaskId
from profiles.throughput import ThroughputTable


@dataclass(frozen=True, slots=True)
class PlanTask:
    """One task as the planner sees it.

    Attributes:
        name: The task; names break ties.
        weight: w(t), positive.
        table: T(t, x) in FLOP/s.
        workers: Size before the event, also while it runs on survivors; 0 if it did not run.
        min_workers: The user's minimum.
        is_faulted: Whether it lost a worker: it pays for a transition even at the same size.
        transition_s: D_transition, expected seconds without training when it moves.
    """

    name: TaskId
    weight: float
    table: ThroughputTable
    workers: int
    min_workers: int
    is_faulted: bool
    transition_s: float

    def sizes(self, num_workers: int) -> tuple[int, ...]:
        """Sizes that may be used with ``num_workers`` available, 0 first."""
        usable = (x for x in self.table.sizes if self.min_workers <= x <= num_workers)
        return (0, *usable)

    def waf(self, workers: int) -> float:
        """F(t, workers) in weighted FLOP/s; 0 where the requirement is not met."""
        if workers < self.min_workers:
            return 0.0
        return self.weight * self.table.flops_per_s(workers)

    def pays(self, workers: int) -> bool:
        """The indicator: whether going to ``workers`` interrupts the task."""
        return workers != self.workers or self.is_faulted


def gain(task: PlanTask, workers: int, running_s: float) -> float:
    """G of one task: weighted FLOPs gained until the next failure, net of the transition."""
    earned = task.waf(workers) * running_s
    if not task.pays(workers):
        return earned
    return earned - task.waf(task.workers) * task.transition_s


def horizon_s(worker_mtbf_s: float, num_workers: int) -> float:
    """D_running(n'): expected seconds to the next failure among ``num_workers``.

    With no workers nothing can fail and nothing can be earned; the horizon is then 0.
    """
    return worker_mtbf_s / num_workers if num_workers else 0.0
