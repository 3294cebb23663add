"""Training numbers: losses that are not finite or leave their level, iterations that take too long.

Progress lines of different trainers differ in everything but the names of their numbers, so names
are looked for, not formats. Levels are medians over a window: one odd value moves nothing.
"""

import math
import re
from collections import deque
from statistics import median
from typing import Final, Literal

SeriesEvent = Literal[
    "loss-not-finite", "loss-left-level", "iteration-overdue", "progress", "steps-counted"
]

SERIES_WORDS: Final = ("loss", "norm", "iter", "step", "epoch", "mllog")
"""One of these stands, in lower case, in every line that is read for its numbers."""
ODD_WORDS: Final = ("nan", "inf")
"""One of these stands, in lower case, in every line with a number that is not finite."""
_SPIKE_FACTOR: Final = 5.0
"""The taxonomy: loss or gradient norm at least 5 x its level, and staying there."""
_OVERDUE_FACTOR: Final = 3.0
"""arXiv 2401.00134, section 4: an iteration beyond 3 x the average has failed."""
_MIN_RISE: Final = 0.1
"""Losses that begin at next to nothing (reinforcement learning) multiply without a fault."""
_MIN_LEVEL_SAMPLES: Final = 2
_MIN_TIME_SAMPLES: Final = 3
_WINDOW: Final = 64
_LOSSES_OFF: Final = 2
_NORMS_OFF: Final = 3
"""How many in a row are no outliers any more. Gradient norms jump more."""

_VALUE: Final = re.compile(
    r"[\"']?(?:\s*[:=|]\s*|\s+|\()(?:tensor\()?([-+]?(?:nan|inf(?:inity)?|\d+(?:\.\d*)?(?:e[-+]?\d+)?))\b"
)
_BEFORE_LOSS: Final = re.compile(r"(?:^|[^\w/-]|\blm[ _]|\btrain(?:ing)?[ _/])$")
_TRAINING_LOSS: Final = re.compile(r"train(?:ing)?[ _/]$")
_OTHER_LOSS: Final = re.compile(r"\b(?:val|valid|validation|eval|test|aux) $")
_GRADIENT: Final = ("grad ", "grad_", "grad-", "grad", "gradient ", "gradient_", " g", "|g")
"""What stands before a ``norm`` that is the gradient's."""
_TIME_WORDS: Final = ("time", "took", "ms", " s ", "s/it", " s", "sec")
_TIME_NAME: Final = "elapsed time per iteration (ms):"
_TIME: Final = re.compile(
    r"(?:\b(?:iter(?:ation)?[ _]time|step[ _]time|time(?:/iter| per iteration)?|took)\b[\"']?\s*[:=|]?\s*"
    r"|\|\s*)(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|sec|seconds|s/it|min)\b"
)
_STEP: Final = re.compile(r"\b(?:iteration|iter|step|global_step|epoch)\b[\"']?\W{0,3}\s*\d")
_COUNTER: Final = re.compile(
    r"\b(?:iter(?:ation)?|(?:global[ _])?step|epoch)s?\b[\"']?\W{0,3}\d+\s*(?:/|of)\s*\d+\b(?![/:])"
    r"|\bepoch\b\W{0,3}\d+\W{1,8}\d+/\d+\b"
    r"|\b(?:epoch|train\w*|step|iter\w*)\b.{0,200}\b(?:it/s|s/it)\b"
)
"""A count of steps, with or without any other number of training."""
_MLLOG: Final = ":::mllog"
_MLLOG_PROGRESS: Final = re.compile(
    r'"key": "(?:run_start|block_|epoch_|eval_(?:start|stop|accuracy|loss)|train_loss|throughput'
    r"|tracked_stats|save_model|samples_count)"
)
"""MLPerf logging: keys that are written while a run trains."""
_NOT_A_NUMBER: Final = re.compile(r"([a-z][\w./-]*)[ :=|]{1,3}nan\b")
_NO_LOSS: Final = re.compile(
    r"loss|norm|val|eval|test|eta|time|mem|speed|throughput|samples|best|lr\b|rate\b|skip|nan"
)
"""Names of numbers that say nothing about training, or are read by their own rules."""
_ODD_IN_A_ROW: Final = 2
_LABEL: Final = re.compile(r"\s*(\d{1,5}):\s")
"""The process number that a launcher puts before each line."""
_MAX_LABELS: Final = 64
_OF_ONE_STEP: Final = re.compile(r"\b(?:iter(?:ation)?|step|global_step|batch|it)s?\b|/it\b")
"""Stands in lines whose time is that of an iteration. Epochs and evaluations take their own."""
_SKIPPED: Final = re.compile(r"skipp(?:ed|ing)(?!\s*iterations:\s*0)|overflow", re.IGNORECASE)
_SCALE_USED_UP: Final = re.compile(
    r"loss scale: 1\.0 \|.{0,80}number of skipped iterations:\s+[1-9]"
)
"""Iterations are skipped although the loss scale is as small as it gets: Megatron-LM's
training.py."""
_EXPLAINED: Final = re.compile(
    r"checkpoint|sav(?:e|ing)|eval|valid|compil|warm-?up|profil", re.IGNORECASE
)
_UNIT_S: Final = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "s/it": 1.0, "min": 60.0}


