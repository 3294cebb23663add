"""Plans that are applied by themselves after a while, and a storm that stops that."""

from dataclasses import replace

import pytest

from controller.core.events import (
    AutomationResumed,
    ControllerStarted,
    NodeOrdered,
    PlanApproved,
    PlanDeferred,
    PlanRejected,
    PlanRequested,
    PolicyChanged,
    TaskLimited,
    TimerFired,
)
from controller.core.instructions import AnswerRequest
from controller.core.rules.approval import ApprovalRule, PlanTraits, rule_for
from controller.core.rules.policy import Policy
from controller.core.state.phases import IncidentState, PlanState, TaskPhase
from controller.core.state.plan import Plan
from controller.core.timers import PlanDue
from nodeagent.protocol.ids import NodeId
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import all_run

COUNTDOWN = Policy(auto_after_s=60.0)
MOMENT_S = 20.0


def new_world(policy: Policy, num_nodes: int = 5) -> World:
    world = World(demo_machine(policy=policy, num_nodes=num_nodes), num_iterations=10**6)
    world.run_until(lambda: all_run(world))
    world.run(world.now + 3.0)
    return world


def pending(world: World) -> Plan | None:
    return world.machine.state.plans.pending()


def with_a_waiting_plan(policy: Policy = COUNTDOWN) -> tuple[World, Plan]:
    world = new_world(policy)
    world.lose_node("n1")
    return world, world.run_until(lambda: pending(world))


def defer(world: World, plan: Plan, for_s: float) -> AnswerRequest:
    world.post(PlanDeferred("r", "ann", plan.name, plan.revision, for_s))
    return world.answers[-1]


def test_a_plan_that_nobody_decides_on_is_applied_after_its_time() -> None:
    world, plan = with_a_waiting_plan()
    proposed_at = world.now
    assert plan.apply_at == pytest.approx(proposed_at + 60.0)
    world.run(proposed_at + 59.0)
    assert plan.state is PlanState.PENDING
    world.run(proposed_at + 60.5)
    assert plan.approved_by == "policy auto_after_s"
    world.run_until(lambda: all_run(world))


def test_without_a_countdown_it_waits_and_there_is_nothing_to_defer() -> None:
    world, plan = with_a_waiting_plan(Policy())
    assert plan.apply_at is None
    assert defer(world, plan, 10.0).code == "nothing"
    world.run(world.now + 600.0)
    assert plan.state is PlanState.PENDING


def test_a_deferred_plan_waits_for_longer_and_may_be_hurried() -> None:
    world, plan = with_a_waiting_plan()
    begun = world.now
    assert defer(world, plan, 600.0).message == (
        f"{plan.name} is applied in 600 s unless it is decided on before"
    )
    world.run(begun + 599.0)
    assert plan.state is PlanState.PENDING
    defer(world, plan, 5.0)
    world.run(world.now + 6.0)
    assert plan.state is not PlanState.PENDING


def test_a_decision_or_a_newer_revision_ends_the_countdown() -> None:
    world, plan = with_a_waiting_plan()
    world.post(PlanRejected("r", "ann", plan.name, plan.revision, "no"))
    world.run(world.now + 120.0)
    assert plan.state is PlanState.REJECTED
    other, first = with_a_waiting_plan()
    begun = other.now
    other.run(begun + 30.0)
    other.lose_node("n2")
    newer = other.run_until(lambda: found if (found := pending(other)) is not first else None)
    assert newer is not None
    other.run(begun + 61.0)
    assert pending(other) is newer, "what nobody has seen for long enough is not applied"
    assert defer(other, first, 5.0).code == "superseded"


def test_the_countdown_goes_on_under_the_next_controller() -> None:
    world, plan = with_a_waiting_plan()
    world.post(ControllerStarted("run", 2, 0.0))
    world.run(world.now + 120.0)
    assert plan.state is not PlanState.PENDING


def test_a_timer_that_fires_early_applies_nothing() -> None:
    world, plan = with_a_waiting_plan()
    world.post(TimerFired(PlanDue(plan.name, plan.revision)))
    assert plan.state is PlanState.PENDING


def test_a_countdown_that_has_begun_does_not_end_in_a_storm() -> None:
    world, plan = with_a_waiting_plan()
    world.machine.state.automation.stop("too much is lost", world.now)
    world.run(world.now + 120.0)
    assert plan.state is PlanState.PENDING


# --- the storm guard ----------------------------------------------------------------------------


