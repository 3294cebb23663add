"""Nodes that operators cordon, drain, isolate and repair, while tasks train on them."""

from dataclasses import replace

import pytest

from controller.core.events import (
    ControllerStarted,
    NodeAdded,
    NodeOrder,
    NodeOrdered,
    NodeRemoved,
    PlanApproved,
    TaskChanged,
    TaskLimited,
    UncordonRequested,
)
from controller.core.instructions import AnswerRequest
from controller.core.rules.approval import ApprovalRule
from controller.core.rules.placement import Worker
from controller.core.rules.policy import Policy
from controller.core.state.phases import NodeCondition, PlanState, TaskPhase
from controller.core.state.upkeep import UpkeepState
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import A, all_run, node, task

B = TaskId("gpt-b")


def new_world(*, num_nodes: int = 5, is_auto_heal: bool = True) -> World:
    """Return two tasks of four workers that train on nodes of two workers."""
    world = World(
        demo_machine(num_nodes=num_nodes, is_auto_heal=is_auto_heal), num_iterations=10**6
    )
    world.run_until(lambda: all_run(world))
    world.run(world.now + 3.0)
    return world


def order(
    world: World, verb: NodeOrder, name: str = "n1", *, is_forced: bool = False
) -> AnswerRequest:
    world.post(NodeOrdered("r", "ann", verb, NodeId(name), "new fan", is_forced=is_forced))
    return world.answers[-1]


def uncordon(world: World, name: str = "n1") -> AnswerRequest:
    world.post(UncordonRequested("r", "ann", NodeId(name)))
    return world.answers[-1]


def users(world: World, name: str) -> set[str]:
    """Return the tasks with a rank on a node."""
    return {
        str(each.spec.task) for each in world.machine.state.tasks.values() if name in each.nodes
    }


def is_(world: World, state: UpkeepState, name: str = "n1") -> bool:
    return node(world, name).upkeep.state is state


def reruns(world: World) -> int:
    return sum(each.progress.num_rerun_iterations for each in world.machine.state.tasks.values())


# --- cordon -----------------------------------------------------------------------------------


def test_a_cordoned_node_keeps_what_it_has_and_gets_nothing_new() -> None:
    world = new_world(num_nodes=5)
    [spare] = [f"n{n}" for n in range(1, 6) if not users(world, f"n{n}")]
    user = next(iter(users(world, "n1")))
    told = order(world, "cordon")
    assert told.message == f"n1 is cordoned: nothing new is placed there; {user} stays there"
    order(world, "cordon", spare)
    world.run(world.now + 20.0)
    assert users(world, "n1") == {user}
    lost = next(f"n{n}" for n in range(2, 6) if users(world, f"n{n}") and f"n{n}" != spare)
    world.lose_node(lost)
    world.run_until(lambda: world.machine.state.plans.all and all_run(world))
    world.run(world.now + 20.0)
    assert users(world, spare) == set(), "nothing new is placed on the free node"
    assert users(world, "n1") <= {user}
    assert uncordon(world, spare).message == f"{spare} gets work again"
    world.run_until(lambda: users(world, spare))


def test_a_rank_that_fails_on_a_cordoned_node_starts_there_again() -> None:
    world = new_world(num_nodes=4)
    number, rank = next((n, r) for n, r in task(world).ranks.items())
    order(world, "cordon", rank.worker.node)
    world.kill_rank(A, number)
    world.run_until(lambda: task(world).generation > 1 and all_run(world))
    assert task(world).ranks[number].worker == rank.worker


def test_no_other_task_gets_the_workers_that_a_task_leaves_on_a_cordoned_node() -> None:
    world = new_world(num_nodes=4)
    held = set(task(world).placement)
    for name in {worker.node for worker in held}:
        order(world, "cordon", name)
    world.post(TaskLimited("r", "ann", A, max_workers=2))
    world.run_until(lambda: len(task(world).placement) == 2 and all_run(world))
    world.run(world.now + 20.0)
    assert not held & set(task(world, B).placement)


def test_a_task_that_gains_by_it_does_not_get_workers_of_a_cordoned_node_either() -> None:
    world = new_world(num_nodes=4)
    held = set(task(world).placement)
    for name in {worker.node for worker in held}:
        order(world, "cordon", name)
    world.lose_node(next(iter(task(world, B).nodes)))
    world.run_until(lambda: world.machine.state.plans.all and all_run(world))
    world.post(TaskLimited("r", "ann", B, weight=50.0))
    world.run(world.now + 30.0)
    assert not held & set(task(world, B).placement)
    for name in {worker.node for worker in held}:
        uncordon(world, name)
    world.run_until(lambda: len(task(world, B).placement) == 4)


