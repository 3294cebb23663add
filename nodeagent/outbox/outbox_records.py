"""What changes an outbox: its records, and the marks that are stored in them.

A mark is a number that only grows, stored in the same record as the report that it guards. Records
are lines of the outbox's file; what they do, ``outbox`` says.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from nodeagent.protocol.messages import Report
from nodeagent.protocol.orders import HaltOrder


class MarkScope(StrEnum):
    """What a mark is about. ``name`` is a process, a rank or a task.

    A process is named ``task.generation.rank.pid`` after its first rank. It keeps that name, and so
    its marks, when it becomes another rank.
    """

    INTAKE = "intake"
    """process -> newest sequence number stored from it"""
    START = "start"
    """rank (``task.generation.rank``) -> 1 once it has a process, or was denied one, in this run"""
    EXIT = "exit"
    """process -> 1 once its exit was reported"""
    DONE = "done"
    """process -> 1 once its end was reported, where the agent reports it for the rank"""
    LOG = "log"
    """process -> bytes of its log whose iterations were reported"""
    FOREIGN = "foreign"
    """process -> 1 if it was started for an earlier run of the controller"""
    FENCE = "fence"
    """task -> newest generation that was asked to start"""
    STOP = "stop"
    """task -> newest generation that was asked to stop"""
    GRACEFUL_STOP = "graceful_stop"
    """task -> newest generation that was asked to stop at an iteration boundary"""


class Mark(BaseModel):
    """A number that only grows."""

    model_config = ConfigDict(frozen=True)

    scope: MarkScope
    name: str
    value: int = 1


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class OutboxHead(_Record):
    """First record of a compacted file: everything but the halts and the reports."""

    kind: Literal["head"] = "head"
    run_id: str | None
    term: int
    next_seq: int
    marks: list[Mark]


class Stored(_Record):
    """A report, and the mark that keeps it from being stored twice."""

    kind: Literal["stored"] = "stored"
    report: Report
    mark: Mark | None = None


class Marked(_Record):
    """A mark without a report."""

    kind: Literal["marked"] = "marked"
    mark: Mark


class StoredHalt(_Record):
    """The task's generation shall park: all that was asked of it so far, taken together."""

    kind: Literal["halted"] = "halted"
    halt: HaltOrder


class Acknowledged(_Record):
    """The controller has everything up to ``seq``.

    Numbers continue after ``seq``, also if this node has lost its file. The controller would take
    lower numbers for repetitions.
    """

    kind: Literal["acknowledged"] = "acknowledged"
    seq: int


class Attached(_Record):
    """The controller of ``run_id`` took over. A new run clears the reports and its marks."""

    kind: Literal["attached"] = "attached"
    run_id: str
    term: int
    foreign: list[str] = []


OutboxRecord = Annotated[
    OutboxHead | Stored | Marked | StoredHalt | Acknowledged | Attached, Field(discriminator="kind")
]