def test_too_many_plans_an_hour_stop_automation_within_one_event() -> None:
    world = new_world(Policy(is_auto_heal=True, storm_plans=2), num_nodes=6)
    for number in (1, 2):
        world.lose_node(f"n{number}")
        world.run(world.now + MOMENT_S)
    assert len(world.machine.state.automation.applied_at) == 2
    world.lose_node("n3")
    plan = world.run_until(lambda: pending(world))
    stopped = world.machine.state.automation.stopped
    assert stopped == "2 plans were applied within an hour, storm_plans allows no more"
    assert plan.created_at == world.machine.state.automation.stopped_at
    told = [each.text for _, each in world.announcements if each.kind == "storm"]
    assert told == [
        f"automation is stopped: {stopped}; plans wait for an approval until `unicron resume`"
    ]
    world.run(world.now + 600.0)
    assert plan.state is PlanState.PENDING
    world.machine.state.plans.become(plan, PlanState.SUPERSEDED)
    world.post(PlanRequested("r", "ann"))
    plan = world.run_until(lambda: pending(world))
    assert sum(each.kind == "storm" for _, each in world.announcements) == 1
    world.post(AutomationResumed("r", "ann"))
    assert plan.approved_by == "policy auto-heal"
    world.run_until(lambda: all_run(world) or not pending(world))
    world.post(AutomationResumed("r", "ann"))
    assert world.answers[-1].code == "nothing"


def test_an_operator_may_approve_in_a_storm() -> None:
    world = new_world(Policy(is_auto_heal=True, storm_plans=1), num_nodes=6)
    for number in (1, 2):
        world.lose_node(f"n{number}")
        world.run(world.now + MOMENT_S)
    plan = pending(world)
    assert plan is not None
    world.post(PlanApproved("r", "ann", plan.name, plan.revision))
    world.run_until(lambda: all_run(world))


def test_an_hour_later_old_plans_do_not_count() -> None:
    world = new_world(Policy(is_auto_heal=True, storm_plans=1), num_nodes=6)
    world.lose_node("n1")
    world.run(world.now + 3700.0)
    world.lose_node("n2")
    world.run(world.now + MOMENT_S)
    assert pending(world) is None
    assert not world.machine.state.automation.stopped


def test_a_lost_share_of_the_fleet_stops_automation() -> None:
    world = new_world(Policy(is_auto_heal=True, storm_lost_share=0.5), num_nodes=5)
    for number in (1, 2, 3):
        world.lose_node(f"n{number}")
    plan = world.run_until(lambda: pending(world))
    assert world.machine.state.automation.stopped == (
        "3 nodes with 6 of 10 workers were lost within an hour, more than storm_lost_share = 0.5"
    )
    assert plan.approved_by is None
    world.run(world.now + 600.0)
    assert plan.state is PlanState.PENDING


def test_what_was_lost_before_a_storm_ended_does_not_begin_the_next() -> None:
    world = new_world(Policy(is_auto_heal=True, storm_lost_share=0.3), num_nodes=6)
    for number in (1, 2):
        world.lose_node(f"n{number}")
    world.run_until(lambda: world.machine.state.automation.stopped)
    world.run(world.now + MOMENT_S)
    world.post(AutomationResumed("r", "ann"))
    world.lose_node("n3")
    world.run(world.now + MOMENT_S)
    assert not world.machine.state.automation.stopped
    assert pending(world) is None


def test_nodes_that_operators_took_out_are_no_loss() -> None:
    world = new_world(Policy(is_auto_heal=True, storm_lost_share=0.3), num_nodes=6)
    for number in (1, 2):
        world.post(NodeOrdered("r", "ann", "drain", NodeId(f"n{number}")))
        world.run(world.now + MOMENT_S)
        world.lose_node(f"n{number}")
    world.lose_node("n3")
    world.run(world.now + MOMENT_S)
    assert not world.machine.state.automation.stopped


def test_a_countdown_does_not_run_out_in_a_storm() -> None:
    world = new_world(replace(COUNTDOWN, storm_plans=1), num_nodes=6)
    world.lose_node("n1")
    world.run(world.now + 61.0 + MOMENT_S)
    world.lose_node("n2")
    plan = world.run_until(lambda: pending(world))
    world.run(world.now + 300.0)
    assert plan.state is PlanState.PENDING
    assert world.machine.state.automation.stopped


def test_automation_stays_stopped_for_the_next_controller_and_another_policy() -> None:
    world = new_world(Policy(is_auto_heal=True, storm_plans=1), num_nodes=6)
    for number in (1, 2):
        world.lose_node(f"n{number}")
        world.run(world.now + MOMENT_S)
    world.post(ControllerStarted("run", 2, 0.0))
    world.post(PolicyChanged(Policy(is_auto_heal=True)))
    world.run(world.now + 60.0)
    assert world.machine.state.automation.stopped


# --- rules about kinds of plans -----------------------------------------------------------------


