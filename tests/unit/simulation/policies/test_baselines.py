"""What baselines make of single faults, counted by hand."""

import pytest

from controller.simulation.policies.baselines import BASELINES
from controller.simulation.policies.static_division import run_baseline, split_of
from controller.simulation.world.event_sequence import EventSequence, SimulatedEvent
from controller.simulation.world.initial_setup import InitialSetup, setup_of
from controller.simulation.world.worker_time import WorkerAccount
from tests.unit.simulation.small import event, sequence, small, with_one_replica

SCENARIO = small()
SETUP = setup_of(SCENARIO, sequence())
END_S = 100_000.0


def run(name: str, *events: SimulatedEvent) -> WorkerAccount:
    return run_baseline(BASELINES[name], SETUP, sequence(*events), 1)


def lost_hours(account: WorkerAccount, activity: str) -> float:
    return account.gpu_hours[activity]


def test_split_gives_every_task_workers_and_uses_all() -> None:
    assert SETUP.split == {"a": 2, "b": 6}  # b weighs more


def test_megatron_waits_for_the_repair_of_its_node() -> None:
    size = SETUP.split["a"]
    account = run("megatron", event("node_lost", 50_000.0, 0))
    # Noticed at once, back after 36,000 s, 1,500 s to begin, 900 s computed again.
    assert lost_hours(account, "detection") == pytest.approx((size - 2) * 5 / 3600)
    assert lost_hours(account, "waiting") == pytest.approx((size - 2) * 35_995 / 3600)
    assert lost_hours(account, "repair") == pytest.approx(2 * 36_000 / 3600)
    begins = 8 * 100 / 3600
    assert lost_hours(account, "transition") == pytest.approx(begins + size * 1500 / 3600)
    assert lost_hours(account, "recomputation") == pytest.approx(size * 900 / 3600)


@pytest.mark.parametrize("kind", ["process", "network", "hardware"])
def test_megatron_learns_of_other_faults_by_a_timeout(kind: str) -> None:
    account = run("megatron", event(kind, 50_000.0, 0, away_s=1.0))
    held = SETUP.split["a"]
    lost = lost_hours(account, "detection") + lost_hours(account, "repair")
    assert lost == pytest.approx(held * 1800 / 3600, rel=0.01)


def test_spare_node_takes_the_place() -> None:
    account = run("megatron-standby", event("node_lost", 50_000.0, 0))
    # The node that took its place is beyond the cluster; the repaired one is the spare then.
    assert lost_hours(account, "waiting") == pytest.approx(2 * 14_000 / 3600)
    assert account.waf > run("megatron", event("node_lost", 50_000.0, 0)).waf


def test_elastic_goes_on_with_less_and_takes_back() -> None:
    lost = event("node_lost", 50_000.0, 1)
    elastic, standing = run("megatron-elastic", lost), run("megatron", lost)
    assert elastic.waf > standing.waf
    held = SETUP.split["b"]
    begins = 8 * 100 + (held - 2) * 1500 + held * 1500
    assert lost_hours(elastic, "transition") == pytest.approx(begins / 3600)


def test_a_fault_during_a_recovery_begins_it_anew() -> None:
    # 200 s into what is computed again.
    first, second = event("process", 50_000.0, 0), event("process", 53_500.0, 0)
    account = run("megatron", first, second)
    held = SETUP.split["a"]
    assert account.num_incidents == 2
    assert lost_hours(account, "detection") == pytest.approx(held * 3600 / 3600)
    assert lost_hours(account, "transition") == pytest.approx((8 * 100 + held * 3000) / 3600)
    assert lost_hours(account, "recomputation") == pytest.approx(held * 1100 / 3600)


@pytest.mark.parametrize("at_s", [50_900.0, 52_500.0])
def test_a_fault_of_a_process_that_is_not_there_changes_nothing(at_s: float) -> None:
    first = event("process", 50_000.0, 0)
    # In the first case the collective hangs already, in the second the new processes are on their
    # way.
    assert run("megatron", first, event("process", at_s, 0)) == run("megatron", first)


def test_what_was_never_computed_is_not_computed_again() -> None:
    account = run("megatron", event("process", 400.0, 0))
    assert lost_hours(account, "recomputation") == pytest.approx(SETUP.split["a"] * 300 / 3600)


def test_slow_node_costs_its_part_of_the_speed() -> None:
    account = run("equal", event("slow", 50_000.0, 0, away_s=1.0))
    held = split_of("equal", SETUP, 8)["a"]
    assert lost_hours(account, "slow") == pytest.approx(held * 0.2 * 5 / 3600)


@pytest.mark.parametrize("name", BASELINES)
def test_all_hours_are_accounted_for_and_seeds_repeat(name: str) -> None:
    faults = [
        event(kind, 9_000.0 * number, number % 4, slot=number % 2)
        for number, kind in enumerate(
            ["node_lost", "process", "slow", "manual", "hardware", "network", "node_lost"], 1
        )
    ]
    account = run(name, *faults)
    assert sum(account.gpu_hours.values()) == pytest.approx(8 * END_S / 3600)
    assert min(account.gpu_hours.values()) >= -1e-9
    assert 0 < account.availability < 1
    assert account == run(name, *faults)


