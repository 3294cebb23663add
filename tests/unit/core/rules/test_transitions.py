"""Transitions: kinds, durations of their steps, and predictions."""

import pytest

from controller.core.instructions import Fact
from controller.core.planning.problem import expected_transition_s
from controller.core.rules.policy import Policy
from controller.core.rules.transitions import Experience, TransitionKind, kind_of
from nodeagent.protocol.ids import TaskId
from profiles.layout import Layout
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import task, trained

A, B = TaskId("gpt-a"), TaskId("gpt-b")
DEFAULTS = Policy().step_s


def told(world: World, name: TaskId = A) -> list[dict[str, Fact]]:
    return [
        dict(line.facts)
        for _, line in world.announcements
        if line.kind == "transition" and line.source == name
    ]


@pytest.fixture
def world() -> World:
    world = World(demo_machine(), num_iterations=10**6)
    trained(world, 7)
    return world


@pytest.mark.parametrize(
    ("old", "new", "is_same_place", "has_new_process", "kind"),
    [
        (Layout(dp=2), Layout(dp=2), True, False, "reattempt"),
        (Layout(dp=2), Layout(dp=2), True, True, "restart"),
        (Layout(dp=2), Layout(dp=2), False, True, "move"),
        (Layout(dp=4), Layout(dp=2), False, False, "shrink"),
        (Layout(dp=2), Layout(dp=4), False, True, "grow"),
        (Layout(tp=2), Layout(dp=2), True, True, "layout change"),
        (Layout(pp=2), Layout(dp=2), True, True, "layout change"),
    ],
)
def test_every_transition_has_a_name(
    old: Layout, new: Layout, is_same_place: bool, has_new_process: bool, kind: TransitionKind
) -> None:
    found = kind_of(old, new, is_same_place=is_same_place, has_new_process=has_new_process)
    assert found == kind


def test_the_first_start_is_no_transition(world: World) -> None:
    assert task(world).transitions.current is None
    assert not told(world)


def test_a_restart_tells_what_each_step_took(world: World) -> None:
    world.kill_rank("gpt-a", 1)
    trained(world, 10)
    [facts] = told(world)
    transition = task(world).transitions.current
    assert transition is not None
    assert transition.is_done
    assert (transition.kind, facts["transition"]) == ("restart", "restart")
    assert list(transition.actual_s) == ["park", "start", "form", "state", "first iteration"]
    assert transition.predicted_s == {step: DEFAULTS[step] for step in transition.actual_s}
    assert transition.actual_s["form"] == pytest.approx(0.04)
    assert transition.actual_s["state"] == pytest.approx(0.01)
    incident = world.machine.state.incidents.all[0]
    parks_at = min(item.at for item in incident.evidence if item.is_conclusive)
    assert incident.recovery.recovery_s == pytest.approx(
        transition.total_actual_s + parks_at - incident.cause.fault_at
    )


def test_what_a_transition_took_is_expected_of_the_next(world: World) -> None:
    world.kill_rank("gpt-a", 1)
    trained(world, 10)
    first = task(world).transitions.current
    world.kill_rank("gpt-a", 1)
    trained(world, 14)
    second = task(world).transitions.current
    assert first is not None
    assert second is not None
    assert second.total_predicted_s == pytest.approx(first.total_actual_s)
    mean_s = task(world).transitions.experience.mean_s["restart", "first iteration"]
    low, high = sorted(t.actual_s["first iteration"] for t in (first, second))
    assert low <= mean_s <= high


def test_the_planner_expects_what_tasks_have_taught(world: World) -> None:
    before_s = expected_transition_s(world.machine.policy, task(world, B))
    assert before_s == pytest.approx(sum(DEFAULTS.values()) - DEFAULTS["stop"])
    world.lose_node("n2")
    trained(world, 14)
    assert told(world, B)[0]["transition"] == "shrink"
    experience = task(world, B).transitions.experience
    assert experience.expected_s(("shrink",), DEFAULTS) < before_s
    # What it has not done yet it is taken to do alike.
    assert experience.expected_s(("grow",), DEFAULTS) == experience.expected_s(
        ("shrink",), DEFAULTS
    )
    [plan] = world.machine.state.plans.all
    assert plan.changes[B].transition_s == pytest.approx(before_s)  # as it was then


def test_a_stop_is_a_step_of_its_own() -> None:
    experience = Experience()
    transition = experience.begin("layout change", ("stop", 3.0), 10.0, DEFAULTS)
    transition.join(14.0, form_s=0.5, state_s=1.5)
    transition.finish(16.0)
    experience.learn(transition)
    assert transition.actual_s == {
        "stop": 3.0, "start": 2.0, "form": 0.5, "state": 1.5, "first iteration": 2.0,
    }  # fmt: skip
    assert experience.expected_s(("layout change",), DEFAULTS) == pytest.approx(9.0)


def test_a_step_is_expected_to_take_what_it_took_in_the_slowest_kind() -> None:
    experience = Experience()
    form_s_by_kind: dict[TransitionKind, float] = {"restart": 0.25, "shrink": 0.75}
    for kind, form_s in form_s_by_kind.items():
        transition = experience.begin(kind, ("park", 0.5), 0.0, DEFAULTS)
        transition.join(2.0, form_s=form_s, state_s=1.0)
        transition.finish(3.0)
        experience.learn(transition)
    predicted = experience.begin("move", ("park", 0.5), 0.0, DEFAULTS).predicted_s
    assert predicted["form"] == 0.75
    assert predicted["start"] == 0.75
    stops = experience.begin("layout change", ("stop", 3.0), 0.0, DEFAULTS).predicted_s
    assert stops["stop"] == DEFAULTS["stop"]


def test_a_transition_of_which_a_step_is_not_known_teaches_nothing() -> None:
    experience = Experience()
    transition = experience.begin("restart", ("park", 0.1), 1.0, DEFAULTS)
    transition.finish(3.0)
    experience.learn(transition)
    assert not experience.mean_s


def test_waiting_for_an_operator_belongs_to_no_step() -> None:
    world = World(demo_machine(is_auto_heal=False), num_iterations=10**6)
    trained(world, 7)
    world.lose_node("n2")
    world.run(world.now + 40.0)
    transition = task(world).transitions.current
    assert transition is not None
    assert transition.kind == "shrink"
    assert transition.total_actual_s < 3.0
