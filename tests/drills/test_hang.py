"""A rank that is stopped by a signal, end to end: named by where the others wait, and replaced."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.demo_runs import command

pytestmark = [pytest.mark.drill, pytest.mark.ranks, pytest.mark.ssh, pytest.mark.timeout(200)]

_LIMIT_S = 90.0
_RANK = 2


def events_of(log: Path) -> list[Any]:
    """Return what is in the event log by now."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [json.loads(line) for line in lines]


def first(log: Path, condition: Callable[[Any], bool]) -> Any:  # noqa: ANN401 - a line of JSON
    """Wait for the first event for which ``condition`` holds."""
    deadline = time.perf_counter() + _LIMIT_S
    while time.perf_counter() < deadline:
        for event in events_of(log):
            if condition(event):
                return event
        time.sleep(0.01)
    raise AssertionError("no such event")


def of_task(event: Any, kind: str) -> bool:  # noqa: ANN401 - a line of JSON
    return bool(event["kind"] == kind and event["source"] == "gpt-a")


def test_stopped_rank_is_named_and_replaced_and_may_wake(short_tmp: Path, tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    demo = subprocess.Popen(
        command(
            "--headless", "--json", "--auto-heal", "--iterations", "24", "--event-log", str(log)
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(short_tmp)},
    )
    try:
        first(log, lambda event: of_task(event, "iteration") and event["iteration"] == 8)
        started = [event for event in events_of(log) if of_task(event, "rank_started")]
        [victim] = [event for event in started if event["rank"] == _RANK]
        os.kill(victim["pid"], signal.SIGSTOP)
        stall = first(log, lambda event: of_task(event, "stall"))
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim["pid"], signal.SIGCONT)
        output, _ = demo.communicate(timeout=_LIMIT_S)
    finally:
        demo.kill()
        demo.wait()
    assert demo.returncode == 0
    [incident] = json.loads(output)["incidents"]
    assert (incident["status"], incident["severity"]) == ("task_hang", "SEV2")
    assert incident["method"] == "online statistical monitoring"
    assert (incident["task"], incident["rank"], incident["node"]) == ("gpt-a", 2, victim["node"])
    assert (incident["action"], incident["state"]) == ("restart", "resolved")
    assert "stopped by a signal" in incident["reason"]
    assert "wait" in incident["reason"]
    assert stall["culprits"] == str(_RANK)
    iterations = [e["iteration"] for e in events_of(log) if of_task(e, "iteration")]
    assert iterations == list(range(1, 25))
