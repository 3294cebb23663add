"""Measuring T(t, x) of a task on workers that nobody needs: size after size, the smallest first.

A size is placed on workers of nodes in service that no task holds or is to get. Its ranks train the
task's model from fresh weights; after ``NUM_WARM_UP`` iterations the asked number is timed from
commit to commit, and they are killed. The median makes T = FLOPs of an iteration / seconds. Of a
command the lines are counted that it prints, each with the time that it states.

The planner does not know of it: its workers count as idle, and it gives way. It ends as soon as a
plan waits for a decision, a task is to get one of its workers, an operator says so, or the
controller is replaced. A fault of its ranks, or an iteration that does not come in time, ends the
size with the reason, and the next size is tried: a model that does not fit on one worker may fit on
two. Nothing is recovered.
"""

from statistics import median
from typing import Literal, NamedTuple

from controller.core.events import MeasurementRequested
from controller.core.instructions import RecordIterations, StartRanks
from controller.core.measuring.measured_ranks import (
    end_ranks,
    expect_iteration,
    judge_workers,
    leave_unreachable,
)
from controller.core.monitoring.refinement import work_per_iteration
from controller.core.planning.problem import Available
from controller.core.rules.placement import Placement, Unplaceable, place
from controller.core.specs import TaskSpec
from controller.core.state.measurement import MeasuredRun, MeasuredSize, Measurement
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import TaskId


class Refusal(NamedTuple):
    """Why a measurement is not begun: a code for programs and a sentence for people."""

    code: str
    text: str


def begin_measurement(turn: Turn, event: MeasurementRequested) -> Measurement | Refusal:
    """Begin what an operator asks for; the first size starts at the end of the turn."""
    state, task = turn.state, turn.state.tasks.get(event.task)
    if task is None:
        return Refusal("unknown", f"there is no task {event.task}: {', '.join(state.tasks)} exist")
    if refusal := _why_not(turn, task, event):
        return refusal
    table, least = task.spec.table, task.spec.min_workers
    wanted = event.sizes or [size for size in table.sizes if size >= least]
    sizes = [MeasuredSize(size, table.layout(size)) for size in sorted(set(wanted))]
    places = [_place(turn, size) for size in sizes]
    misfits = [each for each in places if isinstance(each, Unplaceable)]
    if len(misfits) == len(sizes):
        return Refusal("nothing", f"no size fits on idle workers: {misfits[0].reason}")
    return state.measurements.begin(event.task, event.num_iterations, sizes)


def _why_not(turn: Turn, task: TaskState, event: MeasurementRequested) -> Refusal | None:
    """Return why the task can't be measured now, or never at these sizes; None if it can."""
    name, listed = task.spec.task, task.spec.table.sizes
    running = turn.state.measurements.current
    if running and not running.is_over:
        cancel = f"unicron profile measure --cancel {running.name} --connect SOCKET"
        text = f"{running.name} measures {running.task}: wait for it, or end it with {cancel}"
        return Refusal("busy", text)
    if pending := turn.state.plans.pending():
        return Refusal("pending", f"{pending.name} waits for a decision: decide on it first")
    if task.spec.is_command and not event.is_contained:
        text = (
            f"{name} is a command: a second one beside it could write over its checkpoints, unless it"
            " keeps them below UNICRON_TASK_DIR; then say --contained"
        )
        return Refusal("unsupported", text)
    if unlisted := [size for size in event.sizes if size not in listed]:
        known = ", ".join(map(str, listed))
        text = f"{name} has no layout for {unlisted[0]} worker(s): {known} are listed"
        return Refusal("unlisted", text)
    return None


def cancel_measurement(turn: Turn, name: str, actor: str) -> Refusal | None:
    """End a measurement; return why not."""
    measurement = turn.state.measurements.current
    if measurement is None or measurement.name != name:
        return Refusal("unknown", f"there is no measurement {name}")
    if measurement.ended:
        return Refusal("decided", f"{name} is over already: {measurement.ended}")
    measurement.end(f"cancelled by {actor}")
    return None


def end_of_controller(turn: Turn) -> None:
    """The controller was replaced: the operator who asked gets no answer any more."""
    measurement = turn.state.measurements.current
    if measurement:
        measurement.end("the controller was replaced")


def advance_measurement(turn: Turn) -> None:
    """Give way where it is in the way, end a run that is over, begin the next size."""
    measurement = turn.state.measurements.current
    if measurement is None or measurement.is_over:
        return
    if not measurement.ended:
        measurement.end(_why_give_way(turn, measurement))
    if measurement.run is not None and _is_left(turn, measurement, measurement.run):
        return
    measurement.begin_run(None)
    if measurement.ended or not _begin_next(turn, measurement):
        measurement.end("all sizes are done")
        _close(turn, measurement)


def _why_give_way(turn: Turn, measurement: Measurement) -> str:
    """Return what it is in the way of; empty if nothing."""
    if pending := turn.state.plans.pending():
        return f"stopped: {pending.name} waits for a decision"
    held = set(measurement.run.placement) if measurement.run else set()
    for task in turn.state.tasks.values():
        if task.assignment.target and not held.isdisjoint(task.assignment.target.placement):
            return f"stopped: {task.spec.task} gets its workers"
    return ""


