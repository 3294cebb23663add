"""A sign: one line that matches an entry of the catalogue."""

from dataclasses import dataclass
from functools import cached_property

from profiles.faults.entry import Entry
from profiles.faults.lines import Moment, moment_of


@dataclass(eq=False)
class Sign:
    """One line that matches an entry.

    Attributes:
        entry: The entry that it matches.
        line: Its number, counted from 1.
        text: The line without colours, cut to a length that can be shown.
        device: Interface or port it is about; empty where none is named.
        value: State or count that was read; empty where the entry has none.
    """

    entry: Entry
    line: int
    text: str
    device: str = ""
    value: str = ""

    @cached_property
    def moment(self) -> Moment | None:
        """When it was written, as far as it says."""
        return moment_of(self.text)
