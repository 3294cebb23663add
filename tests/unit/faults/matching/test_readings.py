"""Remembered readings equal a new reading of the same lines."""

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from profiles.faults.catalogue import default_catalogue
from profiles.faults.line_matching import Matcher
from profiles.faults.sign import Sign

_SPECIMENS: Final = Path(__file__).parents[1] / "specimens.jsonl"
_ERRORS: Final = "HBM uncorrectable errors: {}"


def _lines_with_other_digits(source: random.Random) -> list[bytes]:
    """Return every line of the specimens, some digits changed, twice over."""
    specimens = map(json.loads, _SPECIMENS.read_text().splitlines())
    texts = [line for specimen in specimens for line in specimen["text"].split("\n")]
    changed = ["".join(_other(letter, source) for letter in text) for text in texts]
    return [line.encode() for line in texts + changed]


def _other(letter: str, source: random.Random) -> str:
    return source.choice("0123456789") if letter in "0123456789" else letter


def _said(signs: Iterable[Sign]) -> list[tuple[str, str, str, str]]:
    return [(sign.entry.id, sign.text, sign.device, sign.value) for sign in signs]


@pytest.mark.parametrize(
    "seed",
    [0, pytest.param(1, marks=pytest.mark.thorough), pytest.param(2, marks=pytest.mark.thorough)],
)
def test_a_line_says_the_same_whatever_lines_like_it_were_read_before(seed: int) -> None:
    catalogue = default_catalogue()
    lines = _lines_with_other_digits(random.Random(seed))
    matcher = Matcher(catalogue)
    numbers = {"progress", "loss-not-finite", "loss-left-level", "iteration-overdue"}
    for line in lines:
        remembering = [s for s in matcher.read(1, line) if s.entry.id not in numbers]
        afresh = [s for s in Matcher(catalogue).read(1, line) if s.entry.id not in numbers]
        assert _said(remembering) == _said(afresh)


def test_a_count_of_none_is_no_fault_though_lines_with_counts_were() -> None:
    matcher = Matcher(default_catalogue())
    assert matcher.read(1, _ERRORS.format(3).encode())
    assert not matcher.read(2, _ERRORS.format(0).encode())
    assert matcher.read(3, _ERRORS.format(5).encode())


def test_a_device_is_read_from_the_line_it_stands_in() -> None:
    matcher = Matcher(default_catalogue())
    text = "[  8{}.5] mlx5_core 0000:1{}:00.0 eth{}: Link down"
    devices = [
        sign.device
        for number in (2, 3)
        for sign in matcher.read(number, text.format(number, number, number).encode())
    ]
    assert devices == ["eth2", "eth3"]
