"""Single GPUs that are taken out of service, and come back; the rest of their nodes trains on."""

from controller.api.projection import Frame, project
from controller.core.events import UncordonRequested
from controller.core.machine import Machine
from controller.core.rules.placement import Worker
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.phases import IncidentState, NodeCondition, TaskPhase
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.clusters import table
from tests.fakes.world import World
from tests.fakes.world_queries import node, running_world

N1 = NodeId("n1")
CUDA = "CUDA error: unspecified launch failure"


def rank_at(world: World, worker: Worker) -> tuple[str, int] | None:
    """Return the task and the rank that live at ``worker``."""
    for name, task in world.machine.state.tasks.items():
        for number, rank in task.living_ranks.items():
            if rank.worker == worker:
                return name, number
    return None


def fault_at(world: World, worker: Worker) -> None:
    """Let the rank at ``worker`` raise, and everything settle."""
    found = rank_at(world, worker)
    assert found is not None
    task, number = found
    num = len(world.machine.state.incidents.all)
    world.raise_in_rank(task, number, "RuntimeError", CUDA)
    world.run_until(
        lambda: (
            len(world.machine.state.incidents.all) > num
            and world.machine.state.incidents.all[-1].state is IncidentState.RESOLVED
        )
    )
    world.run(world.now + 5.0)


def uncordon(world: World, gpu: int | None = None, *, is_forced: bool = False) -> tuple[str, str]:
    world.post(UncordonRequested("r", "op", N1, is_forced, gpu))
    return world.answers[-1].code, world.answers[-1].message


def world_without_gpu(policy: Policy | None = None) -> World:
    """Return a world where GPU 1 of n1 has failed twice."""
    world = running_world(policy=policy)
    worker = Worker(N1, 1)
    fault_at(world, worker)
    assert not node(world).service.isolated_gpus
    fault_at(world, worker)
    return world


def test_a_gpu_whose_faults_repeat_is_isolated_and_its_neighbour_trains_on() -> None:
    world = world_without_gpu()
    incident = world.machine.state.incidents.all[-1]
    assert (incident.cause.severity, incident.cause.action) == ("SEV1", "reconfigure")
    assert "2 faults of GPU 1 on n1 within 3600 s" in incident.cause.reason
    assert list(node(world).service.isolated_gpus) == [1]
    [line] = [line.text for _, line in world.announcements if line.kind == "isolated"]
    assert line.endswith("; to return it to service: unicron uncordon n1:1")
    assert not node(world).service.isolated
    assert node(world).is_in_service
    assert rank_at(world, Worker(N1, 0)) is not None
    used = {worker for task in world.machine.state.tasks.values() for worker in task.placement}
    assert Worker(N1, 1) not in used
    assert len(used) >= 6
    assert all(rank.worker != 1 for rank in world.nodes[N1].ranks.values()), "its rank is ended"


def test_the_plan_says_which_gpu_is_out() -> None:
    world = world_without_gpu()
    plan = world.machine.state.plans.all[-1]
    assert plan.steps[0] == "isolate GPU 1 of n1"
    assert plan.isolated_nodes == ()


def test_operators_see_which_gpu_is_out_and_why() -> None:
    world = world_without_gpu()
    frame = Frame(cluster="x", started_wall_s=0.0, is_auto_heal=True)
    view = project(world.machine.state, world.now, frame)
    reasons = [worker.isolated for worker in view.nodes[0].workers]
    assert reasons[0] == ""
    assert reasons[1].startswith("isolated by I-2: 2 faults of GPU 1 on n1")
    assert view.nodes[0].isolated == ""


def test_the_gpu_comes_back_by_its_own_name_and_is_used_again() -> None:
    world = world_without_gpu()
    assert uncordon(world, 0) == ("nothing", "GPU 0 of n1 is not isolated")
    assert uncordon(world, 1) == ("ok", "GPU 1 of n1 is back in service")
    world.run(world.now + 20.0)
    used = {worker for task in world.machine.state.tasks.values() for worker in task.placement}
    assert len(used) == 8
    fault_at(world, Worker(N1, 1))
    assert not node(world).service.isolated_gpus, "its old faults do not count any more"


def test_the_name_of_the_node_brings_all_its_gpus_back() -> None:
    world = world_without_gpu()
    assert uncordon(world) == ("ok", "n1 is back in service")
    assert not node(world).service.isolated_gpus


def test_the_name_of_a_gpu_leaves_its_node_isolated_and_says_so() -> None:
    world = world_without_gpu()
    node(world).service.isolated = "isolated by I-9: ECC errors"
    text = "GPU 1 of n1 is back in service; n1 itself stays isolated"
    assert uncordon(world, 1) == ("ok", text)
    assert node(world).service.isolated
    assert not node(world).service.isolated_gpus


def test_findings_of_other_gpus_do_not_keep_one_out() -> None:
    world = world_without_gpu()
    hot = NodeFinding(probe="gpu", sign="gpu_hot", subject="GPU 0", text="91 C")
    world.find("n1", hot)
    world.find("n1", hot.model_copy(update={"subject": "GPU 1"}))
    code, text = uncordon(world, 1)
    assert (code, text.count("still finds")) == ("unfit", 1)
    world.find("n1", hot.model_copy(update={"subject": "GPU 1", "is_over": True}))
    assert uncordon(world, 1)[0] == "ok"


