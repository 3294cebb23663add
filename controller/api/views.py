"""Frozen views of the cluster, as the controller publishes them to consoles and scripts.

They are what an operator may know at one instant, without anything that only the core needs. All
times are seconds since the controller's start unless a name says otherwise; views are pure values
and know nothing of sockets. Field names are a published format: add, never rename.
"""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict

from controller.core.state.phases import IncidentState, NodeCondition, PlanState, TaskPhase

__all__ = [
    "ClusterView",
    "DrillView",
    "IncidentState",
    "IncidentView",
    "LayoutView",
    "LogLevel",
    "LogLine",
    "MeasuredSizeView",
    "MeasurementView",
    "NodeCondition",
    "NodeView",
    "PlanState",
    "PlanView",
    "StepView",
    "TaskChangeView",
    "TaskPhase",
    "TaskView",
    "TransitionView",
    "View",
    "WorkerView",
]


class View(BaseModel):
    """Base of all views: immutable, unknown fields of a newer controller are ignored."""

    # JSON has no NaN, and a loss may be one: as text it reaches the console instead of a null.
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")


class WorkerView(View):
    """One worker slot of a node and the rank it holds, if any."""

    worker: int
    task: str | None = None
    global_rank: int | None = None
    pid: int | None = None
    iteration: int | None = None
    rss_bytes: int | None = None
    waits_for: str | None = None
    """The task that a process waits, or prepares, here to be a rank of; ``task`` is None then."""
    isolated: str = ""
    """Why it alone is out of service; empty where it is not."""


class NodeView(View):
    """One node."""

    node: str
    address: str
    condition: NodeCondition
    note: str = ""
    """Why the condition is what it is, for instance ``presumed training: link lost 3 s ago``."""
    isolated: str = ""
    """Why it is out of service although it is in contact; empty for a node in service."""
    asked_at: float | None = None
    """Since when the operator is asked whether it is lost, for the reason in ``note``; else None."""
    findings: list[str] = []
    """What its probes find now, one sentence each."""
    agent_pid: int | None = None
    agent_rss_bytes: int | None = None
    heartbeat_at: float | None = None
    workers: list[WorkerView] = []


class LayoutView(View):
    """Sizes of a task's parallel groups."""

    tp: int
    pp: int
    dp: int


class StepView(View):
    """One step of a transition. ``actual_s`` is None while it is not over."""

    name: str
    predicted_s: float
    actual_s: float | None = None


class TransitionView(View):
    """How a task goes, or went, from one generation to the next."""

    kind: str
    """``reattempt``, ``restart``, ``shrink``, ``grow``, ``move`` or ``layout change``."""
    steps: list[StepView] = []
    predicted_s: float
    actual_s: float
    """Of the steps so far."""
    is_done: bool


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
    target_iterations: int | None = None
    loss: float | None = None
    tokens_per_s: float | None = None
    flops_per_s: float | None = None
    """Achieved model FLOP/s over the newest iterations; None while it does not train."""
    losses: dict[int, float] = {}
    """Loss by iteration: all of them in the final report, the newest 120 in the stream."""
    num_rerun_iterations: int = 0
    unsupported: list[str] = []
    """Settings that do not recover in process, with the reasons; its faults take new processes."""
    transition: TransitionView | None = None
    """The present transition, or the newest; None before there was one."""


class IncidentView(View):
    """One fault, from its first trace to its cure."""

    id: str
    task: str | None
    node: str | None
    rank: int | None
    status: str
    severity: str
    method: str
    action: str
    state: IncidentState
    evidence: list[str] = []
    """What was seen, in the order of its arrival, the first eight: the cause among its symptoms."""
    reason: str = ""
    is_drill: bool = False
    """Somebody broke it on purpose; it does not speak against the node."""
    fault_at: float
    detected_at: float
    decided_at: float | None = None
    """When the cause was named and an action chosen."""
    acting_at: float | None = None
    """When the action began: at once, or when a plan was approved."""
    resolved_at: float | None = None
    recovery_s: float | None = None
    """From the fault to the first iteration committed after it; None while there is none."""
    recomputed_micro_batches: int = 0
    """Micro-batches that were computed before the fault, and were computed again."""
    saved_micro_batches: int = 0
    """Micro-batches of the interrupted iteration whose results were kept."""
    state_source: str | None = None
    """Farthest place that a rank got its state from: own, peer, memory, disk or seed."""
    resume: str = ""
    """How training was taken up again, and why so."""


