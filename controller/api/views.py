"""Frozen views of the cluster, as the controller publishes them to consoles and scripts.

A view holds what an operator may know at one instant, and no details of the core. Times are seconds
since the start of the run, unless a name says otherwise. Views are pure values without sockets.
Field names are a published format: add fields, never rename one. Import every view from here.
"""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass

from controller.core.state.phases import IncidentState, NodeCondition, PlanState, TaskPhase

__all__ = ["IncidentState", "NodeCondition", "PlanState", "TaskPhase"]
"""States of the core that views hold. All other public names here are views."""


class View(BaseModel):
    """Base of all views: immutable. Unknown fields of a newer controller are ignored.

    A view whose fields are named like those of an object of the core is made of that by
    ``model_validate``.
    """

    # JSON has no NaN, and a loss may be one: as text it reaches the console instead of a null.
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings", from_attributes=True)


class LayoutView(View):
    """Sizes of a task's parallel groups."""

    tp: int
    pp: int
    dp: int


class TaskChangeView(View):
    """The change that a plan makes to one task."""

    task: str
    workers_before: int
    workers_after: int
    layout_after: LayoutView | None = None
    waf_before: float
    waf_after: float
    is_faulted: bool
    moves: bool
    """Whether the task gets another placement or layout."""
    placement_before: list[str] = Field(default_factory=list)
    """Workers in the order of the global ranks. Neighbours are one term: ``n1:0-3``, ``n2:5``."""
    placement_after: list[str] = Field(default_factory=list)
    transition_s: float = 0.0
    """Expected seconds without training, if the task moves."""


class AlternativeView(View):
    """Another division of the workers, and the reason against it."""

    differs: dict[str, int]
    """Sizes of the tasks that differ from the plan."""
    objective: float
    """Weighted FLOP until the next expected fault, less the cost of transitions."""
    waf: float
    verdict: str


class SensitivityView(View):
    """A value of an estimate that would give another division."""

    estimate: str
    factor: float
    """That value as a multiple of the estimate that was used."""
    differs: dict[str, int]


class WaitingView(View):
    """The cost of each minute until a plan is applied, if faulted tasks do not train."""

    weighted_flop_per_min: float
    gpu_hours_per_min: float


class FloorsView(View):
    """The cost of tasks with ``keeps_running``."""

    objective: float
    """Weighted FLOP of the best division without them."""
    differs: dict[str, int]
    """Sizes of the tasks that differ from the plan there."""
    share: float | None = None
    """Loss as a share of that objective; None if that is not positive."""
    without_room: list[str]
    """Tasks that were to keep running and get no workers."""
    verdict: str


class TermsView(View):
    """The terms of one task in the planner's objective, in weighted FLOP."""

    name: str
    earned: float
    forgone: float


class ExplanationView(View):
    """The explanation of a plan."""

    terms: list[TermsView]
    alternatives: list[AlternativeView]
    sensitivity: list[SensitivityView]
    waiting: WaitingView
    floors: FloorsView | None = None
    """None if no task has ``keeps_running``."""


class WhatIfTaskView(View):
    """What becomes of a task in an answer to ``AskWhatIf``."""

    name: str
    workers_before: int
    workers: int
    moves: bool
    transition_s: float = 0.0
    layout_before: str | None = None
    layout: str | None = None


class WhatIfView(View):
    """The answer to ``AskWhatIf``, as far as operators see it."""

    waf_before: float = 0.0
    """Weighted FLOP/s of the tasks at their present sizes, with the weights that are supposed."""
    waf_after: float
    """The same at the sizes that the planner gives them."""
    tasks: list[WhatIfTaskView]
    left_alone: dict[str, str] = Field(default_factory=dict)
    """Tasks that no plan changes now, and their phases."""
    why: str = ""
    steps: list[str] = Field(default_factory=list)


