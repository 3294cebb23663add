"""Ranks that are stopped by a signal, end to end: named by where the others wait, and replaced.

One is stopped while it trains; then, as soon as its replacement is started, one that goes on.
Whether the generation has formed by then is not told apart here.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.demo_runs import command, events_of
from tests.fakes.polling import wait_until

pytestmark = [pytest.mark.drill, pytest.mark.ranks, pytest.mark.ssh, pytest.mark.timeout(200)]

_LIMIT_S = 90.0
_RANK, _SURVIVOR = 2, 1


def first_task() -> str:
    """Return the profile of gpt-a, the first of the demo's tasks."""
    both = resources.files("profiles").joinpath("data", "demo.toml").read_text()
    return "[[task]]" + both.split("[[task]]")[1]


def first(log: Path, condition: Callable[[Any], bool]) -> Any:  # noqa: ANN401 - a line of JSON
    """Wait for the first event for which ``condition`` holds."""
    return wait_until(lambda: next(filter(condition, events_of(log)), None), limit_s=_LIMIT_S)


def of_task(event: Any, kind: str) -> bool:  # noqa: ANN401 - a line of JSON
    return bool(event["kind"] == kind and event["source"] == "gpt-a")


def pid_of(events: list[Any], rank: int) -> int:
    [pid] = [e["pid"] for e in events if of_task(e, "rank_started") and e["rank"] == rank]
    return int(pid)


def wake(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def stall_of(log: Path, rank: int) -> Any:  # noqa: ANN401 - a line of JSON
    return first(log, lambda event: of_task(event, "stall") and event["culprits"] == str(rank))


def test_ranks_that_are_stopped_in_an_iteration_and_after_a_regroup_began_are_named_and_replaced(
    short_tmp: Path, tmp_path: Path
) -> None:
    log, tasks = tmp_path / "events.jsonl", tmp_path / "tasks.toml"
    tasks.write_text(first_task())
    demo = subprocess.Popen(
        command(
            "--headless", "--json", "--auto-heal", "--event-log", str(log), "--tasks", str(tasks),
            "--nodes", "2", "--workers-per-node", "2", "--iterations", "16",
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(short_tmp)},
    )  # fmt: skip
    try:
        first(log, lambda event: of_task(event, "iteration") and event["iteration"] == 8)
        victim, survivor = pid_of(events_of(log), _RANK), pid_of(events_of(log), _SURVIVOR)
        os.kill(victim, signal.SIGSTOP)
        first(log, lambda event: of_task(event, "rank_started") and event["generation"] == 2)
        os.kill(survivor, signal.SIGSTOP)
        stall_of(log, _RANK)
        wake(victim)
        stall_of(log, _SURVIVOR)
        wake(survivor)
        output, _ = demo.communicate(timeout=_LIMIT_S)
    finally:
        demo.kill()
        demo.wait()
    assert demo.returncode == 0
    incidents = json.loads(output)["incidents"]
    assert [incident["rank"] for incident in incidents] == [_RANK, _SURVIVOR]
    for incident in incidents:
        assert (incident["status"], incident["severity"]) == ("task_hang", "SEV2")
        assert incident["method"] == "online statistical monitoring"
        assert (incident["task"], incident["action"]) == ("gpt-a", "restart")
        assert incident["state"] == "resolved"
        assert "stopped by a signal" in incident["reason"]
        assert "wait" in incident["reason"]
    assert [incident["node"] for incident in incidents] == ["n2", "n1"]
    iterations = [e["iteration"] for e in events_of(log) if of_task(e, "iteration")]
    assert iterations == list(range(1, 17))
