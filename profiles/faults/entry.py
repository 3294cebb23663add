"""Entries of the catalogue: one wording each, and its weight.

An entry holds the wording of one fault, or wording that makes other lines harmless. Its
*precedence* says which other entries it yields to.
"""

from functools import cached_property
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from profiles.faults.precedence import Precedence
from profiles.faults.status import TableStatus


class Entry(BaseModel):
    """One entry of the catalogue.

    Attributes:
        id: Its name; unique.
        status: The verdict's status if this entry decides.
        precedence: Its weight against other entries.
        patterns: Regular expressions. One that begins with ``^`` is anchored behind the prefixes
            of the line (time, host, rank). Any other is searched for in the whole line.
        unless: Regular expressions of lines that the entry ignores.
        is_case_sensitive: Whether upper and lower case differ.
        is_generic: Whether any other entry that names a fault in the same line replaces it.
        vetoes: Of a veto: the precedences that it takes out of its line; empty for all.
        relieves: Of a relief: the precedences that it takes back.
        direction: Of a relief: the side on which it takes lines back.
        reach: Of a relief: the number of lines it reaches.
        survived_by: What after the line shows that the program survived it. ``start``: the first
            progress of training. ``progress``: any progress. ``output``: any progress, and many
            further lines. Empty: nothing does.
        yields_to_earlier: Whether any fault before the line is the cause, whatever its precedence.
        run: What the line says about the run. What an end takes back, it takes back until the next
            run begins or is launched. Progress of a run that was launched after a fault says
            nothing about the fault; a run begins after its own start-up.
        source: Vendor document or public repository of the wording.
        response: The operator's first step; empty for the response of the status.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    status: TableStatus
    precedence: Precedence
    patterns: tuple[str, ...]
    unless: tuple[str, ...] = ()
    is_case_sensitive: bool = False
    is_generic: bool = False
    vetoes: tuple[Precedence, ...] = ()
    relieves: tuple[Precedence, ...] = ()
    direction: Literal["before", "after", "around"] = "before"
    reach: int = Field(default=0, ge=0)
    survived_by: Literal["", "start", "progress", "output"] = ""
    yields_to_earlier: bool = False
    run: Literal["", "launches", "begins", "ends"] = ""
    source: str = Field(min_length=1)
    response: str = ""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if (self.precedence is Precedence.RELIEF) != bool(self.relieves and self.reach):
            raise ValueError("relieves and reach belong to entries of precedence relief, and there")
        if self.status.is_fault != self.names_fault:
            raise ValueError(f"status {self.status} does not suit precedence {self.precedence}")
        return self

    @property
    def is_veto(self) -> bool:
        """Whether it only takes back other entries of the same line."""
        return self.precedence in {Precedence.VETO, Precedence.SOFT}

    @cached_property
    def names_fault(self) -> bool:
        """Whether a line can name a fault by it, alone or with others."""
        return self.precedence.is_ranked or self.precedence in _PARTS_OF_A_FAULT


_PARTS_OF_A_FAULT: Final = frozenset(
    {Precedence.LINK_EVENT, Precedence.PORT_STATE, Precedence.COUNTER}
)


class Combination(BaseModel):
    """Signs that have another meaning together.

    Attributes:
        id: Its name; unique among entries too.
        needs: Entry ids, alternatives joined by ``|``; a sign of each must be there.
        in_order: Whether they must come in this order.
        drops: Entry ids whose signs no longer count.
        status: Their status together; None if the combination only drops signs.
        precedence: The weight of the combined sign.
        source: The document that describes it.
        response: As for entries.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    needs: tuple[str, ...] = Field(min_length=2)
    in_order: bool = False
    drops: tuple[str, ...]
    status: TableStatus | None = None
    precedence: Precedence = Precedence.HARDWARE
    source: str
    response: str = ""