class _Level:
    """The usual value of a number: the median of the last ones that were usual themselves."""

    def __init__(self, *, min_rise: float = 0.0) -> None:
        self.min_rise = min_rise
        self._values: deque[float] = deque(maxlen=_WINDOW)
        self._median = 0.0
        self._num_since = 0

    def __len__(self) -> int:
        return len(self._values)

    def exceeds(self, value: float, factor: float, *, min_samples: int) -> bool:
        """Whether ``value`` is at least ``factor`` times the level, if there is one yet."""
        has_level = len(self._values) >= min_samples and self._median > 0
        return has_level and value >= max(factor * self._median, self._median + self.min_rise)

    def take(self, value: float) -> None:
        """Take a usual value in."""
        self._values.append(value)
        self._num_since += 1
        # A median moves slowly once there are many: it need not be exact at every line.
        if len(self._values) < _WINDOW or self._num_since >= _WINDOW // 4:
            self._median = median(self._values)
            self._num_since = 0


class TrainingSeries:
    """Follows the numbers of one log. Its memory does not grow with the log.

    Lines of several ranks may be mixed: they train alike. Only lines with a launcher's number are
    followed for each number alone, since one launcher may start different programs.
    """

    def __init__(self) -> None:
        self._by_label: dict[str, _Numbers] = {"": _Numbers()}
        self._is_suspicious: dict[str, bool] = {}

    @property
    def is_suspicious(self) -> bool:
        """Whether the last numbers were odd, so that none of the next may be missed."""
        return bool(self._is_suspicious)

    def read(self, text: str) -> list[SeriesEvent]:
        """Return what the numbers of one line say; empty if it is no progress line."""
        found = _LABEL.match(text)
        label = found[1] if found else ""
        numbers = self._by_label.get(label)
        if numbers is None:
            if len(self._by_label) >= _MAX_LABELS:
                numbers = self._by_label[""]
            else:
                numbers = self._by_label[label] = _Numbers()
        events = numbers.read(text)
        if numbers.is_suspicious:
            self._is_suspicious[label] = True
        else:
            self._is_suspicious.pop(label, None)
        return events


