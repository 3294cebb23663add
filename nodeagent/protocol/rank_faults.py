"""Faults that a drill stages in one rank: a kind and numbers, never code or commands."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

AgentFault = Literal["kill", "freeze"]
"""Signals that the agent sends: SIGKILL, SIGSTOP."""

OwnFault = Literal[
    "raise",  # an exception; with ``status`` the exception of the real software
    "exit",  # leaves with exit code ``count``
    "segfault",  # reads address 0
    "write_full",  # writes to /dev/full
    "hang",  # never enters the vote of its iteration
    "slow",  # micro-batches take ``factor`` x their time, for ``count`` iterations
    "nan",  # one micro-batch's loss is NaN, and ``count`` times in all if it is run again
    "spike",  # the task's loss is ``factor`` x its value, for ``count`` iterations
]
"""A fault that a rank stages in itself, at its next micro-batch."""


class RankFault(BaseModel):
    """A fault to be staged in a rank.

    Attributes:
        kind: What happens.
        status: A status of ``profiles.drills.exception_texts`` that gives type and text; or empty.
        count: How often, how long, or which exit code; see the kinds.
        factor: How much slower or higher.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: AgentFault | OwnFault
    status: str = Field(default="", max_length=64)
    count: int = Field(default=1, ge=1, le=1000)
    factor: float = Field(default=1.0, ge=1.0, le=100.0)
