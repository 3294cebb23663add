"""The line that Megatron-LM prints after an iteration, or after every ``--log-interval`` of them.

     [2024-05-01 12:00:00] iteration       10/     500 | consumed samples:          160 |
    elapsed time per iteration (ms): 812.3 | learning rate: 1.5E-04 | global batch size:    16 |
    lm loss: 1.07E+01 | loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   0 |

Versions differ in the fields, in their order, and in whether a date stands before and a colon after
the name; launchers put the rank before it. The fields used here are the iteration, its time, loss
and norm of the gradient; any of them but the first may be missing. Where several iterations share a
line, time and loss are their means.
"""

import math
import re
from dataclasses import dataclass
from typing import Final

_HEAD: Final = re.compile(
    r"(?:^|[\s\]:>])iteration\s+(\d{1,12})\s*/\s*\d{1,12}\s*\|(.*)", re.DOTALL
)
_FIELD: Final = re.compile(
    r"\s*(?P<name>[A-Za-z_][^|:]*?)\s*(?::|\s)\s*(?P<value>[-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|nan|inf))\s*",
    re.IGNORECASE,
)
_SECONDS: Final = {"elapsed time per iteration (ms)": 1e-3, "elapsed time per iteration (s)": 1.0}
_MAX_LINE_CHARS: Final = 8_192


@dataclass(frozen=True, slots=True)
class IterationLine:
    """What one line says; a field that it does not have is None.

    Attributes:
        iteration: The newest iteration that is done, counted from 1.
        duration_s: Mean seconds of an iteration since the line before.
        loss: ``lm loss``, or the first other loss where there is none; may be infinite or NaN.
        grad_norm: L2 norm of the gradient; may be infinite or NaN.
    """

    iteration: int
    duration_s: float | None = None
    loss: float | None = None
    grad_norm: float | None = None


def parse_iteration_line(line: str) -> IterationLine | None:
    """Return what ``line`` says about an iteration, or None if it is no such line."""
    head = _HEAD.search(line[:_MAX_LINE_CHARS])
    if head is None:
        return None
    iteration, rest = head.groups()
    value_by_name = _fields(rest)
    if not value_by_name:
        return None  # a progress bar, or another program's words
    return IterationLine(
        iteration=int(iteration),
        duration_s=_duration_s(value_by_name),
        loss=_loss(value_by_name),
        grad_norm=value_by_name.get("grad norm"),
    )


def _fields(text: str) -> dict[str, float]:
    value_by_name: dict[str, float] = {}
    for part in text.split("|"):
        field = _FIELD.fullmatch(part)
        if field is not None:
            try:
                value = float(field["value"])
            except ValueError:  # digits and points, but no number
                continue
            value_by_name.setdefault(field["name"].strip().lower(), value)
    return value_by_name


def _duration_s(value_by_name: dict[str, float]) -> float | None:
    for name, seconds in _SECONDS.items():
        value = value_by_name.get(name)
        if value is not None and math.isfinite(value) and value >= 0:
            return value * seconds
    return None


def _loss(value_by_name: dict[str, float]) -> float | None:
    others = (value for name, value in value_by_name.items() if name.endswith("loss"))
    return value_by_name.get("lm loss", next(others, None))
