"""Formats of log lines: text for people, JSON for programs. Both keep a record on one line.

A template ends in ``key=%s`` pairs. In JSON each pair is a key of the object. Values may come from
nodes and ranks, so characters that can't be printed are written as escapes.
"""

import json
import logging
import math
import re
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

from typing_extensions import override

from profiles.records import on_one_line

Value = str | int | float | bool | None

_CONVERSION: Final = r"%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]"
_PAIR: Final = re.compile(rf"([a-z]\w*)=({_CONVERSION})")
_PAIRS: Final = re.compile(rf"(?P<sentence>.*?):? (?P<pairs>{_PAIR.pattern}(?: {_PAIR.pattern})*)")
_MAX_CHARS: Final = 4000
"""A longer value is cut: clients and nodes choose some of them."""


class MessageTemplate(NamedTuple):
    """A template's sentence, and its pairs of key and conversion."""

    sentence: str
    pairs: tuple[tuple[str, str], ...]

    @property
    def num_arguments(self) -> int:
        """Arguments that the sentence takes; the pairs take those that follow."""
        return len(re.findall(_CONVERSION, self.sentence.replace("%%", "")))


@lru_cache(maxsize=1024)
def split_template(template: str) -> MessageTemplate:
    """Return the sentence and the pairs of a template. A template may have no pairs."""
    match = _PAIRS.fullmatch(template)
    if match is None:
        return MessageTemplate(template, ())
    pairs = tuple((key, spec) for key, spec in _PAIR.findall(match["pairs"]))
    return MessageTemplate(match["sentence"], pairs)


def message_and_fields(record: logging.LogRecord) -> tuple[str, dict[str, Value]]:
    """Return a record's sentence and its pairs, with printable text."""
    template, arguments = split_template(str(record.msg)), record.args
    if not template.pairs or not isinstance(arguments, tuple):
        return _printable(record.getMessage()), {}
    num = template.num_arguments
    sentence = template.sentence % arguments[:num]
    values = map(_value, (spec for _, spec in template.pairs), arguments[num:])
    fields = dict(zip((key for key, _ in template.pairs), values, strict=True))
    return _printable(sentence), fields


def _value(conversion: str, argument: object) -> Value:
    if argument is None or isinstance(argument, bool):
        return argument
    if isinstance(argument, float):
        text = conversion % argument
        return float(text) if math.isfinite(argument) and conversion[-1] in "efg" else text
    if isinstance(argument, int) and conversion[-1] in "ds":
        return int(argument)
    return _printable(conversion % (argument,))


def _printable(text: str) -> str:
    cut = text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}..."
    return on_one_line(cut)


def _time(record: logging.LogRecord) -> str:
    written = datetime.fromtimestamp(record.created, UTC)
    return written.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _traceback(record: logging.LogRecord) -> Iterator[str]:
    if record.exc_info and record.exc_info[0] is not None:
        for part in traceback.format_exception(*record.exc_info):
            yield from map(on_one_line, part.splitlines())


class TextFormatter(logging.Formatter):
    """``TIME LEVEL LOGGER: sentence key=value ...``; a traceback follows in indented lines."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        sentence, fields = message_and_fields(record)
        pairs = "".join(f" {key}={_text(value)}" for key, value in fields.items())
        line = f"{_time(record)} {record.levelname} {record.name}: {sentence}{pairs}"
        return "\n    ".join([line, *_traceback(record)])


def log_to_stderr() -> None:
    """Log from ``INFO`` on as text: for agents, templates and ranks, whose stderr is a file."""
    handler = logging.StreamHandler()
    handler.setFormatter(TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _text(value: Value) -> str:
    text = str(value)
    if isinstance(value, str) and (not text or re.search(r'[\s"=]', text)):
        return json.dumps(text, ensure_ascii=False)
    return text


class JsonFormatter(logging.Formatter):
    """One JSON object: ``ts``, ``level``, ``logger``, ``message``, the pairs, and ``traceback``."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        sentence, fields = message_and_fields(record)
        line: dict[str, Value] = {
            "ts": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": sentence,
        }
        line = {**line, **{key: value for key, value in fields.items() if key not in line}}
        if lines := list(_traceback(record)):
            line["traceback"] = " | ".join(lines)
        return json.dumps(line, allow_nan=False)
