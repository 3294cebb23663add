"""Two of four nodes are lost at once: one incident, one plan, one generation for each task."""

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.demo_runs import NUM_ITERATIONS, DemoRun, demo_tasks, run_demo

pytestmark = [pytest.mark.drill, pytest.mark.ranks, pytest.mark.ssh, pytest.mark.timeout(600)]


@pytest.fixture(scope="session")
def two_lost(short_tmp: Path, tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    """A run that loses n2 and n3, each with half of one task. Neither task may be stopped."""
    directory = tmp_path_factory.mktemp("burst")
    text = demo_tasks(NUM_ITERATIONS)
    tasks = directory / "tasks.toml"
    tasks.write_text(text.replace("[[task]]\n", "[[task]]\nkeeps_running = true\n"))
    words = f"--iterations {NUM_ITERATIONS} --drill lose-two-nodes@4:node=n2 --tasks {tasks}"
    return run_demo(short_tmp, directory / "events.jsonl", "--auto-heal", *words.split())


def test_two_lost_nodes_are_one_incident_one_plan_and_one_generation(two_lost: DemoRun) -> None:
    incident: Any
    [incident] = two_lost.incidents
    assert incident["node"] == incident["nodes"][0]
    assert sorted(incident["nodes"]) == ["n2", "n3"]
    assert (incident["status"], incident["state"]) == ("lost_connection", "resolved")
    [drill] = two_lost.of_kind("drill")
    lost = [e for e in two_lost.of_kind("unreachable") if e["source"] in {"n2", "n3"}]
    assert all(float(str(e["at"])) - float(str(drill["at"])) < 2.0 for e in lost)
    # What follows once a task has finished is another plan.
    end = min(float(str(event["at"])) for event in two_lost.of_kind("finished"))
    plans, starts = (
        [e for e in two_lost.of_kind(kind) if float(str(e["at"])) < end]
        for kind in ("plan", "start")
    )
    # A busy machine sees the second loss late: the first plan is then revised, or carried out.
    is_late = max(float(str(e["at"])) for e in lost) > min(float(str(e["at"])) for e in plans)
    named = {e["source"] for e in plans}
    assert named == {"P-1"} or (is_late and named == {"P-1", "P-2"})
    for task in ("gpt-a", "gpt-b"):
        assert [e["generation"] for e in starts if e["source"] == task] == [1, 2]


def test_losses_go_on_as_if_nothing_had_happened(two_lost: DemoRun, undisturbed: DemoRun) -> None:
    tasks: Any = undisturbed.outcome["tasks"]
    expected = {task["name"]: task["losses"] for task in tasks}
    lines = two_lost.of_kind("iteration")
    assert len(lines) == 24
    for event in lines:
        loss = expected[str(event["source"])][str(event["iteration"])]
        assert event["loss"] == pytest.approx(loss, rel=1e-4)
        assert not event["is_rerun"]
