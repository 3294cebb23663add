"""JSON that is refused: the line says where, and is one line whatever the text holds."""

from pathlib import Path

import pytest

from profiles.records import RecordError, is_file, parse_json, user_path

ENDLESS = "9" * 5000
TEXT = """{"tasks": [
  {"name": "a, \\"b\\": [{", "throughput": {"8": 1}},
  {"name": "b", "throughput": {"8": -1.5e3, "9": [null, true],
    HERE}}
]}
"""


def refusal(text: str) -> str:
    with pytest.raises(RecordError) as caught:
        parse_json(text, "p.json")
    return str(caught.value)


@pytest.mark.parametrize(
    ("here", "words"),
    [
        ('"16": NaN', "line 4: tasks.1.throughput.16: NaN is no number: give a finite one"),
        ('"16": [0, -Infinity]', "line 4: tasks.1.throughput.16.1: -Infinity is no number: give"),
        ('"8": 2', "line 4: tasks.1.throughput: key '8' is given twice in one object"),
        ('"\\u0038": 2', "line 4: tasks.1.throughput: key '8' is given twice in one object"),
        (f'"16": {ENDLESS}', "line 4: tasks.1.throughput.16: a number of 5000 digits is too large"),
        (f'"16": -{ENDLESS}', "line 4: tasks.1.throughput.16: a number of 5000 digits is too"),
    ],
)
def test_what_the_parser_does_not_place_has_line_and_keys(here: str, words: str) -> None:
    assert refusal(TEXT.replace("HERE", here)).startswith(f"p.json: {words}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NaN", "NaN is no number"),
        ("[[], {}, Infinity]", "2: Infinity is no number"),
        ('{"a": {"a": 1}, "a": 2}\n', "key 'a' is given twice"),
        ('{"a": {"b": 1, "b": 1}}', "a: key 'b' is given twice"),
    ],
)
def test_a_text_of_one_line_needs_no_number_of_it(text: str, words: str) -> None:
    assert refusal(text).startswith(f"p.json: {words}")


def test_an_error_is_one_line_and_steers_no_terminal() -> None:
    error = RecordError("p\n.json: \x1b[31m\ud800 größer\\n")
    assert str(error) == "p\\n.json: \\x1b[31m\\ud800 größer\\n"


def test_a_path_that_leads_nowhere_is_no_error(tmp_path: Path) -> None:
    """Neither that of a user who is not there, nor one that the system refuses to look at."""
    assert user_path("~/a") == Path.home() / "a"
    assert user_path("~nobodyx/a") == Path("~nobodyx/a")
    assert user_path("a") == Path("a")
    (tmp_path / "file").touch()
    assert is_file(tmp_path / "file")
    for path in (tmp_path, tmp_path / "none", tmp_path / ("a" * 300), tmp_path / "file" / "a"):
        assert not is_file(path)
