"""The controller's core on the modelled cluster."""

import random
from dataclasses import replace

import pytest

from controller.core.machine import Machine
from controller.core.state.cluster import ClusterState
from controller.core.state.invariants import check_invariants
from controller.simulation.policies.unicron_core import run_unicron
from controller.simulation.world.event_sequence import SimulatedEvent
from controller.simulation.world.initial_setup import setup_of
from controller.simulation.world.worker_time import WorkerAccount
from tests.unit.simulation.small import event, sequence, small, with_one_replica

SCENARIO = small()
SETUP = setup_of(SCENARIO, sequence())
KINDS = ("node_lost", "hardware", "process", "network", "slow", "manual")


@pytest.fixture(autouse=True)
def states(monkeypatch: pytest.MonkeyPatch) -> list[ClusterState]:
    """Check the core's invariants after every event; the states of all machines are kept."""
    seen: list[ClusterState] = []
    handle = Machine.handle

    def checked(machine: Machine, event: object) -> object:
        instructions = handle(machine, event)  # type: ignore[arg-type]
        check_invariants(machine.state)
        if machine.state not in seen[-1:]:
            seen.append(machine.state)
        return instructions

    monkeypatch.setattr(Machine, "handle", checked)
    return seen


def run(*events: SimulatedEvent, seed: int = 1, is_auto_heal: bool = True) -> WorkerAccount:
    return run_unicron(SETUP, sequence(*events), seed, is_auto_heal=is_auto_heal)


def test_a_burst_of_lost_nodes_stops_automation_within_one_event(
    states: list[ClusterState],
) -> None:
    """Two of four nodes within an hour: from then on an operator decides, and ends the storm."""
    burst = [event("node_lost", 50_000.0, 0), event("node_lost", 50_600.0, 1)]
    guarded = replace(SETUP, policy=replace(SETUP.policy, storm_lost_share=0.4))
    alone = run_unicron(SETUP, sequence(*burst), 1)
    asked = run_unicron(guarded, sequence(*burst), 1)
    unguarded, state = states
    assert unguarded.automation.stopped == ""
    assert state.automation.stopped == "", "the operator has ended it"
    assert state.automation.resumed_at > 50_600.0
    plans = [plan for plan in state.plans.all if plan.created_at > 50_600.0]
    assert plans[0].approved_by == "operator"
    assert {plan.approved_by for plan in unguarded.plans.all} == {"policy auto-heal"}
    # The operator comes 900 s later; until then the tasks train with what they have.
    assert plans[0].decided_at is not None
    assert plans[0].decided_at - plans[0].created_at == pytest.approx(900.0, abs=5.0)
    assert asked.waf < alone.waf


def seconds(account: WorkerAccount, activity: str) -> float:
    return 3600 * account.gpu_hours[activity]


def iteration_s(name: str) -> float:
    return SETUP.profile(name).iteration_s(SETUP.split[name])


def test_without_faults_all_but_the_start_is_training() -> None:
    account = run()
    assert seconds(account, "transition") == pytest.approx(8 * 100)
    assert seconds(account, "training") == pytest.approx(8 * 99_900)
    assert account.availability == pytest.approx(0.999)


def test_killed_process_costs_detection_park_and_restart() -> None:
    account = run(event("process", 50_000.0, 0))
    held = SETUP.split["a"]
    assert account.num_incidents == 1
    assert seconds(account, "detection") == pytest.approx(held * 5, rel=0.25)
    assert seconds(account, "transition") == pytest.approx(8 * 100 + held * 30.5, rel=0.02)
    assert seconds(account, "recomputation") <= held * iteration_s("a")


def test_killed_process_without_a_replica_costs_the_transfer_of_its_copy_in_memory() -> None:
    setup = with_one_replica(SETUP)
    broken = sequence(event("process", 50_000.0, 1))  # of b, which has three nodes
    account = run_unicron(setup, broken, 1, is_auto_heal=True)
    held = setup.split["b"]
    assert seconds(account, "transition") == pytest.approx(8 * 100 + held * 35.5, rel=0.01)
    assert seconds(account, "recomputation") <= held * setup.profile("b").iteration_s(held)


def test_broken_collective_is_regrouped_in_the_same_processes() -> None:
    account = run(event("network", 50_000.0, 0))
    held = SETUP.split["a"]
    assert seconds(account, "transition") < 8 * 100 + held * 25
    assert 0 < seconds(account, "recomputation") <= held * iteration_s("a")


@pytest.mark.parametrize("kind", ["node_lost", "hardware", "slow"])
def test_node_that_is_out_comes_back_into_use(kind: str, states: list[ClusterState]) -> None:
    account = run(event(kind, 20_000.0, 0))
    assert seconds(account, "repair") == pytest.approx(2 * 36_000, rel=0.01)
    state = states[-1]
    assert all(node.is_in_service for node in state.nodes.values())
    assert sum(len(task.living_ranks) for task in state.tasks.values()) == 8
    assert not [incident for incident in state.incidents.all if incident.is_open]


def test_slow_phase_is_counted() -> None:
    account = run(event("slow", 50_000.0, 0))
    assert seconds(account, "slow") == pytest.approx(SETUP.split["a"] * 0.2 * 5, rel=0.01)


def test_change_by_hand_pauses_one_task() -> None:
    account = run(event("manual", 50_000.0, 0))
    assert seconds(account, "manual") in {SETUP.split[name] * 40.0 for name in "ab"}


