"""The messages on the API's socket: JSON lines over a unix socket of mode 0600.

On connect the server sends ``Greeting``, one ``Snapshot`` and the newest log lines. After that it
sends a ``Snapshot`` after a change, at most ten times a second, and every log line once. A client
that has sent ``FollowChanges`` gets ``Changes`` instead of later snapshots. A client sends a
``Command`` and gets one ``Reply`` with the same ``request_id``, which waits for no snapshot. A
refused command changes nothing, and its reply gives the reason.
"""

from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue

from controller.api.views import ClusterView, LogLine, View

API_VERSION: Final = 2
MOST_EVIDENCE: Final = 32

_Count = Annotated[int, Field(ge=0, le=10**6)]
HistoryTable = Literal["iterations", "lines", "incidents", "plans", "audit"]
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


class Changes(View):
    """What has changed since the newest view that this client was sent (``view_changes``)."""

    kind: Literal["changes"] = "changes"
    fields: dict[str, JsonValue]


class FollowChanges(View):
    """A client asks for ``Changes``. It gets no reply."""

    kind: Literal["follow_changes"] = "follow_changes"


class LogLines(View):
    """New lines of the event stream, oldest first."""

    kind: Literal["log_lines"] = "log_lines"
    lines: list[LogLine]
    replaces: bool = False
    """Whether these lines are all that there are now: a playback has jumped."""


class Reply(View):
    """Outcome of a command: a word for programs and a sentence. ``data`` answers a question."""

    kind: Literal["reply"] = "reply"
    request_id: str
    is_ok: bool
    code: str = "ok"
    message: str = ""
    data: dict[str, JsonValue] | None = None


MOST_SUBMITTED: Final = 1_000_000
"""Characters of a file of tasks."""


class ClientCommand(View):
    """What every command says: a name for its reply, and who asks."""

    request_id: str
    actor: str


class ApprovePlan(ClientCommand):
    """Apply a plan, if ``revision`` is still its newest revision.

    Refusals: ``unknown``, ``superseded``, ``decided``.
    """

    kind: Literal["approve_plan"] = "approve_plan"
    plan: str
    revision: int


class ApproveCure(ClientCommand):
    """Have the cure of an incident done that a rehearsal has shown.

    Refusals: ``unknown``, ``nothing`` (it waits for none), ``decided``, ``superseded`` (it is
    another one now), ``plan`` (the incident's plan is to be approved).
    """

    kind: Literal["approve_cure"] = "approve_cure"
    incident: str
    action: str


class RejectPlan(ClientCommand):
    """Reject a plan. The tasks stay as they are. Refusals: as for ``ApprovePlan``."""

    kind: Literal["reject_plan"] = "reject_plan"
    plan: str
    revision: int
    reason: str = ""


class DeferPlan(ClientCommand):
    """Have a plan that is applied by itself wait for ``for_s`` seconds from now.

    Refusals: as for ``ApprovePlan``, and ``nothing`` (it waits without an end).
    """

    kind: Literal["defer_plan"] = "defer_plan"
    plan: str
    revision: int
    for_s: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]


class ResumeAutomation(ClientCommand):
    """Let policy apply plans again, after a storm has stopped that.

    Refusal: ``nothing`` (it is not stopped).
    """

    kind: Literal["resume_automation"] = "resume_automation"


class RequestPlan(ClientCommand):
    """Compute a plan for the present state, for instance after a rejection.

    Refusals: ``pending`` (a plan waits for a decision), ``nothing`` (no plan would change
    anything).
    """

    kind: Literal["request_plan"] = "request_plan"


class UncordonNode(ClientCommand):
    """Take an isolated node back into service, if its checks pass, or if ``is_forced``.

    With ``gpu`` this concerns only that GPU of the node. Without it, the node and all its GPUs.

    Refusals: ``unknown``, ``nothing`` (it is not isolated), ``unfit`` (a check does not pass).
    """

    kind: Literal["uncordon_node"] = "uncordon_node"
    node: str
    is_forced: bool = False
    gpu: int | None = None


class DecideLoss(ClientCommand):
    """Decide that a node out of contact is lost, or that Unicron waits for it.

    Refusals: ``unknown``, ``nothing`` (it is not out of contact), ``unfit`` (its tasks advance).
    """

    kind: Literal["decide_loss"] = "decide_loss"
    node: str
    is_lost: bool