class TaskChangeView(View):
    """What a plan does to one task."""

    task: str
    workers_before: int
    workers_after: int
    layout_after: LayoutView | None = None
    waf_before: float
    waf_after: float
    is_faulted: bool
    moves: bool
    """Whether it goes on in another place or layout."""
    placement_before: list[str] = []
    """Its workers in the order of the global ranks, neighbours in one term: ``n1:0-3``, ``n2:5``."""
    placement_after: list[str] = []
    transition_s: float = 0.0
    """Seconds without training that this is expected to take, if it moves."""


class AlternativeView(View):
    """Another division of the workers, and why it was not chosen."""

    differs: dict[str, int]
    """Workers of the tasks that would have another size."""
    objective: float
    """Weighted FLOP until the next expected fault, transitions paid."""
    waf: float
    verdict: str


class SensitivityView(View):
    """An estimate that would have led to another division."""

    estimate: str
    factor: float
    """The estimate as a multiple of the one that was used."""
    differs: dict[str, int]


class WaitingView(View):
    """What every minute costs until a plan is applied, if faulted tasks stand still."""

    weighted_flop_per_min: float
    gpu_hours_per_min: float


class TermsView(View):
    """The terms of the planner's objective of one task, in weighted FLOP."""

    name: str
    earned: float
    forgone: float


class ExplanationView(View):
    """Why a plan is this one."""

    terms: list[TermsView]
    alternatives: list[AlternativeView]
    sensitivity: list[SensitivityView]
    waiting: WaitingView


class PreparedView(View):
    """Plans that were sought before they are needed."""

    num_events: int
    """Problems that there is a plan for: the present one and those of next events, those alike counted once."""
    took_s: float
    is_current: bool
    """Whether they hold for the cluster as it was when it was last looked at, a second ago at most."""
    num_found: int
    """Plans that were there when they were needed."""
    num_missed: int
    """Plans that had to be sought then."""


class PlanView(View):
    """A proposed or decided division of the workers over all tasks."""

    id: str
    revision: int
    trigger: str
    """Incident or request that caused it."""
    seen: str
    """What was observed, in one sentence."""
    why: str
    """Why this division and not another."""
    state: PlanState
    created_at: float
    approved_by: str | None = None
    decided_at: float | None = None
    waf_before: float
    """Weighted FLOP/s before the event, all tasks."""
    waf_now: float
    """Weighted FLOP/s of the whole cluster at the time of this view, as in ``ClusterView.waf``."""
    waf_after: float
    assignments: dict[str, int]
    assignments_before: dict[str, int]
    changes: list[TaskChangeView] = []
    steps: list[str] = []
    isolated_nodes: list[str] = []
    explanation: ExplanationView | None = None
    """Comes a moment after the plan; old plans have none."""


class MeasuredSizeView(View):
    """One size of a measurement."""

    workers: int
    layout: LayoutView
    phase: Literal["waiting", "running", "measured", "failed", "skipped"]
    reason: str = ""
    """Why it failed, or was left out."""
    iterations: int = 0
    """So far, those of the warm-up included; only while it runs."""
    iteration_s: float | None = None
    """Median of the iterations that count."""
    flops_per_s: float | None = None


class MeasurementView(View):
    """A measurement of a task's speed on idle workers: the one that runs, or the newest."""

    name: str
    task: str
    num_iterations: int
    """How many count at each size."""
    num_warm_up: int
    """How many come before them."""
    ended: str = ""
    """Why no further size is begun; empty while it goes on."""
    is_over: bool = False
    sizes: list[MeasuredSizeView] = []


class LogLevel(StrEnum):
    """Weight of a line in the event stream."""

    INFO = "info"
    GOOD = "good"
    WARNING = "warning"
    ERROR = "error"
    DRILL = "drill"


class LogLine(View):
    """One line of the event stream. ``seq`` increases by one from line to line."""

    seq: int
    at: float
    level: LogLevel
    source: str
    """Node, task, plan or incident that the line is about."""
    text: str


class DrillView(View):
    """One kind of drill that this cluster offers."""

    kind: str
    title: str
    target: str
    """What it needs: ``rank`` or ``node``."""
    expectation: str
    """What should happen, in one sentence."""


class ClusterView(View):
    """Everything an overview shows, at one instant."""

    cluster: str
    now: float
    started_wall_s: float
    """Wall clock at the controller's start, seconds since the epoch."""
    is_auto_heal: bool
    is_closing: bool = False
    waf: float
    """Weighted FLOP/s that the profiles give for what runs now."""
    waf_full: float
    """Weighted FLOP/s of the first plan, with every node in place."""
    nodes: list[NodeView]
    tasks: list[TaskView]
    incidents: list[IncidentView]
    plans: list[PlanView]
    drills: list[DrillView] = []
    prepared: PreparedView | None = None
    measurement: MeasurementView | None = None
