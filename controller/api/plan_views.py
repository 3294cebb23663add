"""Views of plans: the division of the workers, its reasons, and plans for next events."""

from pydantic import Field

from controller.api.view_base import LayoutView, View
from controller.core.state.phases import PlanState


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