class PreparedView(View):
    """Plans that were computed before they are needed."""

    num_events: int
    """Events with a plan, among them "no event". Events with equal problems count once."""
    took_s: float
    is_current: bool
    """Whether the plans are for the present cluster, as of a second ago at most."""
    num_found: int
    """Number of plans that were ready when they were needed."""
    num_missed: int
    """Number of plans that had to be computed when they were needed."""


class PlanView(View):
    """A proposed or decided division of the workers over all tasks."""

    id: str
    revision: int
    trigger: str
    """The incident or request that caused the plan."""
    seen: str
    """The observation behind the plan, in one sentence."""
    why: str
    """The reason for this division."""
    state: PlanState
    created_at: float
    approved_by: str | None = None
    decided_at: float | None = None
    apply_at: float | None = None
    """When it is applied unless somebody decides before; None if it waits without an end."""
    waf_before: float
    """Weighted FLOP/s of all tasks before the event."""
    waf_now: float
    """Weighted FLOP/s of the cluster at the time of this view, as in ``ClusterView.waf``."""
    waf_after: float
    assignments: dict[str, int]
    assignments_before: dict[str, int]
    changes: list[TaskChangeView] = Field(default_factory=list)
    steps: list[str] = Field(default_factory=list)
    isolated_nodes: list[str] = Field(default_factory=list)
    explanation: ExplanationView | None = None
    """Follows a moment after the plan. Old plans have none."""


class MeasuredSizeView(View):
    """One size of a measurement."""

    workers: int
    layout: LayoutView
    phase: Literal["waiting", "running", "measured", "failed", "skipped"]
    reason: str = ""
    """Why the size failed or was skipped."""
    iterations: int = 0
    """Iterations so far, with the warm-up; 0 unless the size runs."""
    iteration_s: float | None = None
    """Median after the warm-up."""
    flops_per_s: float | None = None


class MeasurementView(View):
    """A measurement of a task's throughput on idle workers: the present or the newest one."""

    name: str
    task: str
    num_iterations: int
    """Measured iterations at each size."""
    num_warm_up: int
    """Iterations before the measured ones."""
    ended: str = ""
    """Why no further size will run; empty while the measurement continues."""
    is_over: bool = False
    sizes: list[MeasuredSizeView] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker slot of a node, and its rank.

    A console keeps thousands: a dataclass takes a sixth of a model's memory.
    """

    worker: int
    task: str | None = None
    global_rank: int | None = None
    pid: int | None = None
    iteration: int | None = None
    rss_bytes: int | None = None
    waits_for: str | None = None
    """The task of the spare in this slot. ``task`` is None then."""
    isolated: str = ""
    """Why this slot alone is isolated; empty if it is in service."""


class UpkeepView(View):
    """What an operator has ordered for a node."""

    state: str
    """``cordoned``, ``draining``, ``drained``, ``repair`` or ``returning``."""
    by: str
    since: float
    reason: str = ""


class NodeView(View):
    """One node."""

    node: str
    address: str
    condition: NodeCondition
    note: str = ""
    """The reason for the condition, for instance ``presumed training: link lost 3 s ago``."""
    isolated: str = ""
    """Why the node is isolated; empty if it is in service."""
    upkeep: UpkeepView | None = None
    """None if no operator has ordered anything for it."""
    asked_at: float | None = None
    """When the operator was first asked whether the node is lost; None if not asked."""
    findings: list[str] = Field(default_factory=list)
    """The present findings of its probes, one sentence each."""
    agent_pid: int | None = None
    agent_rss_bytes: int | None = None
    heartbeat_at: float | None = None
    workers: list[WorkerView] = Field(default_factory=list)


class StepView(View):
    """One step of a transition. ``actual_s`` is None until the step is over."""

    name: str
    predicted_s: float
    actual_s: float | None = None


class PaceView(View):
    """How long a task's iterations take, and from when on they are late, or a hang."""

    durations_s: list[float] = Field(default_factory=list)
    """Of the newest iterations of this layout, oldest first. Those that save are left out."""
    average_s: float
    """Their median, or that of the layout before, scaled."""
    late_s: float
    """Iterations whose median is above this are late: by a share of the average, and by the usual
    spread around it."""
    hang_s: float
    """One that takes longer is looked at as a hang."""


