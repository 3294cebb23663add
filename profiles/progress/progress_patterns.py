"""Regular expressions of progress lines: those of known programs, and a task's own.

Groups have the names of ``GROUPS``. ``NUMBER`` in a file stands for any number, also NaN. A line
without an iteration has figures of the iteration that stands beside it.
"""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from pydantic import BaseModel, ConfigDict, TypeAdapter

GROUPS: Final = (
    "iteration", "num_iterations", "epoch", "loss", "grad_norm", "duration_s", "duration_ms",
)  # fmt: skip
"""What a group may be called. With ``epoch``, iterations are counted in their epoch."""

_NUMBER: Final = r"[-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|[nN]a[nN]|[iI]nf)"


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    pattern: str
    sample: str
    first: int = 1
    needs_figures: bool = False
    figures_follow: bool = False
    drawn_twice: bool = False


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    line: list[_Line]


@dataclass(frozen=True, slots=True)
class ProgressPattern:
    """One kind of line.

    Attributes:
        program: Whose line it is.
        regex: What it looks like.
        sample: A line of that kind; empty for a task's own.
        first: Number that the program gives to its first iteration.
        needs_figures: The line counts only right after one with figures.
        figures_follow: The iteration is reported with the line of figures that follows.
        drawn_twice: The line comes with the figures of the iteration before, then with its own.
    """

    program: str
    regex: re.Pattern[str]
    sample: str = ""
    first: int = 1
    needs_figures: bool = False
    figures_follow: bool = False
    drawn_twice: bool = False

    @property
    def has_iteration(self) -> bool:
        """Whether the line says which iteration it is of."""
        return "iteration" in self.regex.groupindex


def own_pattern(text: str) -> ProgressPattern:
    """Return a task's own pattern.

    Raises:
        ValueError: It is no regular expression, or lacks the iteration; the text says which.
    """
    try:
        regex = re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from error
    if unknown := sorted(regex.groupindex.keys() - {*GROUPS}):
        raise ValueError(f"group {unknown[0]!r} is unknown; known: {', '.join(GROUPS)}")
    if "iteration" not in regex.groupindex:
        raise ValueError(r"needs the group (?P<iteration>\d+)")
    return ProgressPattern("own", regex)


@cache
def known_patterns() -> tuple[ProgressPattern, ...]:
    """Return the patterns of the files beside this module."""
    found: list[ProgressPattern] = []
    folder = resources.files("profiles.progress")
    for path in sorted(folder.iterdir(), key=lambda each: each.name):
        if path.name.endswith(".toml"):
            content = TypeAdapter(_File).validate_python(tomllib.loads(path.read_text("utf-8")))
            found += [_of_line(line, path.name.removesuffix(".toml")) for line in content.line]
    return tuple(found)


def _of_line(line: _Line, program: str) -> ProgressPattern:
    return ProgressPattern(
        program,
        re.compile(line.pattern.replace("NUMBER", _NUMBER)),
        line.sample,
        line.first,
        line.needs_figures,
        line.figures_follow,
        line.drawn_twice,
    )
