"""What an agent observes and reports. Observations are facts, never judgements.

The controller's core classifies them; an agent that named the fault itself would have to be
replaced whenever policy changes. Every observation travels in a sequenced ``Report`` and is kept
by the agent until it is acknowledged.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.regroup import Position, StateSource
from nodeagent.protocol.reported_numbers import Count, Elapsed
from nodeagent.protocol.standing import Standing


class Observation(BaseModel):
    """What all observations of ranks share: one rank of one generation of one task."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    task: TaskId
    generation: Generation
    global_rank: int


class RankStarted(Observation):
    """A rank's process was forked and runs."""

    kind: Literal["rank_started"] = "rank_started"
    pid: int
    warm: bool
    """Forked from the template; false for a cold start."""
    start_s: Elapsed
    """Seconds from the launch to the first word of the rank."""


class RankExited(Observation):
    """A rank's process is gone. Exactly one of ``exit_code`` and ``signal`` is set, if known.

    ``is_expected`` is true if the agent was ordered to stop the rank.
    """

    kind: Literal["rank_exited"] = "rank_exited"
    pid: int
    exit_code: int | None = None
    signal: int | None = None
    is_expected: bool = False
    is_core_dumped: bool = False
    is_out_of_memory: bool = False
    """The kernel killed it for memory, as its control group or the kernel log says."""
    tail_line: Count = 0
    """Number of the tail's first line in the log; 0 if it is not known."""
    stderr_tail: str = ""
    """Last lines of the rank's stderr, at most 4 kB."""
    log: str = ""
    """Path of the rank's log on its node; empty from older agents."""


class RankRaised(Observation):
    """An exception reached the top of a rank. The process still lives and waits for the verdict.

    ``is_in_collective`` is true where the innermost frames were a collective operation, so that
    the exception may only echo the end of a peer.
    """

    kind: Literal["rank_raised"] = "rank_raised"
    exception_type: str
    message: str
    traceback: str
    is_in_collective: bool
    iteration: Count
    position: Position | None = None
    """Where it stands; None if its process can't take part in another generation."""
    log: str = ""
    """Path of the rank's log on its node; empty if its standard error goes elsewhere."""


class RankHalted(Observation):
    """A rank was halted and has parked; it waits in its process for another generation.

    Attributes:
        position: Where it stands.
        unsupported: As in ``RankJoined``; a rank may be halted before it has joined.
    """

    kind: Literal["rank_halted"] = "rank_halted"
    position: Position
    unsupported: tuple[str, ...] = ()


class RankJoined(Observation):
    """A rank has met its peers, has its state, and takes up training.

    Attributes:
        iteration: The state is that after this iteration.
        source: Where its state came from.
        form_s: Seconds to leave the old process groups and form the new ones.
        state_s: Seconds to get the state and the partial results of the iteration.
        unsupported: Settings of the task that do not recover in process, each with the reason; its
            faults are handled by new processes. Empty where it recovers, and from older ranks.
    """

    kind: Literal["rank_joined"] = "rank_joined"
    iteration: Count
    source: StateSource
    form_s: Elapsed
    state_s: Elapsed
    unsupported: tuple[str, ...] = ()


class LaunchFailed(Observation):
    """A rank could not be started at all."""

    kind: Literal["launch_failed"] = "launch_failed"
    reason: str
    stderr_tail: str = ""
    """Last lines of the log of a process that ended before its first word, at most 4 kB."""
    log: str = ""
    """Path of that log on its node."""


class IterationCommitted(Observation):
    """All ranks of the task applied the update of ``iteration``. Reported by global rank 0 only.

    A command's iterations are read from its log, by whichever rank prints them; it may print one
    line for several. What it does not say is None.

    Attributes:
        iteration: Counted from 1.
        loss: Mean loss per token over the global batch, before the update.
        duration_s: Seconds since the iteration began.
        num_tokens: Tokens of the global batch; 0 where that is not known.
        grad_norm: L2 norm of the whole gradient before clipping.
    """

    kind: Literal["iteration_committed"] = "iteration_committed"
    iteration: Count
    loss: float | None
    duration_s: Elapsed
    num_tokens: Count
    grad_norm: float | None
    num_recomputed: Count = 0
    """Micro-batches of it that had been computed before a fault, and were computed again."""
    num_saved: Count = 0
    """Micro-batches of it whose results were kept over a fault."""


class ProgressUnread(Observation):
    """A command prints lines that look like iterations, and no pattern reads them.

    Attributes:
        line: Such a line.
        pattern: A regular expression that reads it.
    """

    kind: Literal["progress_unread"] = "progress_unread"
    line: str
    pattern: str


class CheckpointMissed(Observation):
    """A checkpoint was not completed; training continues.

    Attributes:
        iteration: The state would have been that after this iteration.
        reason: Why, in words for an operator.
        tier: Where it would have been. In memory none follows in this generation.
    """

    kind: Literal["checkpoint_missed"] = "checkpoint_missed"
    tier: Literal["memory", "disk"] = "disk"
    iteration: Count
    reason: str


class CheckpointSaved(Observation):
    """A checkpoint of ``iteration`` is complete on disk. Reported by global rank 0 only."""

    kind: Literal["checkpoint_saved"] = "checkpoint_saved"
    iteration: Count
    duration_s: Elapsed
    num_bytes: Count


class RankDone(Observation):
    """A rank left its training loop at an iteration boundary and is about to exit with 0."""

    kind: Literal["rank_done"] = "rank_done"
    iteration: Count
    reason: Literal["stopped", "finished"]


class RankInspected(Observation):
    """Its agent has looked where a rank stands, because its task makes no progress."""

    kind: Literal["rank_inspected"] = "rank_inspected"
    pid: int
    standing: Standing


OwnObservation = (
    RankRaised
    | RankHalted
    | RankJoined
    | IterationCommitted
    | CheckpointMissed
    | CheckpointSaved
    | RankDone
)
"""What a rank says of itself. Everything else is observed by its agent."""
RankObservation = (
    OwnObservation | RankStarted | RankExited | LaunchFailed | ProgressUnread | RankInspected
)
AnyObservation = Annotated[RankObservation | NodeFinding, Field(discriminator="kind")]