class TransitionView(View):
    """The transition of a task from one generation to the next."""

    decided_at: float | None = None
    """When the new generation was begun."""
    kind: str
    """``reattempt``, ``restart``, ``shrink``, ``grow``, ``move`` or ``layout change``."""
    steps: list[StepView] = Field(default_factory=list)
    predicted_s: float
    actual_s: float
    """Seconds of the steps so far."""
    is_done: bool


class OrderView(View):
    """What an operator has ordered for a task, beside what the cluster file says."""

    what: str
    """``submitted``, ``stopped``, ``finished``, or a setting: ``weight``, ``min_workers``,
    ``max_workers``, ``keeps_running``."""
    by: str
    since: float
    value: float | bool | None = None
    """Of a setting: its value now."""
    of_file: float | bool | None = None
    """Of a setting: its value in the cluster file."""


class TaskView(View):
    """One training task."""

    name: str
    weight: float
    phase: TaskPhase
    note: str = ""
    generation: int
    workers: int
    layout: LayoutView | None = None
    iteration: int = 0
    """Newest committed iteration."""
    checkpoint_iteration: int = 0
    checkpoint_s: float = 0.0
    """How long the slowest checkpoint took to be complete on disk; 0 before the first."""
    is_command: bool = False
    """Whether it is a program with checkpoints of its own, of which nothing is known here."""
    is_sharded: bool = False
    """Whether the optimizer state is sharded over the replicas: then no replica has another's."""
    makes_copies: bool = False
    """Whether ranks keep copies of each other's state in memory."""
    target_iterations: int | None = None
    loss: float | None = None
    tokens_per_s: float | None = None
    flops_per_s: float | None = None
    """Achieved model FLOP/s over the newest iterations; None while the task does not train."""
    losses: dict[int, float] = Field(default_factory=dict)
    """Loss by iteration: all iterations in the final report, the newest 120 in snapshots."""
    num_rerun_iterations: int = 0
    pace: PaceView | None = None
    """None until the times of some iterations are known."""
    unsupported: list[str] = Field(default_factory=list)
    """Settings that rule out a regroup in process, with reasons. Faults then take new processes."""
    transition: TransitionView | None = None
    """The present or newest transition; None before the first."""
    min_workers: int = 1
    max_workers: int | None = None
    """None for the largest size of its table."""
    keeps_running: bool = False
    orders: list[OrderView] = Field(default_factory=list)
    """Everything else is as the cluster file says."""


class RehearsedCureView(View):
    """What auto-heal would have done about a fault in a rehearsal."""

    at: float
    action: str
    reason: str
    approved_by: str = ""
    """Empty while nobody has approved it."""
    approved_at: float | None = None


class IncidentView(View):
    """One fault, from its first evidence to its cure."""

    id: str
    task: str | None
    node: str | None
    nodes: list[str] = Field(default_factory=list)
    """All nodes that were lost together, ``node`` first; empty if the fault is of no node."""
    rank: int | None
    status: str
    severity: str
    method: str
    action: str
    state: IncidentState
    evidence: list[str] = Field(default_factory=list)
    """The first eight pieces of evidence, in the order of their arrival."""
    reason: str = ""
    is_drill: bool = False
    """Whether a drill staged the fault. Such a fault does not count against the node."""
    fault_at: float
    detected_at: float
    decided_at: float | None = None
    """Time when the cause was named and the action chosen."""
    acting_at: float | None = None
    """Time when the action began: after the decision, or after the approval of a plan."""
    resolved_at: float | None = None
    recovery_s: float | None = None
    """From the fault to the first commit of an iteration after it; None before that."""
    is_recovery_unseen: bool = False
    """Whether its task prints no iteration, so that no time was measured."""
    recomputed_micro_batches: int = 0
    """Micro-batches computed before the fault and again after it."""
    saved_micro_batches: int = 0
    """Micro-batches of the interrupted iteration with kept results."""
    state_source: str | None = None
    """Farthest source of any rank's state: own, peer, memory, disk or seed."""
    resume: str = ""
    """How training resumed, and the reason."""
    rehearsed: RehearsedCureView | None = None
    """None unless the controller rehearses."""


