"""What-if on a state: the answer equals the later proposal, and the state does not change."""

import copy

import pytest

from controller.core.events import PlanRequested, UncordonRequested
from controller.core.machine import Machine
from controller.core.rehearsal import (
    ImpossibleError,
    Rehearsal,
    Supposition,
    rehearse,
    snapshot,
)
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.phases import PlanState, TaskPhase
from controller.core.state.plan import Plan
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.clusters import table
from tests.fakes.world import World
from tests.fakes.world_queries import all_run

A, B = TaskId("a"), TaskId("b")
SIZES_A = table({1: 6.4e9, 2: 10.5e9, 3: 15.0e9, 4: 18.9e9})
SIZES_B = table({2: 3.6e9, 4: 5.9e9}, tp=2)


def node(number: int) -> NodeId:
    return NodeId(f"n{number}")


def ask(world: World, **different: object) -> Rehearsal:
    machine = world.machine
    supposition = Supposition(**different)  # type: ignore[arg-type]
    return rehearse(snapshot(machine.state), machine.policy, world.now, supposition)


def running(
    *, is_auto_heal: bool = False, num_nodes: int = 3, absent: tuple[str, ...] = ()
) -> World:
    """Return a world in which a trains on n1 and n2 and b on n3, far from their ends."""
    machine = Machine(
        [NodeSpec(node(number), "h", 2) for number in range(1, num_nodes + 1)],
        [
            TaskSpec(A, 1.5, 4, 1, SIZES_A, 1e9, None, num_micro_batches=12),
            TaskSpec(B, 1.0, 2, 2, SIZES_B, 1e9, None, num_micro_batches=12),
        ],
        Policy(is_auto_heal=is_auto_heal, restarts=100),
    )
    world = World(machine, num_iterations=10**6, absent=absent)
    world.run_until(lambda: all_run(world))
    return world


def proposed(world: World) -> Plan:
    """Let time pass until there is a plan."""
    world.run_until(lambda: bool(world.machine.state.plans.all))
    return world.machine.state.plans.all[-1]


def assert_equal(answer: Rehearsal, plan: Plan) -> None:
    """Assert that a plan is the one of the answer."""
    foreseen = answer.plan
    assert foreseen is not None
    assert foreseen.state is PlanState.PENDING
    assert foreseen.changes == plan.changes
    assert foreseen.why == plan.why
    assert foreseen.isolated_nodes == plan.isolated_nodes
    assert (foreseen.waf_before, foreseen.waf_after) == (plan.waf_before, plan.waf_after)
    assert answer.after == {name: change.target for name, change in plan.changes.items()}
    assert sum(change.workers_after for change in plan.changes.values()) <= answer.num_workers


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("is_auto_heal", [False, True])
def test_the_loss_of_a_node_is_answered_as_the_core_then_plans(
    number: int, *, is_auto_heal: bool
) -> None:
    world = running(is_auto_heal=is_auto_heal)
    answer = ask(world, lost=(node(number),))
    world.lose_node(f"n{number}")
    assert_equal(answer, proposed(world))


def test_the_join_of_a_node_is_answered_as_the_core_then_plans() -> None:
    world = running(num_nodes=4, absent=("n4",))
    answer = ask(world, added={node(4): 0})
    world.restore_node("n4")
    assert_equal(answer, proposed(world))
    assert answer.num_workers == 8


def test_the_return_of_a_lost_node_is_answered_as_the_core_then_plans() -> None:
    world = running(is_auto_heal=True)
    world.lose_node("n1")
    world.run_until(lambda: world.machine.state.plans.num_named == 1)
    world.run_until(lambda: world.machine.state.plans.executing() is None)
    answer = ask(world, added={node(1): 0})
    assert answer.before[B] is None, "b was stopped for the loss"
    world.restore_node("n1")
    world.run_until(lambda: world.machine.state.plans.num_named == 2)
    assert_equal(answer, world.machine.state.plans.all[-1])


@pytest.mark.parametrize("gpu", [None, 1])
def test_the_return_of_what_is_isolated_is_answered_as_the_core_then_plans(gpu: int | None) -> None:
    world = running(num_nodes=4, absent=("n4",))
    state = world.machine.state.nodes[node(4)]
    if gpu is None:
        state.service.isolated = "looked at"
    else:
        state.service.isolated_gpus[gpu] = "looked at"
    world.restore_node("n4")
    assert not world.machine.state.plans.all, "one more worker is of no use to b"
    answer = ask(world, added={node(4): 0})
    world.post(UncordonRequested("1", "somebody", node(4), is_forced=True, gpu=gpu))
    assert_equal(answer, proposed(world))
    assert answer.num_workers == 8


def test_the_end_of_a_task_is_answered_as_the_core_then_plans() -> None:
    world = running()
    tasks = world.machine.state.tasks
    while (
        tasks[A].progress.iteration < tasks[B].progress.iteration + 3
    ):  # so that b is far from its end
        world.kill_rank("b", 0)
        world.run(world.now + 10)
    answer = ask(world, finished=(A,))
    world.num_iterations = tasks[A].progress.iteration + 1
    plan = proposed(world)
    assert set(plan.changes) == {B}
    assert plan.changes[B].workers_after == 4
    assert_equal(answer, plan)