def test_a_recovery_is_verified_although_a_change_by_hand_interrupts_it(
    states: list[ClusterState],
) -> None:
    at_s = 50_000.0 + 5.0 + 30.5 + 0.01
    run(event("process", 50_000.0, 0), *(event("manual", at_s, 0) for _ in range(3)))
    assert not [incident for incident in states[-1].incidents.all if incident.is_open]


def test_task_that_a_plan_stopped_and_saved_computes_nothing_again() -> None:
    account = run(event("node_lost", 20_000.0, 1), event("node_lost", 21_000.0, 2))
    assert account.availability > 0.98  # what a plan has stopped is not waiting
    # Of b, which lost both nodes, the iterations that were broken off; of a, nothing.
    assert seconds(account, "recomputation") <= 4 * SETUP.split["b"] * iteration_s("b")


def test_task_whose_only_node_is_lost_for_good_is_stopped() -> None:
    assert run(event("node_lost", 30_000.0, 0, away_s=None)).availability > 0.98


def test_ranks_that_were_lost_unseen_are_missed() -> None:
    # The node is back before anybody noticed; all of a was on it, and nobody else can tell.
    account = run(event("node_lost", 50_000.0, 0, away_s=0.0))
    assert seconds(account, "detection") <= SETUP.split["a"] * 30
    assert account.availability > 0.98


def test_all_nodes_lost_and_back() -> None:
    account = run(*(event("node_lost", 20_000.0 + node, node) for node in range(4)))
    # Nothing is left in memory: what was not on disk is computed again.
    assert seconds(account, "recomputation") > 0
    assert seconds(account, "training") > 8 * 40_000


@pytest.mark.parametrize("node", [0, 1])
def test_a_plan_waits_for_its_operator_and_survivors_go_on_meanwhile(
    node: int, states: list[ClusterState]
) -> None:
    """Node 0 has all of a, node 1 a third of b, whose other replicas train while the plan waits."""
    assert SETUP.split == {"a": 2, "b": 6}
    fault = event("node_lost", 50_000.0, node)
    healed, approved = run(fault), run(fault, is_auto_heal=False)
    lost, returned = states[-1].plans.all
    assert lost.decided_at == pytest.approx(50_005 + 900, abs=1)
    assert returned.decided_at == pytest.approx(86_000 + 900, abs=1)
    assert healed.num_plans == approved.num_plans == 2
    # Only the node that is back stands idle until somebody has looked; the others train.
    assert seconds(approved, "waiting") - seconds(healed, "waiting") == pytest.approx(2 * 900)
    assert seconds(healed, "training") - seconds(approved, "training") == pytest.approx(2 * 900)
    assert healed.waf > approved.waf


def test_ranks_that_are_parked_until_a_plan_is_approved_are_waiting() -> None:
    """All of b has six workers, and less than that is of no use to it."""
    scenario = small(("weight = 1.5,", "weight = 1.5, min_workers = 6,"))
    setup = setup_of(scenario, sequence())
    assert setup.split == {"a": 2, "b": 6}
    faults = sequence(event("node_lost", 50_000.0, 1))
    healed = run_unicron(setup, faults, 1)
    approved = run_unicron(setup, faults, 1, is_auto_heal=False)
    assert seconds(approved, "waiting") - seconds(healed, "waiting") > 4 * 890
    assert seconds(approved, "transition") == pytest.approx(seconds(healed, "transition"), rel=0.1)


def test_under_auto_heal_nobody_is_waited_for() -> None:
    fault = event("node_lost", 50_000.0, 1)
    operator = 'operator = { law = "constant", s = 900 }'
    erratic = small((operator, 'operator = { law = "lognormal", median_s = 900, sigma = 2 }'))
    assert run_unicron(setup_of(erratic, sequence()), sequence(fault), 1) == run(fault)


def test_a_revised_plan_is_approved_as_it_is_when_the_operator_looks(
    states: list[ClusterState],
) -> None:
    faults = (event("node_lost", 50_000.0, 1), event("node_lost", 50_600.0, 2))
    run(*faults, is_auto_heal=False)
    first = states[-1].plans.all[0]
    assert first.revision == 2
    assert first.approved_by == "operator"
    assert first.decided_at == pytest.approx(50_005 + 900, abs=30)


@pytest.mark.parametrize("is_auto_heal", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_all_hours_are_accounted_for(
    seed: int, *, is_auto_heal: bool, states: list[ClusterState]
) -> None:
    dice = random.Random(seed)
    events = sorted(
        (
            event(
                dice.choice(KINDS),
                dice.choice([dice.uniform(0, 60_000), 30_000 + dice.uniform(0, 60)]),
                dice.randrange(4),
                slot=dice.randrange(2),
                away_s=dice.choice([0.0, 100.0, 5_000.0]),
            )
            for _ in range(14)
        ),
        key=lambda each: each.at_s,
    )
    account = run(*events, seed=seed, is_auto_heal=is_auto_heal)
    assert sum(account.gpu_hours.values()) == pytest.approx(8 * 100_000 / 3600)
    assert min(account.gpu_hours.values()) >= -1e-9
    assert account == run(*events, seed=seed, is_auto_heal=is_auto_heal)
    state = states[-1]
    assert not [incident for incident in state.incidents.all if incident.is_open]
    assert all(task.waf > 0 or task.stopping.intent == "stop" for task in state.tasks.values())