def test_a_gpu_that_nobody_can_look_at_stays_out() -> None:
    world = world_without_gpu()
    world.find(
        "n1", NodeFinding(probe="gpu", sign="unreadable", subject="gpu probe", text="silent")
    )
    assert uncordon(world, 1)[0] == "unfit"
    assert uncordon(world, 1, is_forced=True)[0] == "ok"


def test_the_last_gpu_of_a_node_takes_the_node() -> None:
    world = world_without_gpu(Policy(is_auto_heal=True, restarts=10))
    fault_at(world, Worker(N1, 0))
    assert not node(world).service.isolated
    fault_at(world, Worker(N1, 0))
    assert "2 faults of GPU 0 on n1 within 3600 s" in node(world).service.isolated
    assert list(node(world).service.isolated_gpus) == [1]
    assert uncordon(world) == ("ok", "n1 is back in service")
    assert not node(world).service.isolated
    assert not node(world).service.isolated_gpus


def test_nodes_without_room_for_a_group_are_left_idle_and_a_smaller_division_is_found() -> None:
    """Six workers remain: one on each of two nodes, two on each of two. Two pairs fit."""
    pairs = TaskSpec(
        task=TaskId("pairs"), weight=1.0, workers=8, min_workers=2,
        table=table({2: 2e9, 4: 4e9, 6: 6e9, 8: 8e9}, tp=2), flops_per_iteration=1e9,
        num_iterations=None, num_micro_batches=12,
    )  # fmt: skip
    nodes = [NodeSpec(NodeId(f"n{number}"), f"127.0.0.1:{number}", 2) for number in range(1, 5)]
    world = World(Machine(nodes, [pairs], Policy(is_auto_heal=True)), num_iterations=10**6)
    world.run(4.0)
    task = world.machine.state.tasks[pairs.task]
    for name, num_left in ((N1, 6), (NodeId("n2"), 4)):
        fault_at(world, Worker(name, 1))
        fault_at(world, Worker(name, 1))
        assert task.lifecycle.phase is TaskPhase.RUNNING
        assert len(task.placement) == num_left
    assert {worker.node for worker in task.placement} == {"n3", "n4"}
    plan = world.machine.state.plans.all[-1]
    assert plan.problem.num_workers == 6
    assert plan.why.startswith("pairs 6 would be better, but has no placement (the tensor-parallel")
    assert "; the next best that has one: pairs shrinks 6 -> 4" in plan.why


def test_a_node_that_comes_back_does_not_bring_its_isolated_gpu_into_service() -> None:
    world = world_without_gpu()
    world.lose_node("n1")
    world.run(world.now + 10.0)
    assert node(world).contact.condition is NodeCondition.LOST
    world.restore_node("n1")
    world.run(world.now + 20.0)
    assert node(world).contact.condition is NodeCondition.HEALTHY
    assert list(node(world).service.isolated_gpus) == [1]


def test_a_gpu_that_is_out_for_its_record_stays_out_when_another_fault_follows() -> None:
    world = running_world()
    fault_at(world, Worker(N1, 1))
    task, number = rank_at(world, Worker(N1, 1)) or ("", -1)
    world.raise_in_rank(task, number, "RuntimeError", CUDA)
    world.run_until(lambda: bool(node(world).service.isolated_gpus))
    world.run_until(
        lambda: world.machine.state.tasks[TaskId(task)].lifecycle.phase is TaskPhase.STARTING
    )
    world.run(world.now + 0.2)  # its ranks have taken up their new places
    other = next(
        number
        for number, rank in world.machine.state.tasks[TaskId(task)].ranks.items()
        if rank.continues and rank.worker.node != N1
    )
    world.kill_rank(task, other)  # before an iteration was committed
    world.run(world.now + 20.0)
    assert list(node(world).service.isolated_gpus) == [1]


def test_the_last_node_keeps_the_gpus_that_its_task_can_not_do_without() -> None:
    pair = TaskSpec(
        task=TaskId("pair"), weight=1.0, workers=2, min_workers=2,
        table=table({2: 2e9}, tp=2), flops_per_iteration=1e9, num_iterations=None,
        num_micro_batches=4,
    )  # fmt: skip
    nodes = [NodeSpec(N1, "127.0.0.1:1", 2)]
    world = World(Machine(nodes, [pair], Policy(is_auto_heal=True)), num_iterations=10**6)
    world.run(4.0)
    fault_at(world, Worker(N1, 1))
    fault_at(world, Worker(N1, 1))
    assert not node(world).service.isolated_gpus
    assert world.machine.state.tasks[pair.task].lifecycle.phase is TaskPhase.RUNNING


def test_usable_workers_are_counted_as_each_of_them_is_judged() -> None:
    world = running_world()
    state = world.machine.state
    workers = [
        Worker(name, slot)
        for name, each in state.nodes.items()
        for slot in range(each.spec.num_workers)
    ]
    assert state.num_usable(workers) == len(workers)
    node(world).service.isolate_gpu(1, "its faults repeat")
    assert state.num_usable(workers) == len(workers) - 1
    assert state.num_usable([Worker(N1, 0)]) == 1
    node(world).service.isolate("its faults repeat")
    num = len(workers) - node(world).spec.num_workers
    assert state.num_usable(workers) == num == sum(map(state.can_use, workers))
