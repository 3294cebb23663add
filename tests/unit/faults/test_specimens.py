"""Labelled texts: bars for the aggregate, and specimens that must never be missed.

``specimens.jsonl`` holds texts that were written before the rules were run on them; ``batch``
counts how often the rules were then improved. So these bars hold the reached level. The more
telling score at first sight is in ``docs/classify.md``.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from controller.classify.explain_catalogue import CHANNELS
from profiles.faults.excerpt import classify_excerpt
from profiles.faults.status import Severity, Status
from profiles.faults.status_table import default_statuses

_FILE: Final = Path(__file__).with_name("specimens.jsonl")
_MIN_SEVERITY_SHARE: Final = 0.95
_MIN_STATUS_SHARE: Final = 0.90
_MAX_FALSE_ALARMS: Final = 0.03


@cache
def _specimens() -> list[dict[str, Any]]:
    return [json.loads(line) for line in _FILE.read_text().splitlines()]


def _status_of(specimen: dict[str, Any]) -> Status:
    return classify_excerpt(specimen["text"]).status


def test_severities_are_right_in_95_of_100_texts() -> None:
    statuses = default_statuses()
    wrong = [
        specimen["id"]
        for specimen in _specimens()
        if _status_of(specimen).severity is not statuses[specimen["status"]].severity
    ]
    assert len(wrong) <= (1 - _MIN_SEVERITY_SHARE) * len(_specimens()), wrong


def test_statuses_are_right_in_90_of_100_texts() -> None:
    wrong = [
        specimen["id"] for specimen in _specimens() if _status_of(specimen) != specimen["status"]
    ]
    assert len(wrong) <= (1 - _MIN_STATUS_SHARE) * len(_specimens()), wrong


def test_three_of_100_harmless_texts_are_flagged_at_most() -> None:
    harmless = [specimen for specimen in _specimens() if specimen["status"] == "none"]
    flagged = [specimen["id"] for specimen in harmless if _status_of(specimen) != "none"]
    assert len(flagged) <= _MAX_FALSE_ALARMS * len(harmless), flagged


def test_every_status_and_channel_is_among_the_texts() -> None:
    assert {specimen["status"] for specimen in _specimens()} == {*default_statuses()}
    assert {specimen["channel"] for specimen in _specimens()} == {*CHANNELS}


@pytest.mark.parametrize("status", [status for status in default_statuses() if status != "none"])
def test_no_status_is_missed_in_more_than_a_third_of_its_texts(status: str) -> None:
    mine = [specimen for specimen in _specimens() if specimen["status"] == status]
    wrong = [specimen["id"] for specimen in mine if _status_of(specimen) != status]
    assert len(wrong) <= len(mine) / 3, wrong


def test_verdicts_do_not_depend_on_ansi_colours_or_rank_prefixes() -> None:
    for specimen in _specimens():
        if (
            specimen["batch"] != 1
            or specimen["channel"] != "stderr"
            or "Traceback" in specimen["text"]
        ):
            continue
        lines = specimen["text"].split("\n")
        coloured = "\n".join(f"\x1b[31m{line}\x1b[0m" for line in lines)
        assert classify_excerpt(coloured).status == _status_of(specimen), specimen["id"]


def test_a_verdict_of_none_has_no_severity_and_no_evidence() -> None:
    verdict = classify_excerpt("step 1 loss 2.0\nstep 2 loss 1.9")
    assert verdict.severity is Severity.NONE
    assert (verdict.line, verdict.evidence, verdict.entry_id) == (0, "", "")
