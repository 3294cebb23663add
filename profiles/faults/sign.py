"""A sign: one line that matches an entry of the catalogue."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from profiles.faults.entry import Entry
from profiles.faults.lines import Moment, moment_of

MAX_TEXT: Final = 400
"""Longest text of a sign."""


@dataclass(eq=False)
class Sign:
    """One line that matches an entry.

    Attributes:
        entry: The entry that it matches.
        line: Its number, counted from 1.
        text: The line without colours, cut to a length that can be shown.
        device: Interface or port it is about; empty where none is named.
        value: State or count that was read; empty where the entry has none.
        raised: Of a traceback's header the line that names the exception, its number and its text;
            None until it is known, and in any other line.
    """

    entry: Entry
    line: int
    text: str
    device: str = ""
    value: str = ""
    raised: tuple[int, str] | None = None

    @property
    def shown(self) -> tuple[int, str]:
        """Number and text of the line that an operator should see."""
        return self.raised or (self.line, self.text)

    @cached_property
    def moment(self) -> Moment | None:
        """When it was written, as far as it says."""
        return moment_of(self.text)
