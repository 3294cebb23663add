"""Every message of ``docs/operations/when-it-fails.md`` is one that some other test expects.

That test fails if the message is no longer produced; this one fails if no test expects it.
"""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "operations" / "when-it-fails.md"
MESSAGES = re.findall(r"^### `(.+)`$", PAGE.read_text(), re.MULTILINE)


def files_with(words: list[str]) -> list[str]:
    """Return the tests whose source has all of these words, each on one line."""
    return [
        path.name
        for path in TESTS.rglob("test_*.py")
        if path != Path(__file__) and all(word in path.read_text() for word in words)
    ]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_test_expects_the_message(message: str) -> None:
    words = [word.strip() for word in message.split("...")]
    assert min(map(len, words)) >= 5, "long enough to be found"
    assert files_with(words), message


def test_the_page_has_its_messages() -> None:
    assert len(MESSAGES) >= 30
    assert len(set(MESSAGES)) == len(MESSAGES)
    assert files_with(["no such message is here, nor will it be"]) == []
