"""What a Python traceback ends with: the line that names the exception.

Its header is the line that the catalogue finds. An operator wants the exception, which stands below
the frames, behind the same prefix. The lines of other processes may stand between them.
"""

import re
from collections.abc import Sequence
from typing import Final

from profiles.faults.lines import moment_of, without_colours
from profiles.faults.sign import MAX_TEXT, Sign

HEADER: Final = "Traceback (most recent call last)"
"""In the first line of a traceback."""
_MAX_LINES: Final = 400
"""Lines below a header that are read. Python itself leaves out frames that repeat."""
_MAX_LINE_BYTES: Final = 8192
"""Longer lines name no exception."""
_EXCEPTION: Final = re.compile(r"[^\W\d][\w.]*(?::\s|$)")
_DIGIT: Final = re.compile(r"\d")


class OpenTraceback:
    """A traceback whose exception has not come yet."""

    def __init__(self, header: Sign) -> None:
        """Begin below ``header``, which ``begins_traceback``."""
        self._header = header
        self._prefix = header.text[: header.text.index(HEADER)]
        self._is_timed = moment_of(self._prefix) is not None

    def read(self, first: int, lines: Sequence[bytes]) -> bool:
        """Read those of ``lines``, numbered from ``first``, that stand below the header.

        The header's sign then has the line that names the exception as what was raised.

        Returns:
            Whether lines are wanted that follow these.
        """
        begin = self._header.line + 1
        wanted = lines[max(begin - first, 0) : max(begin + _MAX_LINES - first, 0)]
        for number, line in enumerate(wanted, start=max(begin, first)):
            if len(line) > _MAX_LINE_BYTES:
                continue
            text = without_colours(line.decode("utf-8", "replace")).rstrip()
            if _EXCEPTION.match(self._behind_prefix(text)):
                self._header.raised = (number, text[:MAX_TEXT])
                return False
        return first + len(lines) < begin + _MAX_LINES

    def _behind_prefix(self, text: str) -> str:
        """Return what stands behind the header's prefix; nothing in a line of another process."""
        begin, rest = text[: len(self._prefix)], text[len(self._prefix) :]
        if begin == self._prefix:
            return rest
        if not self._is_timed:
            return ""
        is_alike = _DIGIT.sub("0", begin) == _DIGIT.sub("0", self._prefix)
        return rest if is_alike else text


def begins_traceback(sign: Sign) -> bool:
    """Whether a sign is the header of a traceback, whose exception nothing else may name."""
    return sign.entry.is_generic and HEADER in sign.text
