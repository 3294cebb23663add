"""Messages on a node's own sockets: agent to template, and agent to rank.

Both ends come from the same versioned directory, so these carry no version number. A rank's
reports are sequenced and kept by the rank until the agent has stored them, so that an agent can
be killed at any instant without a loss.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.observations import OwnObservation
from nodeagent.protocol.orders import HaltOrder
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.rendezvous import StoreCall, StoreReply
from nodeagent.protocol.reported_numbers import Count
from nodeagent.protocol.standing import Standing


class _Local(BaseModel):
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")


class RankHello(_Local):
    """First message of a rank's control connection, sent again after every reconnect.

    It names the generation and rank that the process has at that time. A process that joins another
    generation says hello again, on the same connection.
    """

    kind: Literal["rank_hello"] = "rank_hello"
    task: TaskId
    generation: Generation
    global_rank: int
    pid: int


class RankReport(_Local):
    """An observation of a rank about itself. ``seq`` counts from 1 per rank process."""

    kind: Literal["rank_report"] = "rank_report"
    seq: int
    wall_s: float
    """The node's wall clock, seconds since the epoch."""
    observation: Annotated[OwnObservation, Field(discriminator="kind")]


class RankPulse(_Local):
    """Sign of life of a rank: the newest iteration it finished. Not sequenced; may be dropped.

    ``busy_s`` is how long its micro-batches took, without what it waited for the iteration's floor
    or, in the reduction and the vote, for other replicas. Waiting inside a replica is part of it. 0
    where that is not measured.
    """

    kind: Literal["rank_pulse"] = "rank_pulse"
    iteration: Count
    duration_s: float
    busy_s: float = 0.0


class RankStands(_Local):
    """Answer to ``AskStanding``, from beside the training thread."""

    kind: Literal["rank_stands"] = "rank_stands"
    number: int
    standing: Standing


class ReportStored(_Local):
    """The agent has stored all reports up to ``seq``."""

    kind: Literal["report_stored"] = "report_stored"
    seq: int


class StopAtBoundary(_Local):
    """Finish the running iteration, save a checkpoint, and exit with 0. All ranks stop alike."""

    kind: Literal["stop_at_boundary"] = "stop_at_boundary"


class Join(_Local):
    """Continue as the rank of ``launch`` in its generation; the answer to ``RankHalted``."""

    kind: Literal["join"] = "join"
    launch: RankLaunch


class AskStanding(_Local):
    """Ask a rank where it stands. ``number`` comes back in the answer."""

    kind: Literal["ask_standing"] = "ask_standing"
    number: int


class BreakRank(_Local):
    """Drill: stage a fault at the next micro-batch."""

    kind: Literal["break_rank"] = "break_rank"
    fault: RankFault


class ForkRank(_Local):
    """Agent to template: fork this rank."""

    kind: Literal["fork_rank"] = "fork_rank"
    launch: RankLaunch


class TemplateHello(_Local):
    """First message of a template: everything is imported and it can fork."""

    kind: Literal["template_hello"] = "template_hello"
    pid: int
    import_s: float


class RankForked(_Local):
    """Template to agent: the rank runs as ``pid``."""

    kind: Literal["rank_forked"] = "rank_forked"
    task: TaskId
    generation: Generation
    global_rank: int
    pid: int


class ForkRefused(_Local):
    """Template to agent: this rank can't be forked safely; start it cold."""

    kind: Literal["fork_refused"] = "fork_refused"
    task: TaskId
    generation: Generation
    global_rank: int
    reason: str


FromRank = Annotated[
    RankHello | RankReport | RankPulse | RankStands | StoreCall, Field(discriminator="kind")
]
ToRank = Annotated[
    ReportStored | StopAtBoundary | HaltOrder | Join | AskStanding | BreakRank | StoreReply,
    Field(discriminator="kind"),
]
FromTemplate = Annotated[TemplateHello | RankForked | ForkRefused, Field(discriminator="kind")]
ToTemplate = Annotated[ForkRank, Field(discriminator="kind")]