class MeasureTask(ClientCommand):
    """Measure a task's throughput on idle workers, at the given sizes or at all sizes.

    The reply's code is the measurement's name. Its progress is in the snapshots.

    Refusals: ``unknown``, ``busy`` (another measurement runs), ``pending`` (a plan waits for a
    decision), ``unsupported`` (a command task without ``is_contained``), ``unlisted`` (a size
    without layout), ``nothing`` (no size fits).
    """

    kind: Literal["measure_task"] = "measure_task"
    task: str
    sizes: tuple[int, ...] = ()
    num_iterations: Annotated[int, Field(ge=1, le=10_000)] = 10
    is_contained: bool = False
    """The operator states that the command task writes only below ``UNICRON_TASK_DIR``."""


class CancelMeasurement(ClientCommand):
    """End a measurement. Its results so far stay. Refusals: ``unknown``, ``decided``."""

    kind: Literal["cancel_measurement"] = "cancel_measurement"
    measurement: str


class RunDrill(ClientCommand):
    """Run a drill: stage a fault. Refusals: ``unsupported``, ``no_target``."""

    kind: Literal["run_drill"] = "run_drill"
    drill: str
    task: str | None = None
    rank: int | None = None
    node: str | None = None


class AskWhatIf(ClientCommand):
    """Ask for the plan under other circumstances. The cluster does not change.

    The fields are explained in ``controller.core.rehearsal.Supposition``. With ``has_problem`` the
    answer holds the planner's problem, which may be large. Refusal: ``impossible``.
    """

    kind: Literal["ask_what_if"] = "ask_what_if"
    lost: tuple[str, ...] = ()
    added: dict[str, _Count] = Field(default_factory=dict)
    num_added: _Count = 0
    weights: dict[str, _Weight] = Field(default_factory=dict)
    finished: tuple[str, ...] = ()
    faulted: tuple[str, ...] = ()
    keeps_running: dict[str, bool] = Field(default_factory=dict)
    has_problem: bool = False


class DescribeCluster(ClientCommand):
    """Ask for the nodes in service, the tasks at their present sizes, and the policy."""

    kind: Literal["describe_cluster"] = "describe_cluster"


class OrderTask(ClientCommand):
    """Stop a task with a checkpoint, let it run again, end it, or put it out of sight.

    Refusals: ``unknown``, ``nothing`` (it is so already), ``unfit`` (it has not finished).
    """

    kind: Literal["order_task"] = "order_task"
    order: Literal["stop", "start", "finish", "archive"]
    task: str


class LimitTask(ClientCommand):
    """Give a task another weight or other limits; what is None stays. ``max_workers`` 0: no limit.

    Refusals: ``unknown``, ``nothing`` (it is so already, or the task has finished), ``impossible``
    (it has no such size).
    """

    kind: Literal["limit_task"] = "limit_task"
    task: str
    weight: Annotated[float, Field(gt=0, le=1e30, allow_inf_nan=False)] | None = None
    min_workers: Annotated[int, Field(ge=1, le=10**6)] | None = None
    max_workers: _Count | None = None
    keeps_running: bool | None = None


class SubmitTasks(ClientCommand):
    """Train the tasks of a file: its text, and the folder to which its paths are relative.

    Refusals: ``invalid`` (with every mistake), ``exists``, ``unsupported``.
    """

    kind: Literal["submit_tasks"] = "submit_tasks"
    name: str
    """Name of the file, for mistakes."""
    text: Annotated[str, Field(max_length=MOST_SUBMITTED)]
    folder: str


class ReloadFile(ClientCommand):
    """Take the changed cluster file in, or only say what that would do.

    The reply to a dry run has a line for each change in ``changes``. With ``expected`` the changes
    must still be those.

    Refusals: ``invalid`` (with every mistake), ``impossible``, ``nothing``, ``superseded``,
    ``unsupported``.
    """

    kind: Literal["reload_file"] = "reload_file"
    is_dry_run: bool = False
    expected: tuple[str, ...] | None = None