def test_a_plan_that_waits_does_not_move_anything_to_a_node_that_is_cordoned_meanwhile() -> None:
    world = new_world(num_nodes=5, is_auto_heal=False)
    [spare] = [f"n{n}" for n in range(1, 6) if not users(world, f"n{n}")]
    world.lose_node(next(iter(task(world).nodes)))
    plan = world.run_until(world.machine.state.plans.pending)
    targets = [change.target for change in plan.changes.values() if change.target]
    assert any(target.uses(NodeId(spare)) for target in targets)
    order(world, "cordon", spare)
    world.run(world.now + 10.0)
    newer = world.machine.state.plans.pending()
    assert newer is not None
    targets = [change.target for change in newer.changes.values() if change.target]
    assert not any(target.uses(NodeId(spare)) for target in targets)


def test_before_anything_has_started_nothing_is_placed_on_a_cordoned_node() -> None:
    names = [f"n{n}" for n in range(1, 6)]
    world = World(demo_machine(num_nodes=5), absent=names)
    order(world, "cordon")
    spec = task(world).spec
    world.post(TaskChanged(replace(spec, hang_limit_s=9.0)))
    targets = [each.assignment.target for each in world.machine.state.tasks.values()]
    assert all(target and not target.uses(NodeId("n1")) for target in targets)


# --- drain ------------------------------------------------------------------------------------


def test_a_drained_nodes_task_goes_elsewhere_and_loses_no_iteration() -> None:
    world = new_world(num_nodes=5)
    told = order(world, "drain")
    assert told.is_ok
    assert told.message.startswith("n1 is drained by P-1, which moves ")
    assert is_(world, UpkeepState.DRAINING)
    world.run_until(lambda: is_(world, UpkeepState.DRAINED))
    world.run_until(lambda: all_run(world))
    world.run(world.now + 20.0)
    assert users(world, "n1") == set()
    assert reruns(world) == 0
    assert world.machine.state.incidents.all == []
    assert order(world, "drain").code == "nothing"
    assert uncordon(world).is_ok


def test_a_node_without_ranks_is_drained_at_once() -> None:
    world = new_world(num_nodes=5)
    [spare] = [f"n{n}" for n in range(1, 6) if not users(world, f"n{n}")]
    assert order(world, "drain", spare).message == f"{spare} is drained: nothing runs there"
    assert is_(world, UpkeepState.DRAINED, spare)


def test_a_drain_that_would_stop_a_task_says_so_unless_it_is_forced() -> None:
    world = new_world(num_nodes=4)
    for name in (A, B):
        world.post(TaskLimited("r", "ann", name, min_workers=4))
    told = order(world, "drain")
    assert told.code == "no_room"
    assert "would have to stop (it needs 4 workers), since 6 workers are left" in told.message
    assert is_(world, UpkeepState.NONE)
    world.run(world.now + 20.0)
    assert all_run(world)
    assert order(world, "drain", is_forced=True).is_ok
    world.run_until(lambda: is_(world, UpkeepState.DRAINED))
    world.run(world.now + 20.0)
    phases = {each.lifecycle.phase for each in world.machine.state.tasks.values()}
    assert phases == {TaskPhase.RUNNING, TaskPhase.STOPPED}


def test_a_drain_waits_for_the_approval_of_its_plan() -> None:
    world = new_world(num_nodes=5, is_auto_heal=False)
    told = order(world, "drain")
    assert told.message == "n1 is drained by P-1: approve it with unicron approve P-1:1"
    world.run(world.now + 20.0)
    assert users(world, "n1")
    assert all_run(world)
    plan = world.machine.state.plans.pending()
    assert plan is not None
    world.post(PlanApproved("r", "ann", plan.name, plan.revision))
    world.run_until(lambda: is_(world, UpkeepState.DRAINED))
    world.run_until(lambda: plan.state is PlanState.APPLIED)


def test_a_drain_that_policy_rejects_says_so() -> None:
    policy = Policy(is_auto_heal=True, approvals=(ApprovalRule("never"),))
    world = World(demo_machine(num_nodes=5, policy=policy), num_iterations=10**6)
    world.run_until(lambda: all_run(world))
    assert order(world, "drain").message == (
        "n1 is not drained yet: policy has rejected P-1, which would do it"
    )
    world.run(world.now + 20.0)
    assert all_run(world)


def test_a_drain_that_is_taken_back_changes_nothing() -> None:
    world = new_world(num_nodes=5, is_auto_heal=False)
    before = {name: each.placement for name, each in world.machine.state.tasks.items()}
    order(world, "drain")
    uncordon(world)
    assert world.machine.state.plans.pending() is None
    world.run(world.now + 10.0)
    assert {name: each.placement for name, each in world.machine.state.tasks.items()} == before


def test_a_node_out_of_contact_is_drained_once_it_is_back() -> None:
    world = new_world(num_nodes=5)
    world.cut("n1", 10.0)
    world.run_until(lambda: node(world).contact.condition is NodeCondition.UNREACHABLE)
    assert order(world, "drain").message == "n1 is unreachable: it is drained once it is in contact"
    world.run_until(lambda: is_(world, UpkeepState.DRAINED))
    assert reruns(world) == 0


