"""Statuses of faults: a name, and the facts of its row in ``data/statuses.toml``.

A status is a string, so that it is compared, printed and sent as its name. Its facts travel with
it: rules ask ``status.facts.names_device`` and keep no list of names. Only the reader of the table
(``status_table``) makes statuses.

The names are those of table 1 of the paper (arXiv 2401.00134), and three extensions.
"""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    StrictBool,
    ValidationInfo,
    model_validator,
)

from profiles.faults.precedence import Precedence


class Severity(StrEnum):
    """How a fault is handled: SEV1 isolates the node, SEV2 restarts, SEV3 tries again."""

    SEV1 = "SEV1"
    SEV2 = "SEV2"
    SEV3 = "SEV3"
    NONE = "none"


DetectionMethod = Literal[
    "node health monitoring",
    "process supervision",
    "exception propagation",
    "online statistical monitoring",
]
"""How a fault is detected: the four methods of the paper."""

Action = Literal["none", "reattempt", "restart", "reconfigure"]
"""What cures a fault, from the cheapest. ``none``: an operator decides, or nothing is wrong."""

MeasuredSign = Literal[
    "gpu_lost",  # the driver does not know the GPU any more
    "gpu_ecc",  # new uncorrectable memory errors
    "gpu_row_remap",  # a row remap is pending or has failed
    "gpu_nvlink",  # a link that was active is not
    "gpu_link_errors",  # replays and recoveries of links: data that had to be sent again
    "gpu_hot",  # at or above the temperature at which it slows down
    "gpu_throttled",  # the clock is held down by temperature or power
    "disk_full",
    "memory_pressure",
    "no_traffic",  # a link that carried training traffic carries none
]
"""Measurements of a node's probes that can name a fault by themselves."""


class StatusFacts(BaseModel):
    """One row of the table of statuses.

    Attributes:
        severity: How a fault of this status is handled.
        meaning: In words an operator reads.
        response: The operator's first step, unless the entry that decided has its own.
        names_device: Whether the status names a broken device. It then outweighs the words of
            programs, and isolates the node.
        is_network: Whether the status is about a connection. The peers of a dead rank report the
            same words, so a fault of this status is counted per node before it isolates the node.
        may_be_echo: Whether a failed collective may report this status because of another fault.
        is_of_one_gpu: Whether the status is an early sign of a failing GPU. Repeats on one GPU
            isolate that GPU alone.
        may_be_of_program: Whether the program itself may be at fault wherever it runs: the status
            names no device, disk or network.
        method: The detection method, whatever evidence reports it. None: the evidence decides.
        in_rank_counts_as: The status that counts when a rank's exception names this one.
            None: this status.
        xid_precedence: Precedence of the Xid codes that stand for this status.
        measured_as: Measurements of a node's probes that mean this status.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    severity: Severity
    meaning: str = Field(min_length=1)
    response: str = Field(min_length=1)
    names_device: StrictBool
    is_network: StrictBool
    may_be_echo: StrictBool
    is_of_one_gpu: StrictBool
    may_be_of_program: StrictBool = False
    method: DetectionMethod | None = None
    in_rank_counts_as: str | None = None
    xid_precedence: Precedence = Precedence.HARDWARE
    measured_as: tuple[MeasuredSign, ...] = ()

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.names_device and (self.severity is not Severity.SEV1 or self.may_be_echo):
            raise ValueError("names_device needs severity SEV1 and may_be_echo = false")
        if self.is_network and not self.may_be_echo:
            raise ValueError("is_network needs may_be_echo = true")
        if self.may_be_of_program and (self.names_device or self.is_network or self.is_of_one_gpu):
            raise ValueError("may_be_of_program contradicts a device or a network")
        if self.is_of_one_gpu and self.severity is not Severity.SEV2:
            raise ValueError("is_of_one_gpu needs severity SEV2")
        return self


class Status(str):
    """The name of a status, with its facts. Equal to every string of the same letters."""

    __slots__ = ("facts",)

    facts: StatusFacts

    def __new__(cls, name: str, facts: StatusFacts) -> Self:
        """Return the status ``name``."""
        status = super().__new__(cls, name)
        status.facts = facts
        return status

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Return the status itself: it never changes."""
        return self

    @property
    def severity(self) -> Severity:
        """How a fault of this status is handled."""
        return self.facts.severity

    @property
    def is_fault(self) -> bool:
        """Whether there is anything to act on."""
        return self.facts.severity is not Severity.NONE


def _from_table(value: object, info: ValidationInfo) -> object:
    """Look a name up in the table that the reader of a data file passes as context."""
    if isinstance(value, Status) or not isinstance(value, str) or info.context is None:
        return value
    return info.context(value)


TableStatus = Annotated[InstanceOf[Status], BeforeValidator(_from_table)]
"""A status in a data file: its name there, and the ``Status`` of the table once it is read."""
