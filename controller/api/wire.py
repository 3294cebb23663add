"""What travels on the controller's API socket: JSON lines over a unix socket of mode 0600.

On connect the server sends ``Greeting``, one ``Snapshot`` and the newest log lines. From then on it
sends a ``Snapshot`` when something changed, at most ten times a second, and every log line once. A
client sends ``Command`` and gets one ``Reply`` with the same ``request_id``; a command that is
refused changes nothing and says why.
"""

from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue

from controller.api.views import ClusterView, LogLine, View

API_VERSION: Final = 2

_Count = Annotated[int, Field(ge=0, le=10**6)]
_Weight = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]


class Greeting(View):
    """First message of the server."""

    kind: Literal["greeting"] = "greeting"
    version: int = API_VERSION
    cluster: str


class Snapshot(View):
    """The whole cluster now."""

    kind: Literal["snapshot"] = "snapshot"
    view: ClusterView


class LogLines(View):
    """New lines of the event stream, oldest first."""

    kind: Literal["log_lines"] = "log_lines"
    lines: list[LogLine]


class Reply(View):
    """Outcome of a command. ``code`` is one word for programs, ``message`` a sentence; ``data`` answers a question."""

    kind: Literal["reply"] = "reply"
    request_id: str
    is_ok: bool
    code: str = "ok"
    message: str = ""
    data: dict[str, JsonValue] | None = None


class ApprovePlan(View):
    """Apply a plan, exactly as of ``revision``.

    Refusals: ``unknown``, ``superseded``, ``decided``.
    """

    kind: Literal["approve_plan"] = "approve_plan"
    request_id: str
    actor: str
    plan: str
    revision: int


class RejectPlan(View):
    """Decline a plan; the tasks stay as they are. Refusals as for ``ApprovePlan``."""

    kind: Literal["reject_plan"] = "reject_plan"
    request_id: str
    actor: str
    plan: str
    revision: int
    reason: str = ""


class RequestPlan(View):
    """Compute a plan for the present state, for instance after a rejection.

    Refusals: ``pending`` (a plan waits already), ``nothing`` (no plan would change anything).
    """

    kind: Literal["request_plan"] = "request_plan"
    request_id: str
    actor: str


class UncordonNode(View):
    """Take an isolated node back into service, if its checks pass; forced, whatever they say.

    With ``gpu`` only that GPU of it; without, also every GPU of it that is isolated alone.

    Refusals: ``unknown``, ``nothing`` (it is not isolated), ``unfit`` (a check does not pass).
    """

    kind: Literal["uncordon_node"] = "uncordon_node"
    request_id: str
    actor: str
    node: str
    is_forced: bool = False
    gpu: int | None = None


class DecideLoss(View):
    """Say whether a node out of contact is lost, or is to be waited for.

    Refusals: ``unknown``, ``nothing`` (it is not out of contact), ``unfit`` (its tasks advance).
    """

    kind: Literal["decide_loss"] = "decide_loss"
    request_id: str
    actor: str
    node: str
    is_lost: bool


class MeasureTask(View):
    """Measure a task's speed on idle workers, at all its sizes if none is named.

    The reply's code is the measurement's name; how it goes is in the snapshots.

    Refusals: ``unknown``, ``busy`` (another one runs), ``pending`` (a plan waits for a decision),
    ``unsupported`` (it is a command, and not contained), ``unlisted`` (a size without layout), ``nothing`` (no size fits).
    """

    kind: Literal["measure_task"] = "measure_task"
    request_id: str
    actor: str
    task: str
    sizes: tuple[int, ...] = ()
    num_iterations: Annotated[int, Field(ge=1, le=10_000)] = 10
    is_contained: bool = False
    """It is a command, and keeps its files below ``UNICRON_TASK_DIR`` alone."""


class CancelMeasurement(View):
    """End a measurement; what is measured stays. Refusals: ``unknown``, ``decided``."""

    kind: Literal["cancel_measurement"] = "cancel_measurement"
    request_id: str
    actor: str
    measurement: str


class RunDrill(View):
    """Break something on purpose. Refusals: ``unsupported``, ``no_target``."""

    kind: Literal["run_drill"] = "run_drill"
    request_id: str
    actor: str
    drill: str
    task: str | None = None
    rank: int | None = None
    node: str | None = None


class AskWhatIf(View):
    """Ask what would be planned if something were different; nothing happens to the cluster.

    Fields are those of ``controller.core.rehearsal.Supposition``. With ``has_problem`` the planner's problem comes with
    the answer, which may be large. Refusal: ``impossible``.
    """

    kind: Literal["ask_what_if"] = "ask_what_if"
    request_id: str
    actor: str
    lost: tuple[str, ...] = ()
    added: dict[str, _Count] = Field(default_factory=dict)
    num_added: _Count = 0
    weights: dict[str, _Weight] = Field(default_factory=dict)
    finished: tuple[str, ...] = ()
    faulted: tuple[str, ...] = ()
    has_problem: bool = False


class DescribeCluster(View):
    """Ask for the nodes in service, the tasks at their present sizes and the policy, to rehearse with them."""

    kind: Literal["describe_cluster"] = "describe_cluster"
    request_id: str
    actor: str


class Shutdown(View):
    """End the demo: all tasks, agents and nodes. Refusal: ``unsupported`` outside a demo."""

    kind: Literal["shutdown"] = "shutdown"
    request_id: str
    actor: str


Question = AskWhatIf | DescribeCluster
"""Commands that change nothing, and never reach the core."""

Command = Annotated[
    ApprovePlan
    | RejectPlan
    | RequestPlan
    | UncordonNode
    | DecideLoss
    | RunDrill
    | AskWhatIf
    | DescribeCluster
    | MeasureTask
    | CancelMeasurement
    | Shutdown,
    Field(discriminator="kind"),
]
FromServer = Annotated[Greeting | Snapshot | LogLines | Reply, Field(discriminator="kind")]