def test_an_operators_own_request_is_answered_as_the_core_then_plans() -> None:
    world = running(num_nodes=4, absent=("n4",))
    world.machine.state.nodes[node(4)].service.isolated = "looked at"
    world.restore_node("n4")
    world.machine.state.nodes[node(4)].service.isolated = ""
    answer = ask(world)
    world.post(PlanRequested("1", "somebody"))
    assert_equal(answer, proposed(world))


def test_a_task_that_is_held_takes_part_where_an_operator_asks_and_not_otherwise() -> None:
    world = running()
    world.raise_in_rank("b", 0, kind="ProgramError")
    world.run_until(lambda: world.machine.state.tasks[B].lifecycle.phase is TaskPhase.HELD)
    by_itself = ask(world, lost=(node(1),))
    assert by_itself.left_alone == {B: TaskPhase.HELD}
    answer = ask(world)
    assert set(answer.after) == {A, B}
    world.post(PlanRequested("1", "somebody"))
    assert_equal(answer, proposed(world))


def test_asking_changes_nothing_of_the_state() -> None:
    world = running()
    world.lose_node("n3")  # a plan is pending: a rehearsal would revise it
    proposed(world)
    before = copy.deepcopy(world.machine.state)
    answer = ask(
        world, lost=(node(1),), num_added=4, weights={B: 9.0}, faulted=(A,), added={node(3): 0}
    )
    assert answer.plan is not None
    assert answer.plan.revision == 2
    assert world.machine.state == before


def test_a_weight_decides_who_keeps_workers() -> None:
    world = running()
    kept = ask(world, lost=(node(3),))
    assert kept.plan is not None
    assert {name: c.workers_after for name, c in kept.plan.changes.items()} == {A: 4, B: 0}
    turned = ask(world, lost=(node(3),), weights={B: 90.0})
    assert turned.plan is not None
    assert turned.plan.changes[B].workers_after == 4
    assert turned.plan.changes[A].target is None


def test_added_workers_come_in_nodes_of_the_usual_size() -> None:
    world = running()
    answer = ask(world, num_added=3)
    assert answer.num_workers == 9
    target = answer.after[B]
    assert target is not None
    assert {worker.node for worker in target.placement} == {node(3), NodeId("new-1")}


def test_new_nodes_get_names_of_their_own() -> None:
    answer = ask(running(), num_added=2, added={NodeId("new-1"): 4})
    assert answer.num_workers == 12


def test_a_node_that_is_named_twice_is_lost_once() -> None:
    world = running()
    twice, once = ask(world, lost=(node(1), node(1))), ask(world, lost=(node(1),))
    assert twice.plan is not None
    assert twice.after == once.after


def test_a_faulted_task_pays_for_its_transition_at_the_same_size() -> None:
    answer = ask(running(), faulted=(A,))
    assert answer.plan is not None
    assert answer.plan.changes[A].is_faulted
    assert answer.plan.changes[A].workers_after == 4
    assert [task.is_faulted for task in answer.tasks] == [True, False]


def test_where_nothing_would_change_it_is_said_so() -> None:
    answer = ask(running())
    assert answer.plan is None
    assert answer.why_none == "no plan would change anything"
    assert answer.after == answer.before


def test_a_task_that_nobody_may_move_is_left_alone() -> None:
    world = running()
    world.cut("n3", for_s=1000)
    world.run(world.now + 1)
    answer = ask(world, lost=(node(1),))
    assert answer.left_alone == {B: TaskPhase.RUNNING}
    assert set(answer.after) == {A}
    assert answer.num_workers == 2


@pytest.mark.parametrize(
    ("different", "words"),
    [
        ({"lost": (node(9),)}, "there is no node 'n9'; there are n1, n2, n3, n4"),
        ({"lost": (node(4),)}, "n4 has never been in contact: it can't be lost"),
        ({"lost": (node(3),)}, "n3 is lost already: it can't be lost"),
        ({"added": {node(1): 0}}, "n1 is in service already; name a new node"),
        ({"added": {node(3): 8}}, "n3 has 2 workers, not 8"),
        ({"weights": {TaskId("c"): 1.0}}, "there is no task 'c'; there are a, b"),
        ({"finished": (TaskId("c"),)}, "there is no task 'c'"),
        ({"faulted": (TaskId("c"),)}, "there is no task 'c'"),
        ({"finished": (A,), "faulted": (A,)}, "a has finished: it can't be faulted"),
        ({"finished": (B,)}, "b is waiting: only what trains can finish"),
    ],
)
def test_what_can_not_be_is_refused(different: dict[str, object], words: str) -> None:
    world = running(num_nodes=4, absent=("n4",))
    world.lose_node("n3")
    proposed(world)
    with pytest.raises(ImpossibleError, match=words):
        ask(world, **different)