# --- isolate ----------------------------------------------------------------------------------


def test_an_isolated_nodes_ranks_end_at_once_and_its_task_goes_on_with_the_rest() -> None:
    world = new_world(num_nodes=5)
    told = order(world, "isolate")
    assert told.message.startswith("n1 is isolated: a plan divides the rest for ")
    world.run_until(lambda: not users(world, "n1"))
    world.run_until(lambda: all_run(world))
    world.run(world.now + 20.0)
    assert users(world, "n1") == set()
    assert node(world).service.isolated == "isolated by ann: new fan"
    assert order(world, "isolate").code == "nothing"
    assert reruns(world) == 0
    assert uncordon(world).message == "n1 is back in service"


# --- repair -----------------------------------------------------------------------------------


def test_a_node_in_use_is_not_repaired() -> None:
    world = new_world()
    told = order(world, "repair")
    assert told.code == "unfit"
    assert told.message.endswith("drain it first, unicron drain n1")


def test_a_node_under_repair_comes_and_goes_without_an_incident_and_returns_by_itself() -> None:
    world = new_world(num_nodes=4)
    order(world, "drain")
    world.run_until(lambda: is_(world, UpkeepState.DRAINED) and all_run(world))
    assert order(world, "repair").is_ok
    world.lose_node("n1")
    world.run_until(lambda: node(world).contact.condition is NodeCondition.LOST)
    assert world.machine.state.incidents.all == []
    told = order(world, "return")
    assert told.message == "n1 returns once its checks pass: now it is lost"
    assert is_(world, UpkeepState.RETURNING)
    world.restore_node("n1")
    world.run_until(lambda: is_(world, UpkeepState.NONE))
    world.run_until(lambda: users(world, "n1"))
    assert reruns(world) == 0


def test_a_repaired_node_with_a_finding_waits_until_that_is_over() -> None:
    world = new_world(num_nodes=5)
    [spare] = [f"n{n}" for n in range(1, 6) if not users(world, f"n{n}")]
    order(world, "repair", spare)
    finding = NodeFinding(probe="disk", sign="disk_full", subject="/data", text="/data is full")
    world.find(spare, finding)
    told = order(world, "return", spare)
    assert (
        told.message == f"{spare} returns once its checks pass: now disk still finds /data is full"
    )
    world.run(world.now + 10.0)
    assert is_(world, UpkeepState.RETURNING, spare)
    world.find(spare, finding.model_copy(update={"is_over": True}))
    assert is_(world, UpkeepState.NONE, spare)


def test_a_return_may_be_forced_and_only_a_repair_returns() -> None:
    world = new_world(num_nodes=4)
    assert order(world, "return").message == "n1 is not under repair"
    order(world, "drain")
    world.run_until(lambda: is_(world, UpkeepState.DRAINED))
    order(world, "repair")
    assert order(world, "repair").code == "nothing"
    world.find("n1", NodeFinding(probe="disk", sign="disk_full", subject="/", text="/ is full"))
    assert order(world, "return", is_forced=True).message == "n1 is back in service"


def test_an_isolated_node_is_repaired_and_comes_back_whole() -> None:
    world = new_world(num_nodes=5)
    order(world, "isolate")
    world.run_until(lambda: not users(world, "n1") and all_run(world))
    world.run(world.now + 10.0)
    assert order(world, "repair").is_ok
    assert order(world, "return").message == "n1 is back in service"
    assert node(world).service.isolated == ""
    assert world.machine.state.can_use(Worker(NodeId("n1"), 0))


# --- all of them ------------------------------------------------------------------------------


def test_orders_are_there_for_the_next_controller() -> None:
    world = new_world(num_nodes=5)
    [spare] = [f"n{n}" for n in range(1, 6) if not users(world, f"n{n}")]
    order(world, "cordon", spare)
    world.post(ControllerStarted("run", 2, 0.0))
    world.run(world.now + 5.0)
    assert is_(world, UpkeepState.CORDONED, spare)
    assert node(world, spare).upkeep.actor == "ann"


@pytest.mark.parametrize("verb", ["cordon", "drain", "isolate", "repair", "return"])
def test_an_unknown_node_is_named(verb: NodeOrder) -> None:
    world = new_world()
    told = order(world, verb, "n9")
    assert (told.code, told.message) == (
        "unknown", "there is no node n9: n1, n2, n3, n4, n5 exist",
    )  # fmt: skip


def test_a_node_that_is_added_again_begins_without_orders() -> None:
    world = new_world(num_nodes=5)
    [spare] = [f"n{n}" for n in range(1, 6) if not users(world, f"n{n}")]
    order(world, "cordon", spare)
    spec = node(world, spare).spec
    world.post(NodeRemoved(NodeId(spare)))
    world.run(world.now + 1.0)
    world.post(NodeAdded(replace(spec, address="127.0.0.1:9")))
    assert is_(world, UpkeepState.NONE, spare)
