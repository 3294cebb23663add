"""A scenario: the cluster, its tasks, the faults, and all durations.

``controller.simulation.scenarios.scenario_file`` explains its file format.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from controller.simulation.scenarios.duration_laws import Law
from profiles.records import Record

_Count = Annotated[int, Field(ge=0, le=10**6)]
_Positive = Annotated[int, Field(ge=1, le=10**6)]
_Number = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]

EVENT_KINDS: Final = ("node_lost", "hardware", "process", "network", "slow", "manual")
"""Two SEV1 faults, a SEV2 fault, a SEV3 fault, a slow node, and a change by hand."""


class ScenarioTask(Record):
    """One task.

    Attributes:
        name: Its name.
        model: Its model; see ``unicron profile estimate``.
        weight: w(t), its weight.
        min_workers: The smallest number of workers that counts for its WAF.
        keeps_running: Whether Unicron stops it only if ``min_workers`` have no room.
        global_batch: Samples of an iteration.
    """

    name: Annotated[str, Field(min_length=1, max_length=60)]
    model: str
    weight: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    min_workers: _Positive = 1
    keeps_running: bool = False
    global_batch: _Positive


class FaultCounts(Record):
    """The number of events of each kind. Times and nodes are uniformly distributed."""

    kind: Literal["counts"]
    node_lost: _Count = 0
    hardware: _Count = 0
    process: _Count = 0
    network: _Count = 0
    slow: _Count = 0
    manual: _Count = 0


class FaultRates(Record):
    """The number of events of each kind per 1,000 days of a node (a Poisson process)."""

    kind: Literal["rates"]
    node_lost: _Number = 0.0
    hardware: _Number = 0.0
    process: _Number = 0.0
    network: _Number = 0.0
    slow: _Number = 0.0
    manual: _Number = 0.0


class TracedFaults(Record):
    """Nodes leave and return as in a trace. The trace's nodes are the cluster's nodes.

    Attributes:
        trace: ``stepfun``, ``p3-spot``, ``g4dn-spot``, or a file beside the scenario.
        hardware_share: Fraction of the absences that begin with a hardware error in a process,
            drawn by the seed. All other absences begin with a lost node.
        begin_s: Where in the trace the run starts. Nodes that are present then are present at the
            start.
    """

    kind: Literal["trace"]
    trace: str
    begin_s: _Number = 0.0
    hardware_share: Annotated[float, Field(ge=0, le=1)] = 0.0


class Detection(Record):
    """The time from a fault to its detection by the controller, for each kind of event."""

    node_lost: Law
    hardware: Law
    process: Law
    network: Law
    slow: Law


class Steps(Record):
    """The durations of recovery steps under Unicron.

    Attributes:
        park: From the halt order until all ranks are parked.
        regroup: The same processes form new groups and continue.
        restart: A process is forked from its warm template and gets its state from a peer.
        memory: Additional time if the state comes from in-memory checkpoints.
        start: New processes start on cold nodes.
        disk: Additional time if the state comes from disk.
        prepare: Spares build their models while training continues.
        manual: A change by hand: all processes restart, with the state in memory.
        operator: Until an operator acts on a node, on a held task or, under ``unicron-approved``,
            on a plan.
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
    """The durations of recovery steps under the baselines.

    Attributes:
        timeout: Until a collective times out, if nothing else reveals the fault.
        resubmit: Termination, and the wait for a new submission.
        setup: Starting environment, CUDA and processes.
        reconfigure: Oobleck's and Bamboo's change to other pipelines, state in place.
        morph: Varuna's change to another configuration, with its checkpoint loaded.
        redundant: Additional work of Bamboo, as a fraction of an iteration.
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
        nodes: Nodes of the initial split. With a trace, 0 means all nodes that it names.
        healthy_nodes: With a trace, additional nodes that it never names: they never fail.
        standby_nodes: Additional nodes, idle at the start.
        workers_per_node: Workers of a node. A worker is a GPU, or several GPUs together.
        gpus_per_worker: GPUs of one worker.
        hardware: The GPU model; see ``unicron profile estimate``.
        days: The length of a run.
        tasks: The tasks, at least one.
        faults: The faults and their times.
        repair: How long a node is away, if the trace does not say.
        worker_mtbf_hours: The MTBF of a worker that the planner assumes.
        checkpoint_interval_s: Time between checkpoints on disk.
        slow_speed: Speed of a task with a slow node, as a fraction of its usual speed.
        detection: See ``Detection``.
        steps: See ``Steps``.
        baselines: See ``BaselineSteps``.
    """

    nodes: _Count
    healthy_nodes: _Count = 0
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
    """A scenario, read from a file.

    Attributes:
        name: The file's name, without its suffix.
        title: The scenario in a few words.
        values: All values.
        origins: The origin of each key: ``paper`` or ``ours``; ``cluster`` or ``trace`` if it was
            copied.
        directory: The directory for relative paths in the scenario.
        place: The file, for error messages.
    """

    name: str
    title: str
    values: Values
    origins: dict[str, str]
    directory: str
    place: str
