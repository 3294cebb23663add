"""Training numbers: losses that are not finite or leave their level, iterations that take too long.

Progress lines of different trainers differ in everything but the names of their numbers, so names are
looked for, not formats. Levels are medians over a window: one odd value moves nothing.
"""

import math
import re
from collections import deque
from statistics import median
from typing import Final, Literal

SeriesEvent = Literal["loss-not-finite", "loss-left-level", "iteration-overdue", "progress"]

_SPIKE_FACTOR: Final = 5.0
"""The taxonomy: loss or gradient norm at least 5 x its level, and staying there."""
_OVERDUE_FACTOR: Final = 3.0
"""arXiv 2401.00134, section 4: an iteration beyond 3 x the average has failed."""
_MIN_LEVEL_SAMPLES: Final = 2
_MIN_TIME_SAMPLES: Final = 3
_WINDOW: Final = 64

_NUMBER: Final = r"[-+]?(?:nan|inf(?:inity)?|\d+(?:\.\d*)?(?:e[-+]?\d+)?)\b"
_LOSS: Final = re.compile(
    r"(?<![\w/-])(?<!val )(?<!valid )(?<!eval )(?<!test )(?<!validation )(?<!aux )"
    r"(?:lm[ _]loss|train(?:ing)?[ _/]loss|loss)[\"']?(?:\s*[:=|]\s*|\s+|\()(?:tensor\()?"
    rf"({_NUMBER})",
    re.IGNORECASE,
)
_NORM: Final = re.compile(
    rf"(?<![\w/])(?:(?:global[ _])?grad(?:ient)?[ _-]?norm|gnorm)[\"']?(?:\s*[:=|]\s*|\s+)({_NUMBER})",
    re.IGNORECASE,
)
_TIME: Final = re.compile(
    r"elapsed time per iteration \(ms\):\s*(?P<ms>\d+(?:\.\d+)?)"
    r"|(?:\b(?:iter(?:ation)?[ _]time|step[ _]time|time(?:/iter| per iteration)?|took)\b[\"']?\s*[:=|]?\s*"
    r"|\|\s*)(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|sec|seconds|s/it|min)\b",
    re.IGNORECASE,
)
_STEP: Final = re.compile(
    r"\b(?:iteration|iter|step|global_step|epoch)\b[\"']?\W{0,3}\s*\d", re.IGNORECASE
)
_SKIPPED: Final = re.compile(r"skipp(?:ed|ing)(?!\s*iterations:\s*0)|overflow", re.IGNORECASE)
_EXPLAINED: Final = re.compile(
    r"checkpoint|sav(?:e|ing)|eval|valid|compil|warm-?up|profil", re.IGNORECASE
)
_UNIT_S: Final = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "s/it": 1.0, "min": 60.0}


class TrainingSeries:
    """Follows the numbers of one log. Lines of several ranks may be mixed: they train alike.

    The memory it takes does not grow with the log.
    """

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=_WINDOW)
        self._norms: deque[float] = deque(maxlen=_WINDOW)
        self._times_s: deque[float] = deque(maxlen=_WINDOW)
        self._losses_off = 0
        self._norms_off = 0
        self._norms_not_finite = 0

    def read(self, text: str) -> list[SeriesEvent]:
        """Return what the numbers of one line say; empty if it is no progress line."""
        loss, norm = _value(_LOSS, text), _value(_NORM, text)
        time_s = _time_s(text)
        if loss is None and norm is None and time_s is None:
            return []
        is_step = bool(_STEP.search(text)) or norm is not None
        if not is_step and loss is None:
            return []
        events: list[SeriesEvent] = []
        is_not_finite = loss is not None and not math.isfinite(loss)
        if norm is not None:
            self._norms_not_finite = 0 if math.isfinite(norm) else self._norms_not_finite + 1
        if (is_not_finite and not _SKIPPED.search(text)) or self._norms_not_finite >= 3:
            events.append("loss-not-finite")
        if self._has_left_level(loss, norm):
            events.append("loss-left-level")
        if self._is_overdue(time_s) and not _EXPLAINED.search(text):
            events.append("iteration-overdue")
        return events or ["progress"]

    def _has_left_level(self, loss: float | None, norm: float | None) -> bool:
        if loss is not None and math.isfinite(loss):
            self._losses_off = _follow(self._losses, loss, self._losses_off)
        if norm is not None and math.isfinite(norm):
            self._norms_off = _follow(self._norms, norm, self._norms_off)
        return self._losses_off >= 2 or self._norms_off >= 3

    def _is_overdue(self, time_s: float | None) -> bool:
        if time_s is None:
            return False
        times = self._times_s
        is_overdue = (
            len(times) >= _MIN_TIME_SAMPLES and time_s > _OVERDUE_FACTOR * median(times) > 0
        )
        if not is_overdue:
            times.append(time_s)
        return is_overdue


def _follow(values: deque[float], value: float, num_off: int) -> int:
    """Take ``value`` into the level, or return how many in a row lie off it."""
    if len(values) >= _MIN_LEVEL_SAMPLES and value >= _SPIKE_FACTOR * median(values) > 0:
        return num_off + 1
    values.append(value)
    return 0


def _value(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    return float(found[1]) if found else None


def _time_s(text: str) -> float | None:
    found = _TIME.search(text)
    if found is None:
        return None
    if found["ms"]:
        return float(found["ms"]) * 1e-3
    return float(found["value"]) * _UNIT_S[found["unit"].lower()]