def _is_left(turn: Turn, measurement: Measurement, run: MeasuredRun) -> bool:
    """End the run if its time has come; return whether it holds workers still.

    Ranks out of sight are left behind, as those of tasks are: their generation is over. Nothing is
    started on their workers before they are gone (``NodeState.strays``).
    """
    if not run.is_ending:
        if not measurement.ended:
            judge_workers(turn, run)
        is_enough = len(run.durations_s) >= measurement.num_iterations
        if not (run.evidence or is_enough or measurement.ended):
            return True
        _end_run(turn, measurement, run)
    elif run.size.phase == "failed" and run.evidence is not None:
        run.size.explain(run.evidence.summary)  # a cause may be reported after its echo
    leave_unreachable(turn, run)
    return bool(run.living)


def _end_run(turn: Turn, measurement: Measurement, run: MeasuredRun) -> None:
    """Kill the ranks, and keep what they have shown."""
    end_ranks(turn, run)
    size, task = run.size, turn.state.tasks[measurement.task]
    if run.evidence is not None:
        _leave_out(turn, measurement, size, "failed", run.evidence.summary)
    elif len(run.durations_s) >= measurement.num_iterations:
        _keep(turn, measurement, task, run)
    else:
        _leave_out(turn, measurement, size, "skipped", measurement.ended)


def _keep(turn: Turn, measurement: Measurement, task: TaskState, run: MeasuredRun) -> None:
    size, num = run.size, len(run.durations_s)
    iteration_s = median(run.durations_s)
    size.keep(iteration_s)
    _rate(measurement, task.spec)
    turn.emit(RecordIterations(turn.cause, measurement.task, size.layout, iteration_s, num))
    turn.announce(
        "good", "measured", measurement.task,
        f"{size.workers} worker(s), {size.layout}: {iteration_s:.3f} s an iteration,"
        f" {size.flops_per_s:.3g} FLOP/s",
        workers=size.workers, iteration_s=iteration_s, flops_per_s=size.flops_per_s,
        iterations=num,
    )  # fmt: skip


def _rate(measurement: Measurement, spec: TaskSpec) -> None:
    """Announce the FLOP/s of all timed sizes. All of them settle the unit of a command task."""
    times_s = {s.workers: s.iteration_s for s in measurement.sizes if s.iteration_s is not None}
    work = work_per_iteration(spec, times_s)
    for size in measurement.sizes:
        size.rate(work)


def _leave_out(
    turn: Turn,
    measurement: Measurement,
    size: MeasuredSize,
    phase: Literal["failed", "skipped"],
    reason: str,
) -> None:
    size.leave_out(phase, reason)
    turn.announce(
        "warning", "not_measured", measurement.task, f"{size.workers} worker(s): {reason}",
        workers=size.workers,
    )  # fmt: skip


def _place(turn: Turn, size: MeasuredSize) -> Placement | Unplaceable:
    """Return workers of nodes in service that no task holds or is to get."""
    idle, name = Available(turn, ()), TaskId("measure")
    # In one domain it is packed into few nodes: the table is of what its traffic does at its best.
    packed = dict.fromkeys(idle.workers_by_node, "all")
    strays = {w for node in idle.workers_by_node for w in turn.state.nodes[node].inventory.strays}
    blocked = idle.blocked | strays
    placed = place({name: size.layout}, {}, idle.workers_by_node, blocked=blocked, domains=packed)
    if isinstance(placed, Unplaceable):
        num_idle = sum(idle.workers_by_node.values()) - len(blocked)
        return Unplaceable(f"{size.layout} does not fit on the {num_idle} idle worker(s)")
    return placed[name]


def _begin_next(turn: Turn, measurement: Measurement) -> bool:
    """Begin the next size that fits; return whether there was one."""
    for size in measurement.sizes:
        if size.phase != "waiting":
            continue
        placement = _place(turn, size)
        if not isinstance(placement, Unplaceable):
            _begin_size(turn, measurement, size, placement)
            return True
        _leave_out(turn, measurement, size, "skipped", placement.reason)
    return False


def _begin_size(
    turn: Turn, measurement: Measurement, size: MeasuredSize, placement: Placement
) -> None:
    run = MeasuredRun(
        task=TaskId(f"{measurement.task}@measure"),
        generation=turn.state.measurements.next_generation(),
        size=size,
        placement=placement,
        living=dict(enumerate(placement)),
    )
    size.begin()
    measurement.begin_run(run)
    numbers = tuple(run.living)
    turn.emit(
        StartRanks(
            turn.cause, run.task, run.generation, size.layout, placement, numbers,
            measures=measurement.task, program=turn.state.tasks[measurement.task].spec.program,
        )
    )  # fmt: skip
    expect_iteration(turn, run)
    turn.announce(
        "info", "measure", measurement.task,
        f"measures {size.workers} worker(s), {size.layout}, on {', '.join(run.nodes)}",
        workers=size.workers,
    )  # fmt: skip


def _close(turn: Turn, measurement: Measurement) -> None:
    for size in measurement.sizes:
        if size.phase == "waiting":
            _leave_out(turn, measurement, size, "skipped", measurement.ended)
    num = sum(size.phase == "measured" for size in measurement.sizes)
    turn.announce(
        "info", "measurement", measurement.name,
        f"{num} of {len(measurement.sizes)} sizes of {measurement.task} are measured:"
        f" {measurement.ended}",
        num_measured=num,
    )  # fmt: skip
