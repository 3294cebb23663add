"""What the end of a rank's log says about the end of its process, for operators.

The classifier names the line that explains the end. Without one, the last lines are quoted. Words
of a rank are never trusted: they come as one printable line of limited length.
"""

import re
from dataclasses import dataclass
from typing import Final

from profiles.faults.catalogue import Catalogue
from profiles.faults.excerpt import classify_excerpt
from profiles.faults.status import Status
from profiles.faults.tracebacks import HEADER

MAX_CHARS: Final = 240
"""Longest quotation from a log."""

_MAX_PLACE_CHARS: Final = 100
_NUM_LAST_LINES: Final = 2
_ESCAPE_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?"
)
_PREFIX: Final = re.compile(r"^\[[^\]\n]{1,40}\]:? ?")
"""What launchers put before each line, for instance ``[rank0]:``."""
_FRAME: Final = re.compile(r'(?:^|\s)File "([^"\n]{1,1000})", line (\d{1,9})')
_LIBRARY: Final = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<")


@dataclass(frozen=True, slots=True)
class LastWords:
    """The end of a log.

    Attributes:
        line: The line that explains the end; empty if the log has none.
        place: File and line of the program that raised; empty if no traceback shows them.
        status: What the classifier makes of the log; ``none`` if it finds no fault.
        end: The last lines, joined; empty for an empty log.
        number: Number of ``line`` in what was read, from 1; 0 if there is no such line.
    """

    line: str
    place: str
    status: Status
    end: str
    number: int = 0

    @property
    def sentence(self) -> str:
        """What follows ``rank 0 exited with 1`` in a reason; empty for an empty log."""
        return self.sentence_from(0)

    def sentence_from(self, first_line: int) -> str:
        """Return the sentence with the line's number in the log, if the tail's one is known."""
        if self.line:
            number = first_line + self.number - 1 if first_line and self.number else 0
            places = [self.place, f"line {number} of its log" if number else ""]
            shown = ", ".join(filter(None, places))
            return f": {self.line}" + (f" ({shown})" if shown else "")
        return f"; its log ends: {self.end}" if self.end else "; its log is empty"


def read_last_words(tail: str, catalogue: Catalogue | None = None) -> LastWords:
    """Return what the end of a log says."""
    verdict = classify_excerpt(tail, catalogue=catalogue)
    lines = tail.split("\n")
    line, place, number = "", "", -1
    if verdict.status.is_fault:
        number = verdict.line - 1
        line = verdict.evidence
        place = _place_before(lines, number)
    filled = [text for each in lines if (text := plain(each))]
    end = plain(" / ".join(filled[-_NUM_LAST_LINES:]))
    return LastWords(plain(_PREFIX.sub("", line)), place, verdict.status, end, number + 1)


def plain(text: str, limit: int = MAX_CHARS) -> str:
    """Return ``text`` as one printable line of at most ``limit`` characters, its beginning."""
    shown = _ESCAPE_SEQUENCE.sub("", text[: 8 * limit])
    shown = " ".join("".join(each if each.isprintable() else " " for each in shown).split())
    return shown if len(shown) <= limit else f"{shown[: limit - 3]}..."


def _place_before(lines: list[str], number: int) -> str:
    """Return where the program raised: the innermost frame that is in no library."""
    begin = next((n for n in range(number, -1, -1) if HEADER in lines[n]), number)
    frames = [match for each in lines[begin : number + 1] if (match := _FRAME.search(each))]
    own = [frame for frame in frames if not _LIBRARY.search(frame[1])] or frames
    if not own:
        return ""
    path = plain(own[-1][1], limit=1000)
    shown = path if len(path) <= _MAX_PLACE_CHARS else f"...{path[-_MAX_PLACE_CHARS:]}"
    return f"{shown}:{own[-1][2]}"