def test_static_splits_divide_by_their_law() -> None:
    assert split_of("equal", SETUP, 8) == {"a": 4, "b": 4}
    assert split_of("by-weight", SETUP, 8) == {"a": 4, "b": 4}  # of 3.2 and 4.8, in whole nodes
    assert split_of("by-weight", SETUP, 6) == {"a": 2, "b": 4}
    assert split_of("by-size", SETUP, 8) == {"a": 4, "b": 4}
    assert split_of("planner", SETUP, 8) == SETUP.split


def test_free_node_takes_the_place_of_one_that_is_away() -> None:
    scenario = small(("nodes = 4", "nodes = 3\nstandby_nodes = 1"))
    setup = setup_of(scenario, sequence())
    lost = event("node_lost", 50_000.0, 1, away_s=None)
    elastic = run_baseline(BASELINES["megatron-elastic"], setup, sequence(lost), 1)
    standing = run_baseline(BASELINES["megatron"], setup, sequence(lost), 1)
    assert elastic.waf > standing.waf
    # Three nodes are held again after the recovery; the fourth is the one that is away.
    assert elastic.gpu_hours["waiting"] == pytest.approx(2 * 50_000 / 3600, rel=0.01)


@pytest.mark.parametrize("broken", [3, 4])
def test_spare_that_is_away_itself_is_no_spare(broken: int) -> None:
    both = (event("node_lost", 40_000.0, broken), event("node_lost", 50_000.0, 1))
    five = EventSequence(5, frozenset(), both, (), END_S)
    setup = setup_of(small(("nodes = 4", "nodes = 3\nstandby_nodes = 2")), five)
    account = run_baseline(BASELINES["megatron-standby"], setup, five, 1)
    # The other spare takes the place at once: b loses what it takes to begin anew, and no more.
    lost_s = 5 + 1500 + 900
    trained_s = 6 * (END_S - 100) - setup.split["b"] * lost_s
    assert account.gpu_hours["training"] == pytest.approx(trained_s / 3600)


def test_slow_node_that_is_lost_before_anybody_notices_is_away_once() -> None:
    account = run("megatron", event("slow", 50_000.0, 0), event("node_lost", 50_002.0, 0))
    assert lost_hours(account, "repair") == pytest.approx(2 * 36_000 / 3600, abs=1e-6)


def recovery_of(setup: InitialSetup, lost: SimulatedEvent) -> tuple[float, float]:
    """Return transition and recomputation of a static split, in seconds per worker."""
    account = run_baseline(BASELINES["equal"], setup, sequence(lost), 1)
    begins = 8 * 100
    transition_s = account.gpu_hours["transition"] * 3600 - begins
    return transition_s / 4, account.gpu_hours["recomputation"] * 3600 / 4


def test_static_splits_get_the_state_from_a_peer_else_from_memory_else_from_disk() -> None:
    broken = event("process", 50_000.0, 0)
    iteration_s = SETUP.profiles[0].iteration_s(4)
    transition_s, again_s = recovery_of(SETUP, broken)
    assert transition_s == pytest.approx(30.5)  # parks, and restarts
    assert again_s == pytest.approx(0.5 * iteration_s)
    setup = with_one_replica(SETUP)
    transition_s, again_s = recovery_of(setup, broken)
    assert transition_s == pytest.approx(30.5 + 5)
    assert again_s == pytest.approx(0.5 * setup.profiles[0].iteration_s(4))
    lost = event("node_lost", 50_000.0, 0, away_s=None)
    transition_s, again_s = recovery_of(setup, lost)  # from four stages to two
    assert transition_s == pytest.approx((30.5 + 70 + 60) / 2)  # all processes start anew
    assert again_s == pytest.approx(900)  # two workers, for twice as long


def test_a_static_split_whose_only_node_was_lost_goes_back_to_its_checkpoint() -> None:
    setup = setup_of(
        small(("nodes = 4", "nodes = 2")), EventSequence(2, frozenset(), (), (), END_S)
    )
    lost = EventSequence(2, frozenset(), (event("node_lost", 50_000.0, 0),), (), END_S)
    account = run_baseline(BASELINES["equal"], setup, lost, 1)
    assert account.gpu_hours["recomputation"] == pytest.approx(2 * 900 / 3600)


def test_a_static_split_whose_nodes_are_all_lost_at_once_goes_back_to_its_checkpoint() -> None:
    one = event("node_lost", 50_000.0, 0)
    iteration_s = SETUP.profiles[0].iteration_s(4)
    _, again_s = recovery_of(SETUP, one)
    assert again_s < iteration_s
    both = run_baseline(
        BASELINES["equal"], SETUP, sequence(one, event("node_lost", 50_000.0, 1)), 1
    )
    # It grows back to four workers before it computes anything again.
    assert both.gpu_hours["recomputation"] == pytest.approx(4 * 900 / 3600)
