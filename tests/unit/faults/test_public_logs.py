"""Whole logs of public runs, and excerpts after public threads.

Healthy runs are silent, also when they are cut off, or interleaved with another run. Faults are
found, also in the middle of a healthy run. ``tools/classify_accuracy.py`` prints the figures.
"""

import gzip
import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from profiles.faults.excerpt import classify_excerpt
from profiles.faults.status_table import default_statuses
from profiles.faults.stream import Finding, FindingStream

_HERE: Final = Path(__file__).parent
_HEALTHY: Final = sorted((_HERE / "mlperf_logs" / "healthy").glob("*.gz"))
_FAULTS: Final = {
    "v31-xfusion-rnnt-diverged": ("nan_loss", range(1240, 1260)),
    "v50-dell-sd-valueerror": ("other_software_error", range(758, 800)),
    "v50-hpe-sd-hydra-error": ("other_software_error", range(288, 296)),
    "v51-dell-rgat-oom": ("out_of_memory", range(4485, 4520)),
}
_MIN_STATUS_SHARE: Final = 0.95
_SEED: Final = 26
_NUM_CUTS: Final = 20


@cache
def _lines(file: Path) -> tuple[bytes, ...]:
    return tuple(gzip.decompress(file.read_bytes()).splitlines())


def _failed(name: str) -> Path:
    return _HERE / "mlperf_logs" / "failed" / f"{name}.txt.gz"


def _findings(lines: Sequence[bytes]) -> list[Finding]:
    stream = FindingStream()
    return [*stream.feed(b"\n".join(lines)), *stream.close()]


def test_threads_are_told_apart_in_95_of_100_cases() -> None:
    threads = [json.loads(line) for line in (_HERE / "threads.jsonl").read_text().splitlines()]
    statuses = default_statuses()
    verdicts = {thread["id"]: classify_excerpt(thread["text"]).status for thread in threads}
    wrong = [thread["id"] for thread in threads if verdicts[thread["id"]] != thread["status"]]
    assert len(wrong) <= (1 - _MIN_STATUS_SHARE) * len(threads), wrong
    flagged = [t["id"] for t in threads if t["status"] == "none" and verdicts[t["id"]].is_fault]
    assert flagged == []
    isolated = [
        thread["id"]
        for thread in threads
        if verdicts[thread["id"]].severity == "SEV1"
        and statuses[thread["status"]].severity != "SEV1"
    ]
    assert isolated == []


@pytest.mark.parametrize("file", _HEALTHY, ids=lambda file: file.name)
def test_a_run_that_reached_its_target_has_no_findings(file: Path) -> None:
    assert _findings(_lines(file)) == []


@pytest.mark.parametrize("name", _FAULTS)
def test_a_run_that_broke_is_found_at_its_line(name: str) -> None:
    status, where = _FAULTS[name]
    [finding] = _findings(_lines(_failed(name)))
    assert finding.verdict.status == status
    assert finding.verdict.line in where


@pytest.mark.parametrize("file", _HEALTHY, ids=lambda file: file.name)
def test_a_healthy_log_that_is_cut_off_has_no_findings(file: Path) -> None:
    draw = random.Random(f"{_SEED} {file.name}")
    lines = _lines(file)
    cuts = [draw.randrange(1, len(lines)) for _ in range(_NUM_CUTS)]
    found = {cut: _findings(lines[:cut]) for cut in cuts}
    assert {cut: findings for cut, findings in found.items() if findings} == {}


@pytest.mark.parametrize("file", _HEALTHY, ids=lambda file: file.name)
def test_two_healthy_logs_under_rank_prefixes_have_no_findings(file: Path) -> None:
    draw = random.Random(f"{_SEED} {file.name}")
    other = draw.choice([log for log in _HEALTHY if log != file])
    assert _findings(_interleaved(draw, _lines(file), _lines(other))) == []


@pytest.mark.parametrize("name", _FAULTS)
def test_a_fault_in_the_middle_of_a_healthy_log_is_found(name: str) -> None:
    draw = random.Random(f"{_SEED} {name}")
    status, _ = _FAULTS[name]
    broken = _lines(_failed(name))
    [finding] = _findings(broken)
    fault = broken[finding.first_line - 40 : finding.last_line]
    healthy = _lines(draw.choice(_HEALTHY))
    middle = len(healthy) // 2
    found = _findings([*healthy[:middle], *fault, *healthy[middle:]])
    assert status in [each.verdict.status for each in found]


def _interleaved(
    draw: random.Random, first: Sequence[bytes], second: Sequence[bytes]
) -> list[bytes]:
    """Return the lines of both logs, each in its order, with the process's number before them."""
    order = [b"0"] * len(first) + [b"1"] * len(second)
    draw.shuffle(order)
    logs = {b"0": iter(first), b"1": iter(second)}
    return [label + b": " + next(logs[label]) for label in order]
