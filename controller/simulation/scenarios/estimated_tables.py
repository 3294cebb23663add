"""Estimates T(t, x) of a scenario's tasks, with and without tensor parallelism.

The sizes are all multiples of a node. On large clusters that would need thousands of searches.
There the best tensor and pipeline sizes are searched once, for the initial split, and the sizes are
multiples of a replica.
"""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from controller.simulation.scenarios.scenario import Scenario, ScenarioTask
from profiles.estimate.constants import fitted_constants
from profiles.estimate.hardware import GPU_BY_NAME
from profiles.estimate.iteration_time import flops_per_s
from profiles.estimate.layer import GpuSpeed
from profiles.estimate.layout_search import LayoutRequest, best
from profiles.estimate.shape import DecoderShape
from profiles.estimate.shape_file import find_shape
from profiles.estimate.training_setup import CORE, Recompute, Stack
from profiles.layout import Layout
from profiles.records import RecordError
from profiles.throughput import ThroughputPoint, ThroughputTable

_MAX_SEARCHES: Final = 64
_PIPELINED: Final = replace(
    CORE, name="pipelined", sequence_parallel=False, max_virtual=1, shards_optimizer=False
)
"""The stack of Oobleck, Varuna and Bamboo: pipelines and replicas, each layer on one GPU."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A task's throughput.

    Attributes:
        task: The task.
        table: Its throughput by number of workers.
        flops_per_iteration: Model FLOP of one global batch.
    """

    task: ScenarioTask
    table: ThroughputTable
    flops_per_iteration: float

    def iteration_s(self, workers: int) -> float:
        """Return the seconds of an iteration at any size, also one that the table does not list."""
        return self.flops_per_iteration / self.table.interim_flops_per_s(workers)


def profiles_of(scenario: Scenario, num_workers: int) -> list[Profile]:
    """Return the profiles of all tasks for up to ``num_workers`` workers.

    Raises:
        RecordError: A model or the hardware is unknown, or a task fits no size.
    """
    return [_profile(scenario, task, num_workers, CORE) for task in scenario.values.tasks]


def pipelined_profiles_of(scenario: Scenario, num_workers: int) -> dict[str, Profile]:
    """Return by task the profiles without tensor parallelism and with full recomputation.

    Tasks that fit no size are left out.
    """
    found: dict[str, Profile] = {}
    for task in scenario.values.tasks:
        try:
            found[task.name] = _profile(scenario, task, num_workers, _PIPELINED)
        except RecordError:
            continue
    return found


def _profile(scenario: Scenario, task: ScenarioTask, num_workers: int, stack: Stack) -> Profile:
    values = scenario.values
    if values.hardware not in GPU_BY_NAME:
        known = ", ".join(GPU_BY_NAME)
        raise RecordError(
            f"{scenario.place}: hardware: {values.hardware!r:.80}: unknown GPU; known: {known}"
        )
    place = (values.hardware, values.workers_per_node, values.gpus_per_worker)
    first = min(num_workers, values.nodes * values.workers_per_node) or num_workers
    is_file = task.model.endswith(".json")
    model = str(Path(scenario.directory, task.model)) if is_file else task.model
    shape = _shape_of(scenario, task, model)
    table = _table(model, task.global_batch, stack, (first, num_workers), place)
    if table is None:
        raise RecordError(
            f"{scenario.place}: task {task.name}: {task.model} fits no size up to {num_workers} workers"
        )
    return Profile(task, table, shape.flops_per_sample * task.global_batch)


def _shape_of(scenario: Scenario, task: ScenarioTask, model: str) -> DecoderShape:
    try:
        return find_shape(model)
    except RecordError as error:
        raise RecordError(f"{scenario.place}: task {task.name}: model: {error}") from error


@cache
def _table(
    model: str,
    global_batch: int,
    stack: Stack,
    num_workers: tuple[int, int],
    place: tuple[str, int, int],
) -> ThroughputTable | None:
    hardware, workers_per_node, gpus_per_worker = place
    is_pipelined = stack is _PIPELINED
    request = LayoutRequest(
        workers=0,
        global_batch=global_batch,
        tp=1 if is_pipelined else None,
        recompute=Recompute.FULL if is_pipelined else None,
        sharded=False,  # recovery is modelled for replicas that have all of the state
    )
    machine = GpuSpeed(GPU_BY_NAME[hardware], fitted_constants())
    search = _Search(find_shape(model), request, stack, machine, workers_per_node, gpus_per_worker)
    points = search.points(*num_workers)
    return ThroughputTable(points=tuple(points)) if points else None


@dataclass(frozen=True, slots=True)
class _Search:
    shape: DecoderShape
    request: LayoutRequest
    stack: Stack
    machine: GpuSpeed
    workers_per_node: int
    gpus_per_worker: int

    def points(self, first: int, num_workers: int) -> list[ThroughputPoint]:
        """Return all usable sizes; on large clusters multiples of the best replica."""
        unit = self.workers_per_node
        sizes = range(unit, num_workers + 1, unit)
        if len(sizes) <= _MAX_SEARCHES:
            found = [self._point(size, self.request) for size in sizes]
            return [point for point in found if point]
        for size in range(first, 0, -unit):  # the largest size that a layout divides
            top = self._point(size, self.request)
            if top is not None:
                break
        else:
            return []
        replica = top.layout.tp * top.layout.pp
        request = replace(self.request, pp=top.layout.pp)
        step = replica if replica % unit == 0 else replica * unit
        found = [self._point(size, request) for size in range(step, num_workers + 1, step)]
        return [point for point in found if point]

    def _point(self, workers: int, request: LayoutRequest) -> ThroughputPoint | None:
        gpus = workers * self.gpus_per_worker
        estimate = best(self.shape, replace(request, workers=gpus), self.stack, self.machine)
        if estimate is None or not estimate.fits:
            return None
        layout = _layout_of_workers(estimate.setup.layout, self.gpus_per_worker)
        if layout is None or layout.num_workers != workers:
            return None
        rate = flops_per_s(self.shape, request.global_batch, estimate.iteration_s)
        return ThroughputPoint(workers=workers, flops_per_s=rate, layout=layout)


def _layout_of_workers(layout: Layout, gpus_per_worker: int) -> Layout | None:
    """Return the layout in workers instead of GPUs; None if a worker's GPUs do not divide it."""
    if gpus_per_worker == 1:
        return layout
    inside, rest = divmod(layout.tp * layout.dp, gpus_per_worker)
    if rest or gpus_per_worker % layout.tp:
        return None
    return Layout(1, layout.pp, inside)
