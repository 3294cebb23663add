"""Log lines of a test, as the JSON format would write them."""

import logging
from typing import NamedTuple

import pytest

from nodeagent.process_tools.log_format import Value, message_and_fields


class LogEntry(NamedTuple):
    """One line: its level, its sentence and its identifiers."""

    level: str
    message: str
    fields: dict[str, Value]


def log_entries(caplog: pytest.LogCaptureFixture, logger: str) -> list[LogEntry]:
    """Return the lines of ``logger`` and of the loggers below it."""
    return [
        _entry(record) for record in caplog.records if f"{record.name}.".startswith(f"{logger}.")
    ]


def _entry(record: logging.LogRecord) -> LogEntry:
    message, fields = message_and_fields(record)
    return LogEntry(record.levelname.lower(), message, fields)
