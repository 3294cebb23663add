"""A scenario: the cluster, its tasks, what breaks, and how long everything takes.

How one is written in a file is told in ``controller.simulation.scenarios.scenario_file``.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from controller.simulation.scenarios.duration_laws import Law
from profiles.records import Record

_Count = Annotated[int, Field(ge=0, le=10**6)]
_Positive = Annotated[int, Field(ge=1, le=10**6)]
_Number = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]

EVENT_KINDS: Final = ("node_lost", "hardware", "process", "network", "slow", "manual")
"""What can happen: two of SEV1, one of SEV2, one of SEV3, a slow node, and a change by hand."""


class ScenarioTask(Record):
    """One task.

    Attributes:
        name: Its name.
        model: What it trains; see ``unicron profile estimate``.
        weight: w(t).
        min_workers: Smallest size that counts.
        global_batch: Samples of an iteration.
    """

    name: Annotated[str, Field(min_length=1, max_length=60)]
    model: str
    weight: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    min_workers: _Positive = 1
    global_batch: _Positive


class FaultCounts(Record):
    """So many of each over the whole time, each at any moment and any node, equally likely."""

    kind: Literal["counts"]
    node_lost: _Count = 0
    hardware: _Count = 0
    process: _Count = 0
    network: _Count = 0
    slow: _Count = 0
    manual: _Count = 0


class FaultRates(Record):
    """So many of each per 1,000 days of a node, one independent of the other (a Poisson process)."""

    kind: Literal["rates"]
    node_lost: _Number = 0.0
    hardware: _Number = 0.0
    process: _Number = 0.0
    network: _Number = 0.0
    slow: _Number = 0.0
    manual: _Number = 0.0


class TracedFaults(Record):
    """Nodes go and come back as in a trace; its nodes are the cluster's.

    Attributes:
        trace: ``stepfun``, ``p3-spot``, ``g4dn-spot``, or a file beside the scenario.
        hardware_share: Part of the absences, drawn by the seed, that begin with a hardware error in a
            process; the others begin with silence.
        begin_s: Where in the trace the run begins; whoever is there then is there from the beginning.
    """

    kind: Literal["trace"]
    trace: str
    begin_s: _Number = 0.0
    hardware_share: Annotated[float, Field(ge=0, le=1)] = 0.0


class Detection(Record):
    """From a fault until the controller knows of it, by what happened."""

    node_lost: Law
    hardware: Law
    process: Law
    network: Law
    slow: Law


class Steps(Record):
    """What the steps of a recovery take under Unicron.

    Attributes:
        park: From the order until all ranks wait.
        regroup: The same processes form new groups and go on.
        restart: A process is forked from its warm template, and gets its state from a peer.
        memory: In addition, where the state comes from in-memory checkpoints.
        start: New processes on cold nodes.
        disk: In addition, where the state comes from disk.
        prepare: New processes build their models while training goes on.
        manual: A change by hand: everything starts anew, with the state in memory.
        operator: Until an operator does what waits for one: looks at a node, a task or, under
            ``unicron-approved``, at a plan.
    """

    park: Law
    regroup: Law
    restart: Law
    memory: Law
    start: Law
    disk: Law
    prepare: Law
    manual: Law
    operator: Law


class BaselineSteps(Record):
    """What the steps of a recovery take under the baselines.

    Attributes:
        timeout: Until a collective gives up, where nothing else tells of a fault.
        resubmit: Termination, and the wait for a new submission.
        setup: The environment, CUDA, processes.
        reconfigure: Oobleck's and Bamboo's way to other pipelines, state in place.
        morph: Varuna's way to another configuration, checkpoint loaded.
        redundant: Part of an iteration that Bamboo computes in addition.
    """

    timeout: Law
    resubmit: Law
    setup: Law
    reconfigure: Law
    morph: Law
    redundant: Annotated[float, Field(ge=0, le=1)]


class Values(Record):
    """All values of a scenario.

    Attributes:
        nodes: Nodes that the initial split has; with a trace, all that it names where 0.
        standby_nodes: Nodes beyond those, idle at first.
        workers_per_node: What the planner divides: GPUs, or whole nodes.
        gpus_per_worker: GPUs of one worker.
        hardware: Of the GPUs; see ``unicron profile estimate``.
        days: How long.
        tasks: At least one.
        faults: What breaks, and when.
        repair: How long a node is away, where the trace does not tell.
        worker_mtbf_hours: What the planner is told.
        checkpoint_interval_s: Between checkpoints on disk.
        slow_speed: Speed of a task with a slow node, as a part of its usual one.
        detection: See ``Detection``.
        steps: See ``Steps``.
        baselines: See ``BaselineSteps``.
    """

    nodes: _Count
    standby_nodes: _Count = 0
    workers_per_node: _Positive
    gpus_per_worker: _Positive = 1
    hardware: str
    days: Annotated[float, Field(gt=0, le=10_000)]
    tasks: Annotated[list[ScenarioTask], Field(min_length=1, max_length=1000)]
    faults: Annotated[FaultCounts | FaultRates | TracedFaults, Field(discriminator="kind")]
    repair: Law
    worker_mtbf_hours: Annotated[float, Field(gt=0, le=1e9)]
    checkpoint_interval_s: Annotated[float, Field(gt=0, le=1e9)]
    slow_speed: Annotated[float, Field(gt=0, le=1)]
    detection: Detection
    steps: Steps
    baselines: BaselineSteps


class Scenario(Record):
    """A scenario that was read.

    Attributes:
        name: Of the file.
        title: In a few words.
        values: All of them.
        origins: By key, ``paper`` or ``ours``; ``cluster`` or ``trace`` where it is a real one's.
        directory: What files it names are relative to.
        place: Where it stands, for errors.
    """

    name: str
    title: str
    values: Values
    origins: dict[str, str]
    directory: str
    place: str