class _Numbers:
    """The numbers of one process, or of processes that train alike."""

    def __init__(self) -> None:
        self._losses = _Level(min_rise=_MIN_RISE)
        self._norms = _Level()
        self._times_s = _Level()
        self._losses_off = 0
        self._norms_off = 0
        self._norms_not_finite = 0
        self._last_finite = ""
        self._others_not_finite = 0

    @property
    def is_suspicious(self) -> bool:
        """Whether the last numbers were odd, so that none of the next may be missed."""
        return bool(
            self._losses_off or self._norms_off or self._norms_not_finite or self._others_not_finite
        )

    def read(self, text: str) -> list[SeriesEvent]:
        """Return what the numbers of one line say; empty if it is no progress line."""
        lowered = text.lower()
        if _SCALE_USED_UP.search(lowered):
            return ["loss-not-finite"]
        if _MLLOG in lowered:
            return ["steps-counted"] if _MLLOG_PROGRESS.search(lowered) else []
        is_lost = self._has_lost_a_number(lowered)
        loss, norm, time_s = _loss(lowered), _norm(lowered), _time_s(lowered)
        if time_s is not None and "epoch" in lowered and not _OF_ONE_STEP.search(lowered):
            time_s = None
        if loss is None and norm is None and (time_s is None or not _STEP.search(lowered)):
            if is_lost:
                return ["loss-not-finite"]
            return ["steps-counted"] if _COUNTER.search(lowered) else []
        events: list[SeriesEvent] = ["loss-not-finite"] if is_lost else []
        if norm is not None:
            self._norms_not_finite = 0 if math.isfinite(norm) else self._norms_not_finite + 1
        is_not_finite = loss is not None and not math.isfinite(loss)
        if (is_not_finite and not _SKIPPED.search(lowered)) or self._norms_not_finite >= 3:
            events = ["loss-not-finite"]
        if self._has_left_level(loss, norm):
            events.append("loss-left-level")
        if self._is_overdue(time_s) and not _EXPLAINED.search(lowered):
            events.append("iteration-overdue")
        return events or ["progress"]

    def _has_lost_a_number(self, lowered: str) -> bool:
        """Whether a number of any name has become NaN and stayed: losses have many names."""
        if "nan" not in lowered:
            self._last_finite = lowered
            self._others_not_finite = 0
            return False
        names = {name for name in _NOT_A_NUMBER.findall(lowered) if not _NO_LOSS.search(name)}
        before = self._last_finite
        if not any(
            re.search(rf"(?<![\w./-]){re.escape(n)}[ :=|]{{1,3}}[-+]?\d", before) for n in names
        ):
            return False
        self._others_not_finite += 1
        return self._others_not_finite >= _ODD_IN_A_ROW

    def _has_left_level(self, loss: float | None, norm: float | None) -> bool:
        if loss is not None and math.isfinite(loss):
            self._losses_off = _follow(self._losses, loss, self._losses_off)
        if norm is not None and math.isfinite(norm):
            self._norms_off = _follow(self._norms, norm, self._norms_off)
        return self._losses_off >= _LOSSES_OFF or self._norms_off >= _NORMS_OFF

    def _is_overdue(self, time_s: float | None) -> bool:
        if time_s is None:
            return False
        if self._times_s.exceeds(time_s, _OVERDUE_FACTOR, min_samples=_MIN_TIME_SAMPLES):
            return True
        self._times_s.take(time_s)
        return False


def _follow(level: _Level, value: float, num_off: int) -> int:
    """Take ``value`` into its level, or return how many in a row lie off it."""
    if level.exceeds(value, _SPIKE_FACTOR, min_samples=_MIN_LEVEL_SAMPLES):
        return num_off + 1
    level.take(value)
    return 0


def _loss(text: str) -> float | None:
    # Names are looked for with find: trying a pattern at every place of every line is what a log
    # of a hundred megabytes has no time for.
    loss = None
    at = text.find("loss")
    while at >= 0:
        before = text[max(at - 12, 0) : at]
        is_training = _BEFORE_LOSS.search(before) and not _OTHER_LOSS.search(before)
        # A bar may show NaN for a loss that it does not know, beside the loss by another name.
        if is_training or (loss is not None and _TRAINING_LOSS.search(before)):
            found = _VALUE.match(text, at + 4)
            if found:
                loss = float(found[1])
                if math.isfinite(loss):
                    return loss
        at = text.find("loss", at + 4)
    return loss


def _norm(text: str) -> float | None:
    at = text.find("norm")
    while at >= 0:
        before = text[max(at - 10, 0) : at]
        if before.endswith(_GRADIENT):
            found = _VALUE.match(text, at + 4)
            if found:
                return float(found[1])
        at = text.find("norm", at + 4)
    return None


def _time_s(text: str) -> float | None:
    at = text.find(_TIME_NAME)
    if at >= 0:
        found = _VALUE.match(text, at + len(_TIME_NAME) - 1)
        return float(found[1]) * 1e-3 if found else None
    if not any(word in text for word in _TIME_WORDS):
        return None
    found = _TIME.search(text)
    return float(found["value"]) * _UNIT_S[found["unit"]] if found else None
