"""Messages between controller and agent, inside the SSH connection.

Two kinds travel from the agent. *Reports* carry a sequence number, are kept on the node until the
controller acknowledges them, and are sent again after a reconnect: nothing is lost, and the
controller drops duplicates. Everything else (heartbeats, results) describes the present and is
never repeated. Commands are idempotent: a command that arrives twice is carried out once.

The first message of each side states its version; see ``PROTOCOL_VERSION``.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from nodeagent.protocol.ids import AgentId, Generation, NodeId, TaskId
from nodeagent.protocol.observations import AnyObservation
from nodeagent.protocol.orders import RankOrder
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.rank_status import RankStatus
from nodeagent.protocol.regroup import Resume
from nodeagent.protocol.rendezvous import StoreCall, StoreReply
from nodeagent.protocol.reported_numbers import Count

PROTOCOL_VERSION: Final = 12
"""Increased when an older peer could misread a message. Unequal versions refuse each other."""

MAX_LOG_BYTES: Final = 64 * 1024
"""Of a rank's output, in one answer."""


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")


# --- from the controller -------------------------------------------------------------------


class Attach(_Message):
    """Opens a session: which reports the controller has already seen.

    ``run_id`` names the controller's journal; an agent that has served another one starts a new
    sequence of reports. ``term`` is the controller's leadership; an agent refuses an older one.
    ``controller`` says for people which process that is.
    """

    kind: Literal["attach"] = "attach"
    version: int = PROTOCOL_VERSION
    run_id: str
    term: int
    node: NodeId
    last_seq: int
    controller: str = ""


class Acknowledge(_Message):
    """All reports up to ``seq`` are in the controller's journal."""

    kind: Literal["acknowledge"] = "acknowledge"
    seq: int


class StartRanksCommand(_Message):
    """Start these ranks, or have parked processes become them (``RankLaunch.continues``).

    Kills processes of older generations of the task that no launch continues. A launch whose parked
    process is gone ends in ``LaunchFailed``.

    ``resume`` and ``copy_holders`` are the same for all ranks and grow with their number, so they
    are sent once. ``whole_launches`` puts them into each launch again.
    """

    kind: Literal["start_ranks"] = "start_ranks"
    command_id: str
    launches: list[RankLaunch]
    resume: Resume = Resume()
    copy_holders: tuple[int | None, ...] = ()

    @classmethod
    def of(cls, command_id: str, launches: Sequence[RankLaunch]) -> Self:
        """Return the message that starts these ranks, all of one generation."""
        ranks = [launch for launch in launches if launch.prepares_for is None]
        first = ranks[0] if ranks else launches[0]
        none = {"resume": Resume(), "copy_holders": ()}
        return cls(
            command_id=command_id,
            launches=[launch.model_copy(update=none) for launch in launches],
            resume=first.resume,
            copy_holders=first.copy_holders,
        )

    @property
    def workdir(self) -> str:
        """Version of the task's folder that the ranks need; empty if they need none."""
        return self.launches[0].workdir if self.launches else ""

    def whole_launches(self) -> list[RankLaunch]:
        """Return the launches, with the common parts in each launch of a rank."""
        common = {"resume": self.resume, "copy_holders": self.copy_holders}
        return [
            launch if launch.prepares_for is not None else launch.model_copy(update=common)
            for launch in self.launches
        ]


class OrderRanksCommand(_Message):
    """Carry out ``order`` for the ranks on this node."""

    kind: Literal["order_ranks"] = "order_ranks"
    command_id: str
    order: RankOrder


class ProbePeerCommand(_Message):
    """Ask whether an SSH server answers at ``host:port`` as seen from this node.

    ``other_host``, if it is not empty, is the same machine in another network.
    """

    kind: Literal["probe_peer"] = "probe_peer"
    command_id: str
    host: str
    other_host: str = ""
    port: int
    timeout_s: float


class InjectFault(_Message):
    """Drill: break one rank of this node on purpose."""

    kind: Literal["inject_fault"] = "inject_fault"
    command_id: str
    task: TaskId
    generation: Generation
    global_rank: int
    fault: RankFault


class ReadLog(_Message):
    """Ask for a part of the output of a rank, of this generation or an older one.

    ``name`` and ``begin`` are those of the answer before, to continue there. Where the rank has
    another log meanwhile, or without a name, the answer holds the newest log's end.
    With ``is_previous``, the log is that of the process before the newest one.
    """

    kind: Literal["read_log"] = "read_log"
    command_id: str
    task: TaskId
    global_rank: int
    name: str = ""
    begin: int = 0
    max_bytes: Annotated[int, Field(ge=1, le=MAX_LOG_BYTES)] = MAX_LOG_BYTES
    is_previous: bool = False


# --- from the agent ------------------------------------------------------------------------


class Welcome(_Message):
    """Answer to ``Attach``: the agent, and the ranks that run on its node."""

    kind: Literal["welcome"] = "welcome"
    version: int = PROTOCOL_VERSION
    node: NodeId
    agent_id: AgentId
    pid: int
    num_workers: int
    is_template_ready: bool
    first_seq: int
    """Oldest report that the agent still holds."""
    ranks: list[RankStatus]


class Refuse(_Message):
    """Answer to an ``Attach`` that can't be served; the agent then closes the connection."""

    kind: Literal["refuse"] = "refuse"
    version: int = PROTOCOL_VERSION
    reason: str


class Report(_Message):
    """A sequenced observation. ``seq`` counts from 1 per node and ``run_id``."""

    kind: Literal["report"] = "report"
    seq: int
    wall_s: float
    """The node's wall clock, seconds since the epoch."""
    observation: AnyObservation


class Heartbeat(_Message):
    """Sign of life, twice per second: what runs now and how far it is."""

    kind: Literal["heartbeat"] = "heartbeat"
    wall_s: float
    rss_bytes: Count
    is_template_ready: bool
    ranks: list[RankStatus]


class CommandDone(_Message):
    """Outcome of a command; ``error`` is None on success.

    For a ``ProbePeerCommand``, success means that the probe ran; ``detail`` is ``answered``,
    ``refused`` or ``silent``.
    """

    kind: Literal["command_done"] = "command_done"
    command_id: str
    error: str | None = None
    detail: str = ""


class LogPart(_Message):
    """Answer to a ``ReadLog``.

    Attributes:
        name: Which of the rank's logs it is of; empty if there is none.
        begin: First byte of ``text`` in it.
        end: Byte after the last of ``text``.
        text: What the rank has written, from the beginning of a line on.
        error: Why there is no text; empty if there may be some.
    """

    kind: Literal["log_part"] = "log_part"
    command_id: str
    name: str = ""
    begin: Count = 0
    end: Count = 0
    text: str = ""
    error: str = ""


ToAgent = Annotated[
    Attach
    | Acknowledge
    | StartRanksCommand
    | OrderRanksCommand
    | ProbePeerCommand
    | InjectFault
    | ReadLog
    | StoreReply,
    Field(discriminator="kind"),
]
FromAgent = Annotated[
    Welcome | Refuse | Report | Heartbeat | CommandDone | LogPart | StoreCall,
    Field(discriminator="kind"),
]
