"""Lines that look like steps of training although no pattern reads them.

They are recognised by a word such as step with a number that grows from line to line. The pattern
that would read them is made of the line itself, so that an operator can copy it.
"""

import re
from dataclasses import dataclass, field
from typing import Final

NUM_LINES: Final = 3
"""Lines with growing numbers until they count as steps."""

_STEP: Final = re.compile(
    r"(?i)\b(?P<word>(?:global|training|train)?[ _]?(?:steps?|iterations?|iters?|updates?|batch))"
    r"(?P<between>[ \t:=#\[(]{1,4})(?P<number>\d{1,9})\b"
)
_LOSS: Final = re.compile(r"(?i)(?P<name>\bloss)(?P<between>[ \t:='\"]{1,4})[-+]?\d")
_MAX_LINE_CHARS: Final = 200
_MAX_KINDS: Final = 64


@dataclass(frozen=True, slots=True)
class UnreadLine:
    """A line that looks like a step, and a pattern that reads it."""

    line: str
    pattern: str


@dataclass(slots=True)
class UnreadSteps:
    """Watches the lines of one log that no pattern has read."""

    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By the words before the number: the newest number, and how often it has grown."""

    def take(self, line: str) -> UnreadLine | None:
        """Look at a line; return it once lines like it have shown to be steps."""
        step = _STEP.search(line)
        if step is None:
            return None
        kind, number = step["word"] + step["between"], int(step["number"])
        newest, count = self._seen.get(kind, (-1, 0))
        count = count + 1 if number > newest else 1
        if len(self._seen) < _MAX_KINDS or kind in self._seen:
            self._seen[kind] = number, count
        if count < NUM_LINES:
            return None
        return UnreadLine(line.strip()[:_MAX_LINE_CHARS], _pattern(line, step))


def _pattern(line: str, step: re.Match[str]) -> str:
    text = rf"\b{_literal(step['word'])}{_literal(step['between'])}(?P<iteration>\d+)"
    loss = _LOSS.search(line, step.end())
    if loss is not None:
        between = _literal(loss["between"])
        text += rf".*?\b{loss['name']}{between}(?P<loss>[-+]?[\d.]+(?:e[-+]?\d+)?|nan|inf)"
    return text


def _literal(text: str) -> str:
    """Return a pattern for ``text`` with any space, which stands in one TOML line in ''."""
    spaced = re.sub(r"[ \t]+", " ", text)
    return re.escape(spaced).replace(r"\ ", r"\s+").replace("'", ".")
