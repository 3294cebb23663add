"""Log lines: one record is one line, whatever it holds."""

import ast
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.process_tools.log_format import JsonFormatter, TextFormatter, split_template

ROOT = Path(__file__).parents[4]
METHODS = {"debug", "info", "warning", "error", "exception", "log"}


def record(template: str, *arguments: object, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord("controller.fleet", level, "file.py", 1, template, arguments, None)


def as_json(made: logging.LogRecord) -> Any:  # noqa: ANN401 - a JSON object
    return json.loads(JsonFormatter().format(made))


def test_pairs_at_the_end_become_keys() -> None:
    line = as_json(
        record("contact with %s lost: node=%s port=%d wait_s=%.2f", "it", "n1", 22, 0.123)
    )
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "controller.fleet",
        "message": "contact with it lost",
        "node": "n1",
        "port": 22,
        "wait_s": 0.12,
    }


def test_text_quotes_values_with_spaces() -> None:
    made = record("lost: node=%s reason=%s note=%s", "n1", 'no "answer"', "")
    text = TextFormatter().format(made)
    assert text.endswith(r' INFO controller.fleet: lost node=n1 reason="no \"answer\"" note=""')
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO ", text)


def test_a_message_without_pairs_is_a_sentence() -> None:
    assert as_json(record("100 %% of %s", "n1"))["message"] == "100 % of n1"
    assert as_json(record("plain, a=b"))["message"] == "plain, a=b"


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_control_characters_are_written_as_escapes(formatter: logging.Formatter) -> None:
    evil = "n1\n2026-01-01T00:00:00.000Z ERROR forged\x1b[31m\x9b\u202e\u2028\x00\ud800"
    for made in (record("lost: node=%s", evil), record("lost %s", evil), record(evil)):
        text = formatter.format(made)
        assert text.isprintable()
        assert r"\n2026" in text.replace("\\\\", "\\")
        if isinstance(formatter, JsonFormatter):
            assert all(str(value).isprintable() for value in json.loads(text).values())


def test_long_values_are_cut() -> None:
    assert len(as_json(record("lost: node=%s", "x" * 10**6))["node"]) < 5000


def test_numbers_that_json_lacks_are_text() -> None:
    line = as_json(
        record("slow: loss=%.3f rate=%s gone=%s is_up=%s", float("nan"), float("inf"), None, True)
    )
    assert (line["loss"], line["rate"], line["gone"], line["is_up"]) == ("nan", "inf", None, True)


def test_a_traceback_stays_in_its_record() -> None:
    made = record("failed: node=%s", "n1", level=logging.ERROR)
    try:
        int("two\nlines")
    except ValueError:
        made.exc_info = sys.exc_info()
    line = as_json(made)
    assert line["level"] == "error"
    assert line["traceback"].startswith("Traceback (most recent call last):")
    first, *others = TextFormatter().format(made).split("\n")
    assert first.endswith("failed node=n1")
    assert others
    assert all(other.startswith("    ") for other in others)


def templates() -> Iterator[tuple[str, str]]:
    """Yield the place and text of each template."""
    for package in ("controller", "console", "nodeagent"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in METHODS
                    and isinstance(node.func.value, ast.Name)
                    and node.func.value.id == "_LOG"
                ):
                    for argument in node.args[:2]:
                        if isinstance(argument, ast.Constant):
                            yield f"{path.relative_to(ROOT)}:{node.lineno}", str(argument.value)


def test_every_template_ends_in_pairs_with_keys_of_their_own() -> None:
    found = list(templates())
    assert {Path(place).parts[1] for place, _ in found} >= {"api", "fleet", "server", "store"}
    for place, template in found:
        sentence, pairs = split_template(template)
        keys = [key for key, _ in pairs]
        assert keys, f"{place}: no identifiers in {template!r}"
        assert "=" not in sentence, f"{place}: {template!r}"
        assert len(keys) == len(set(keys)), f"{place}: {template!r}"
        assert not {"ts", "level", "logger", "message", "traceback"} & set(keys), place
