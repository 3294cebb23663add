"""The outcome of a headless run: the fields that scripts read."""

import json

import pytest

from controller.api.projection import Frame, project
from controller.api.views import ClusterView
from controller.demo.demo_cli import outcome_of
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World


def final_view(world: World) -> ClusterView:
    pulses = world.heartbeats.pulses
    frame = Frame("demo", 0.0, is_auto_heal=True, max_losses=None, pulses=pulses)
    return project(world.machine.state, world.now, frame)


def test_an_undisturbed_run_has_every_loss_and_nothing_else_to_tell() -> None:
    world = World(demo_machine(), num_iterations=130)
    world.run(200.0)
    outcome = outcome_of(final_view(world))
    assert (outcome["incidents"], outcome["plans"]) == ([], [])
    assert outcome["nodes"] == [
        {
            "node": f"n{i}",
            "condition": "healthy",
            "note": "",
            "isolated": "",
            "isolated_gpus": {},
            "asked_at": None,
            "agent_rss_bytes": 30_000_000,
        }
        for i in range(1, 5)
    ]
    tasks = outcome["tasks"]
    assert isinstance(tasks, list)
    assert tasks[0] == {
        "name": "gpt-a",
        "workers": 4,
        "layout": {"tp": 1, "pp": 1, "dp": 4},
        "iterations": 130,
        "rerun_iterations": 0,
        "unsupported": [],
        "transition": None,
        "losses": {str(i): 5.5 - i / 100 for i in range(1, 131)},
    }


def test_faults_and_their_cure_are_told() -> None:
    world = World(demo_machine(), num_iterations=20)
    world.run(8.0)
    world.kill_rank("gpt-a", 1)
    world.run(12.0)
    world.lose_node("n2")
    world.run(60.0)
    view = final_view(world)
    outcome = json.loads(json.dumps(outcome_of(view)))
    killed, lost = outcome["incidents"]
    assert (killed["id"], killed["task"], killed["rank"]) == ("I-1", "gpt-a", 1)
    assert (killed["status"], killed["severity"]) == ("exited_abnormally", "SEV2")
    assert (killed["action"], killed["state"]) == ("restart", "resolved")
    assert (lost["node"], lost["severity"], lost["action"]) == ("n2", "SEV1", "reconfigure")
    assert killed.keys() == lost.keys()
    for incident in (killed, lost):
        assert incident["fault_at"] <= incident["detected_at"] <= incident["resolved_at"]
        assert incident["method"]
    [plan] = outcome["plans"]
    assert (plan["id"], plan["revision"], plan["trigger"]) == ("P-1", 1, lost["id"])
    assert (plan["state"], plan["approved_by"]) == ("applied", "policy auto-heal")
    assert plan["assignments_before"] == {"gpt-a": 4, "gpt-b": 4}
    assert plan["assignments"] == {"gpt-a": 4, "gpt-b": 2}
    assert plan["placement_before"] == {
        "gpt-a": ["n1:0-1", "n2:0-1"],
        "gpt-b": ["n3:0-1", "n4:0-1"],
    }
    assert plan["placement_after"] == {"gpt-a": ["n1:0-1", "n4:0-1"], "gpt-b": ["n3:0-1"]}
    assert 0 < plan["waf_after"] < plan["waf_before"]
    assert plan["seen"]
    assert plan["why"]
    assert [task["workers"] for task in outcome["tasks"]] == [4, 2]
    assert outcome["tasks"][0]["rerun_iterations"] == 0
    transition = outcome["tasks"][1]["transition"]
    assert (transition["kind"], transition["is_done"]) == ("shrink", True)
    assert transition["steps"][0]["name"] == "park"
    assert transition["actual_s"] == pytest.approx(
        sum(step["actual_s"] for step in transition["steps"])
    )
    for incident in (killed, lost):
        assert 0 < incident["recovery_s"] <= incident["resolved_at"] - incident["fault_at"]
        assert incident["state_source"] == "peer"
        assert incident["resume"]
        assert incident["recomputed_micro_batches"] + incident["saved_micro_batches"] <= 12
    assert outcome["nodes"][1]["condition"] == "lost"


def test_a_task_that_never_ran_has_no_layout() -> None:
    tasks = outcome_of(final_view(World(demo_machine())))["tasks"]
    assert isinstance(tasks, list)
    assert tasks[0] == {
        "name": "gpt-a",
        "workers": 0,
        "layout": None,
        "iterations": 0,
        "rerun_iterations": 0,
        "unsupported": [],
        "transition": None,
        "losses": {},
    }


def test_losses_that_are_no_numbers_leave_it_valid_json_in_order() -> None:
    world = World(demo_machine(), num_iterations=12)
    world.run(20.0)
    view = final_view(world)
    losses = {10: float("inf"), 9: float("nan"), 11: 1.5}
    diverged = view.tasks[0].model_copy(update={"losses": losses})
    outcome = outcome_of(view.model_copy(update={"tasks": [diverged]}))
    text = json.dumps(outcome, allow_nan=False)
    assert '"losses": {"9": "NaN", "10": "Infinity", "11": 1.5}' in text
