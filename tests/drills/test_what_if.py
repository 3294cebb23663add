"""What-if on a real cluster: asked while it trains, compared with what its controller then plans.

What it saves is asked too. In between the controller is killed: it is the next one that plans.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controller.api.client import ask
from controller.api.wire import RunDrill
from tests.fakes.demo_runs import command, events_of
from tests.fakes.polling import wait_until
from tests.fakes.saved_runs import readable_events

pytestmark = [pytest.mark.drill, pytest.mark.ranks, pytest.mark.ssh, pytest.mark.timeout(600)]


def lines_of(log: Path, kind: str) -> list[Any]:
    return [event for event in events_of(log) if event["kind"] == kind]


def both_train(log: Path) -> bool:
    lines = lines_of(log, "iteration")
    return {line["source"] for line in lines if line["iteration"] >= 3} == {"gpt-a", "gpt-b"}


def has_applied(log: Path) -> bool:
    return any(line.get("state") == "applied" for line in lines_of(log, "plan"))


def has_taken_over(log: Path) -> bool:
    return any(line["term"] == 2 for line in lines_of(log, "takeover"))


def answered(*words: str) -> Any:  # noqa: ANN401 - JSON
    line = [sys.executable, "-m", "controller.cli", *words, "--json"]
    asked = subprocess.run(line, check=False, capture_output=True, text=True, timeout=60)
    assert (asked.returncode, asked.stderr) == (0, "")
    return json.loads(asked.stdout)


@pytest.mark.thorough  # unit/plan/test_what_if_on_cluster, and core/incidents/test_rehearsed_cures
def test_a_live_cluster_answers_what_it_then_does(short_tmp: Path, tmp_path: Path) -> None:
    log, socket = tmp_path / "events.jsonl", tmp_path / "api.sock"
    demo_words = command(
        "--headless", "--json", "--auto-heal", "--event-log", str(log), "--serve", str(socket),
        "--iterations", "100000", "--nodes", "3", "--workers-per-node", "3",
    )  # fmt: skip
    with subprocess.Popen(
        demo_words,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(short_tmp)},
    ) as demo:
        try:
            wait_until(lambda: both_train(log), limit_s=150)
            foreseen = answered("plan", "what-if", "--connect", str(socket), "--lose-node", "n1")
            [run] = short_tmp.iterdir()
            kinds = {event["type"] for event in readable_events(run)}
            saved = answered("plan", "what-if", "--state", str(run), "--lose-node", "n1")
            words = ("simulate", "--connect", str(socket), "--seeds", "1", "--policy", "unicron")
            rehearsed = answered(*words)
            kill = RunDrill(request_id="1", actor="test", drill="kill-controller")
            assert ask(socket, kill).is_ok
            wait_until(lambda: has_taken_over(log), limit_s=60)
            lose = RunDrill(request_id="2", actor="test", drill="lose-node", node="n1")
            wait_until(lambda: ask(socket, lose).is_ok, limit_s=60)
            wait_until(lambda: has_applied(log), limit_s=90)
        finally:
            demo.terminate()
            printed, _ = demo.communicate(timeout=60)
    outcome = json.loads(printed)
    assert kinds <= {
        "ControllerStarted", "NodeAdded", "TaskAdded", "PolicyChanged", "NodeAttached",
        "RanksListed", "Observed", "PeerProbed", "TimerFired", "WaitingChanged",
    }, "the core has not heard of the question"  # fmt: skip
    [plan] = outcome["plans"]
    assert plan["seen"].startswith("n1 is lost")
    assert foreseen["assignments"] == saved["assignments"] == plan["assignments"]
    assert foreseen["why"] == saved["why"] == plan["why"]
    assert rehearsed["initial_split"] == {"gpt-a": 4, "gpt-b": 4}
    assert rehearsed["policies"].keys() == {"unicron"}
    places = {task["name"]: task["placement"] for task in foreseen["tasks"]}
    assert places == {task["name"]: task["placement"] for task in saved["tasks"]}
    for start in lines_of(log, "start")[-2:]:  # what both tasks began after the plan
        nodes = {worker.partition(":")[0] for worker in places[start["source"]]}
        assert f"on {', '.join(sorted(nodes))} with" in start["text"]