class EvidenceView(View):
    """One observation behind an incident, with all that was seen."""

    kind: str
    at: float
    """When the controller received it, seconds since the start of the run."""
    observed_at: float
    """When it happened, by the node's clock on the same scale."""
    node: str | None = None
    task: str | None = None
    rank: int | None = None
    summary: str
    detail: str = ""
    """Traceback, stacks, or lines of the log around it; empty if there is nothing more to see."""
    log: str = ""
    """Path of the rank's log on its node; empty if it is not known."""


class EvidenceAnswer(View):
    """The answer to ``ReadEvidence``."""

    evidence: list[EvidenceView] = Field(default_factory=list)
    """In the order of arrival; at most ``MOST_EVIDENCE`` of ``wire``."""
    num_evidence: int = 0
    """How many pieces there are."""

    @property
    def num_left_out(self) -> int:
        """How many pieces the answer does not hold."""
        return max(0, self.num_evidence - len(self.evidence))


class LogLevel(StrEnum):
    """Weight of a line in the event stream."""

    INFO = "info"
    GOOD = "good"
    WARNING = "warning"
    ERROR = "error"
    DRILL = "drill"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the event stream. ``seq`` increases by one from line to line.

    A dataclass, for the reason at ``WorkerView``.
    """

    seq: int
    at: float
    level: LogLevel
    source: str
    """The node, task, plan or incident of the line."""
    text: str


class DrillView(View):
    """One kind of drill that this cluster offers."""

    kind: str
    title: str
    target: str
    """The kind of its target: ``rank`` or ``node``."""
    expectation: str
    """The expected outcome, in one sentence."""


class ControllerView(View):
    """The controller itself."""

    pid: int
    host: str
    term: int
    """1 for the first controller of a run; each that takes over adds 1."""
    since: str
    """When this controller began, in UTC, ISO 8601."""
    journal_bytes: int


class MarkView(View):
    """An instant of the past that is worth looking at."""

    at: float
    kind: Literal["incident", "plan", "controller"]
    name: str
    text: str


class PlaybackView(View):
    """What is played back. The instant that is shown is the ``now`` of the view."""

    source: Literal["journal", "recording"]
    begin: float
    """How far back it reaches."""
    end: float
    unknown: str
    """What it does not hold, as a list in words. Such fields of views have no value."""
    is_playing: bool = False
    speed: float = 1.0
    """Seconds of the past in a second."""
    marks: list[MarkView] = Field(default_factory=list)
    """In the order of their times."""
    wafs: list[tuple[float, float]] = Field(default_factory=list)
    """Times at which the WAF changed, and its share of the full cluster from then on."""


class ClusterView(View):
    """The whole cluster at one instant."""

    cluster: str
    now: float
    started_wall_s: float
    """Wall clock at the start of the run, seconds since the epoch."""
    is_auto_heal: bool
    automation_stopped: str = ""
    """Why every plan waits for an operator, whatever policy says; empty if it does not."""
    is_closing: bool = False
    waf: float
    """Weighted FLOP/s of the ranks that run now, by the profiles."""
    waf_full: float
    """Weighted FLOP/s of all tasks at their full sizes."""
    nodes: list[NodeView]
    tasks: list[TaskView]
    incidents: list[IncidentView]
    plans: list[PlanView]
    drills: list[DrillView] = Field(default_factory=list)
    prepared: PreparedView | None = None
    measurement: MeasurementView | None = None
    controller: ControllerView | None = None
    """None from a controller of an older version."""
    playback: PlaybackView | None = None
    """None of a living cluster. Else this is the past, which no command changes."""
