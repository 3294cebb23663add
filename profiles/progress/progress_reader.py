"""Reads the progress of one process, of any program, from the lines of its log.

Lines of Megatron-LM (``profiles.iteration_line``) come first, then those of ``known_patterns``. The
first program whose lines are found is the log's: two libraries that count the same steps would
count them twice. Only Megatron-LM's lines take its place, since they say the most. A task with a
pattern of its own is read with that alone.

Lines that look like steps of training although no pattern reads them are shown to the operator.
They are recognised by a word such as step with a number that grows from line to line. The pattern
that would read them is made of the line itself, so that an operator can copy it.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Final

from profiles.iteration_line import IterationLine, parse_iteration_line
from profiles.progress.progress_patterns import ProgressPattern, known_patterns, own_pattern

_MAX_LINE_CHARS: Final = 8_192
_CONTROLS: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MEGATRON: Final = "megatron"
_MOST_LINES: Final = 50
"""Most lines whose epochs differ by more than rounding. HF's Trainer prints four digits."""
Figures = dict[str, float]
_COUNTS: Final = frozenset({"iteration", "num_iterations", "epoch"})
_MOST: Final = 10**12
"""No program counts so far: a larger number is something else, and may have a thousand digits."""

NUM_LINES: Final = 3
"""Lines with growing numbers until they count as steps."""

_STEP: Final = re.compile(
    r"(?i)\b(?P<word>(?:global|training|train)?[ _]?(?:steps?|iterations?|iters?|updates?|batch))"
    r"(?P<between>[ \t:=#\[(]{1,4})(?P<number>\d{1,9})\b"
)
_LOSS: Final = re.compile(r"(?i)(?P<name>\bloss)(?P<between>[ \t:='\"]{1,4})[-+]?\d")
_MAX_SHOWN_CHARS: Final = 200
_MAX_KINDS: Final = 64


class ProgressReader:
    """What one log says about iterations.

    Attributes:
        unread: Lines that look like steps while nothing was read; set once.
    """

    def __init__(self, own: str = "") -> None:
        """Take a task's own pattern, if it has one. Raises ``ValueError`` as ``own_pattern``."""
        self.unread: UnreadLine | None = None
        self._steps = _UnreadSteps()
        self._is_own = bool(own)
        self._patterns = (own_pattern(own),) if own else known_patterns()
        self._program = ""
        self._held: IterationLine | None = None
        self._figures: Figures = {}
        self._newest: int | None = None
        self._counter = _FigureCounter()
        self._epochs = _EpochLengths()

    def take(self, line: str) -> IterationLine | None:
        """Take the next line of the log; return the iteration that it completes, if any."""
        line = _CONTROLS.sub("", line[:_MAX_LINE_CHARS])
        if not self._is_own and (found := parse_iteration_line(line)) is not None:
            self._program = _MEGATRON
            return found
        if self._program == _MEGATRON:
            return None
        for pattern in self._patterns:
            if self._program not in {"", pattern.program}:
                continue
            if pattern.needs_figures and not self._figures:
                continue
            if (match := pattern.regex.search(line)) is not None:
                return self._take_match(pattern, match)
        if not self._program and self.unread is None:
            self.unread = self._steps.take(line)
        return None

    def _take_match(self, pattern: ProgressPattern, match: re.Match[str]) -> IterationLine | None:
        figures = _figures_of(match)
        if not pattern.has_iteration:
            return self._take_figures(pattern.program, figures)
        iteration = self._iteration_of(pattern, figures)
        if iteration is None or not 1 <= iteration < _MOST or iteration == self._newest:
            return None
        self._program = pattern.program
        if pattern.drawn_twice:
            return self._take_drawing(_line(iteration, figures))
        found: IterationLine | None = _line(iteration, {**self._figures, **figures})
        self._figures, self._counter = {}, _FigureCounter()
        if pattern.figures_follow:
            found, self._held = self._held, found
        return self._told(found)

    def _take_drawing(self, drawn: IterationLine) -> IterationLine | None:
        """Take a drawing of a bar; return the iteration whose figures are complete by it."""
        held, self._held = self._held, drawn
        if held is not None and held.iteration == drawn.iteration:
            held, self._held = drawn, None
        return self._told(held)

    def _take_figures(self, program: str, figures: Figures) -> IterationLine | None:
        if self._held is not None:
            found, self._held = _line(self._held.iteration, figures), None
            return self._told(found)
        if any(each.figures_follow for each in self._patterns if each.program == program):
            return None
        if not self._figures:
            self._figures = figures
            self._counter.take(figures)
            return None
        # Figures again, without a line that has the number: there is none to come.
        self._program = program
        self._figures = figures
        return self._told(_line(self._counter.take(figures), figures))

    def _iteration_of(self, pattern: ProgressPattern, figures: Figures) -> int | None:
        number = figures.get("iteration")
        if number is None:
            return None
        iteration = int(number) + 1 - pattern.first
        if "epoch" in figures and {"epoch", "num_iterations"} <= pattern.regex.groupindex.keys():
            iteration += self._epochs.num_before(figures, iteration)
        return iteration

    def _told(self, found: IterationLine | None) -> IterationLine | None:
        if found is not None:
            self._newest = found.iteration
        return found