class OrderNode(ClientCommand):
    """Take a node out of service, or say that its repair is over (``return``).

    Refusals: ``unknown``, ``nothing`` (it is so already), ``no_room`` (a drain would stop a task),
    ``unfit`` (tasks are there).
    """

    kind: Literal["order_node"] = "order_node"
    order: Literal["cordon", "drain", "isolate", "repair", "return"]
    node: str
    reason: Annotated[str, Field(max_length=1000)] = ""
    is_forced: bool = False


class ReadHistory(ClientCommand):
    """Ask for rows of the run's history, newest last: what former controllers did, too.

    ``name`` is that of a task (``iterations``), a source (``lines``), an incident, a plan, or what
    a request is about (``audit``). Refusal: ``failed`` (it can't be read).
    """

    kind: Literal["read_history"] = "read_history"
    table: HistoryTable
    since: float = 0.0
    """Rows before this time are left out, seconds since the start of the run."""
    until: float | None = None
    """So are rows after this time; None for all until now."""
    name: str | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 100


class ReadEvidence(ClientCommand):
    """Ask for the evidence of an incident, with tracebacks, stacks and lines of logs.

    The reply's data are an ``EvidenceAnswer``. Refusals: ``unknown`` (there is no such incident, or
    its evidence is no longer kept), ``unsupported`` (in a recording).
    """

    kind: Literal["read_evidence"] = "read_evidence"
    incident: Annotated[str, Field(max_length=100)]


class LogPosition(View):
    """How far a client has read the output of a rank."""

    name: str
    end: int


class ReadLogs(ClientCommand):
    """Ask for the output of a task's ranks; all ranks if none is named.

    ``after`` has, by rank, how far the client has read already; without it the answer holds the
    end. The reply's ``logs`` has an object for each rank: ``rank``, ``node``, ``name``, ``begin``,
    ``end``, ``text`` and ``error``. With ``is_previous`` it is the output of the process before
    the newest one, and the reply says so: older controllers do not know this. ``node`` is asked
    instead of the node where each rank is now.

    Refusals: ``unknown``, ``too_many`` (ranks at once).
    """

    kind: Literal["read_logs"] = "read_logs"
    task: str
    ranks: tuple[int, ...] = ()
    after: dict[int, LogPosition] = Field(default_factory=dict)
    max_bytes: Annotated[int, Field(ge=1, le=65_536)] = 16_384
    is_previous: bool = False
    node: str = ""


class MovePlayback(ClientCommand):
    """Show another instant of the past, or let it pass at another speed; what is None stays.

    Refusals: ``unsupported`` (this controller is no playback), ``invalid`` (it has no such moment).
    """

    kind: Literal["move_playback"] = "move_playback"
    moment: Annotated[str, Field(max_length=100)] | None = None
    """As ``unicron playback --at`` takes it."""
    by_s: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Later than the present instant, or earlier."""
    step: Literal["line", "incident"] | None = None
    """Go to the next of these."""
    is_back: bool = False
    """Go to the one before instead."""
    speed: Annotated[float, Field(gt=0, le=10_000)] | None = None
    is_playing: bool | None = None


class Shutdown(ClientCommand):
    """End the run: of a demo, or of a cluster. Tasks save a checkpoint, then agents are ended.

    Refusal: ``unsupported`` where clients may not end the run.
    """

    kind: Literal["shutdown"] = "shutdown"


Question = AskWhatIf | DescribeCluster
"""Commands about the state. They change nothing and do not reach the core."""

Command = Annotated[
    ApprovePlan
    | ApproveCure
    | RejectPlan
    | DeferPlan
    | ResumeAutomation
    | RequestPlan
    | UncordonNode
    | DecideLoss
    | RunDrill
    | AskWhatIf
    | DescribeCluster
    | MeasureTask
    | CancelMeasurement
    | OrderTask
    | LimitTask
    | SubmitTasks
    | OrderNode
    | ReloadFile
    | ReadHistory
    | ReadEvidence
    | ReadLogs
    | MovePlayback
    | Shutdown,
    Field(discriminator="kind"),
]
FromClient = Annotated[Command | FollowChanges, Field(discriminator="kind")]
FromServer = Annotated[
    Greeting | Snapshot | Changes | LogLines | Reply, Field(discriminator="kind")
]
