"""Which iterations of a normal run show the task's throughput in its layout.

Those of a task that trains as it should: beyond the warm-up of its generation, in the layout that
its table has for the size, without checkpoint or evaluation, while no incident of it is open, no
rank is slower than its peers, no iteration is late, and no measurement's ranks load the same
cluster. How long they take is kept outside (``controller.store.measured_tables``), and is what a
later run may plan with; this run's plans do not change by it.
"""

from collections.abc import Mapping

from controller.core.instructions import RecordIterations
from controller.core.specs import TaskSpec
from controller.core.state.phases import TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn


def refine(turn: Turn, task: TaskState, iteration: int, duration_s: float, num: int) -> None:
    """Have ``num`` iterations recorded, which took ``duration_s`` each, if they are steady.

    Call it before they are part of the task's pace.
    """
    layout = task.layout
    if layout is not None and is_plausible(duration_s) and _is_steady(turn, task, iteration):
        turn.emit(RecordIterations(turn.cause, task.spec.task, layout, duration_s, num))


def is_plausible(duration_s: float) -> bool:
    """Return whether a duration is possible: commands print anything, and clocks are set."""
    return 1e-9 < duration_s < 1e9


def work_per_iteration(spec: TaskSpec, times_s: Mapping[int, float]) -> float:
    """Return what an iteration of the task is worth: its FLOPs, or in the unit of its own table.

    Nobody knows the FLOPs of a command: its table is right at the size that it begins with, or else
    at the smallest of its sizes that was timed, and the other ones follow by their times.

    Args:
        spec: The task.
        times_s: How long an iteration takes, by workers; one size of the table at least.
    """
    if spec.flops_per_iteration:
        return spec.flops_per_iteration
    timed = [size for size in spec.table.sizes if size in times_s]
    anchor = spec.workers if spec.workers in timed else min(timed)
    return spec.table.flops_per_s(anchor) * times_s[anchor]


def _is_steady(turn: Turn, task: TaskState, iteration: int) -> bool:
    spec, watch = task.spec, task.watch
    if task.lifecycle.phase is not TaskPhase.RUNNING or spec.has_floor or spec.is_long(iteration):
        return False
    if not watch.pace.is_warm or watch.slowness.is_late or watch.slowness.stragglers:
        return False
    measurement = turn.state.measurements.current
    if measurement is not None and measurement.run is not None:
        return False
    if any(spec.task in incident.covers for incident in turn.state.incidents.open()):
        return False
    # After a loss it may run for a while with replicas that its table does not list.
    return any(point.layout == task.layout for point in spec.table.points)