def traits(**changes: object) -> PlanTraits:
    usual = {"severity": "SEV1", "tasks": ("gpt-a",), "moved_share": 0.5, "wall_s": 0.0}
    return PlanTraits(**(usual | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "plan", "matches"),
    [
        (ApprovalRule("ask"), traits(severity=""), True),
        (ApprovalRule("ask", severity=("SEV1",)), traits(), True),
        (ApprovalRule("ask", severity=("SEV1",)), traits(severity=""), False),
        (ApprovalRule("ask", severity=("SEV2", "SEV3")), traits(), False),
        (ApprovalRule("ask", tasks=("gpt-a", "x")), traits(), True),
        (ApprovalRule("ask", tasks=("x",)), traits(), False),
        (ApprovalRule("ask", moves_over=0.4), traits(), True),
        (ApprovalRule("ask", moves_over=0.5), traits(), False),
        (ApprovalRule("ask", hours="22:00-06:00"), traits(wall_s=23 * 3600.0), True),
        (ApprovalRule("ask", hours="22:00-06:00"), traits(wall_s=86_400 * 9 + 5.9 * 3600), True),
        (ApprovalRule("ask", hours="22:00-06:00"), traits(wall_s=6 * 3600.0), False),
        (ApprovalRule("ask", hours="09:00-17:30"), traits(wall_s=17.4 * 3600), True),
        (ApprovalRule("ask", hours="09:00-17:30"), traits(wall_s=17.5 * 3600), False),
        (ApprovalRule("ask", severity=("SEV1",), tasks=("x",)), traits(), False),
    ],
)
def test_a_rule_matches_if_all_its_conditions_do(
    rule: ApprovalRule, plan: PlanTraits, *, matches: bool
) -> None:
    assert (rule_for([rule], plan) is rule) == matches


def test_the_first_rule_that_matches_decides() -> None:
    rules = [ApprovalRule("never", severity=("SEV2",)), ApprovalRule("ask"), ApprovalRule("auto")]
    assert rule_for(rules, traits()) is rules[1]
    assert rule_for([], traits()) is None


def test_a_rule_asks_although_the_others_are_applied_and_the_other_way_round() -> None:
    rule = ApprovalRule("ask", severity=("SEV1",))
    world = new_world(Policy(is_auto_heal=True, approvals=(rule,)))
    world.lose_node("n1")
    plan = world.run_until(lambda: pending(world))
    world.run(world.now + 300.0)
    assert plan.state is PlanState.PENDING
    world = new_world(Policy(approvals=(ApprovalRule("auto", severity=("SEV1",)),)))
    world.lose_node("n1")
    world.run_until(lambda: world.machine.state.plans.all)
    assert world.machine.state.plans.all[0].approved_by == "approval rule 1"
    world.run_until(lambda: all_run(world))


def test_a_rule_asks_for_a_while() -> None:
    rule = ApprovalRule("ask", auto_after_s=30.0)
    world, plan = with_a_waiting_plan(Policy(is_auto_heal=True, approvals=(rule,)))
    world.run(world.now + 31.0)
    assert plan.approved_by == "policy auto_after_s"


def test_a_rule_rejects_and_leaves_the_incident_to_an_operator() -> None:
    rule = ApprovalRule("never", severity=("SEV1",))
    world = new_world(Policy(is_auto_heal=True, approvals=(rule,)))
    world.lose_node("n1")
    world.run_until(lambda: world.machine.state.plans.all)
    [plan] = world.machine.state.plans.all
    assert plan.state is PlanState.REJECTED
    [incident] = world.machine.state.incidents.all
    assert incident.state is IncidentState.HELD
    told = [each.text for _, each in world.announcements if each.source == plan.name]
    assert "rejected by approval rule 1: plans of this kind are never applied" in told


def test_hours_are_those_of_the_wall_clock() -> None:
    rule = ApprovalRule("ask", hours="22:00-06:00")
    world = new_world(Policy())
    world.post(ControllerStarted("run", 2, 7.0))
    assert world.machine.state.automation.started_wall_s == 7.0
    for hour, is_asked in ((23, True), (12, False)):
        world = new_world(Policy(is_auto_heal=True, approvals=(rule,)))
        world.machine.state.automation.note_start(86_400.0 * 20_000 + hour * 3600.0)
        world.lose_node("n1")
        world.run_until(lambda each=world: each.machine.state.plans.all)  # type: ignore[misc]
        world.run(world.now + 20.0)
        assert (pending(world) is not None) == is_asked


def test_survivors_keep_their_state_while_a_rule_asks_though_policy_heals() -> None:
    asks = ApprovalRule("ask", auto_after_s=60.0, severity=("SEV1",))
    world = new_world(Policy(is_auto_heal=True, approvals=(asks,)))
    for task in world.machine.state.tasks.values():
        # Fewer workers are not enough to train with meanwhile.
        world.post(TaskLimited("r", "ann", task.spec.task, min_workers=4))
    world.lose_node("n1")
    plan = world.run_until(lambda: pending(world))
    assert plan is not None
    world.run(world.now + 30.0)
    (task,) = (each for each in world.machine.state.tasks.values() if not each.is_active)
    assert task.lifecycle.phase is TaskPhase.PARKING
    world.run_until(lambda: all_run(world))
    assert task.progress.num_rerun_iterations == 0