class _FigureCounter:
    """Numbers lines of figures, by their epoch where they have one.

    So a program that continues from its checkpoint continues the count. An epoch has few digits:
    late in a run the difference of two lines is mostly rounding, and says nothing.
    """

    def __init__(self) -> None:
        self._epoch: float | None = None
        self._per_line = 0.0
        self._number = 0

    def take(self, figures: Figures) -> int:
        """Return the number of the next line."""
        epoch = figures.get("epoch")
        if epoch is not None and self._epoch is not None and not self._per_line:
            difference = epoch - self._epoch
            self._per_line = difference if difference * _MOST_LINES > epoch else 0.0
        self._epoch = epoch
        self._number += 1
        if epoch is not None and self._per_line and (lines := epoch / self._per_line) < _MOST:
            self._number = max(self._number, round(lines))
        return self._number


class _EpochLengths:
    """Counts the iterations of earlier epochs, for lines that count in their epoch."""

    def __init__(self) -> None:
        self._epoch = 0
        self._num_before = 0
        self._newest = 0

    def num_before(self, figures: Figures, iteration: int) -> int:
        """Return the iterations before the epoch of a line. A line may lack the epoch's length."""
        epoch = int(figures["epoch"])
        if "num_iterations" in figures:
            return epoch * int(figures["num_iterations"])
        if epoch > self._epoch:
            self._num_before += self._newest
        self._epoch, self._newest = epoch, iteration
        return self._num_before


def _figures_of(match: re.Match[str]) -> Figures:
    figures: Figures = {}
    for name, text in match.groupdict().items():
        if text is not None:
            try:
                figure = float(text)
            except ValueError:  # digits and points, but no number
                continue
            if name not in _COUNTS or 0 <= figure < _MOST:
                figures[name] = figure
    return figures


def _line(iteration: int, figures: Figures) -> IterationLine:
    duration_s = figures.get("duration_s")
    if duration_s is None and "duration_ms" in figures:
        duration_s = figures["duration_ms"] * 1e-3
    is_usable = duration_s is not None and math.isfinite(duration_s) and duration_s >= 0
    return IterationLine(
        iteration=iteration,
        duration_s=duration_s if is_usable else None,
        loss=figures.get("loss"),
        grad_norm=figures.get("grad_norm"),
    )


@dataclass(frozen=True, slots=True)
class UnreadLine:
    """A line that looks like a step, and a pattern that reads it."""

    line: str
    pattern: str


@dataclass(slots=True)
class _UnreadSteps:
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
        return UnreadLine(line.strip()[:_MAX_SHOWN_CHARS], _pattern(line, step))


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
