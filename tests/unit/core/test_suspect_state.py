"""State with wrong losses: another source is tried, and no node is blamed."""

from controller.core.state.phases import IncidentState, TaskPhase
from nodeagent.protocol.ids import TaskId
from nodeagent.protocol.observations import CheckpointMissed, CheckpointSaved
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import newest_incident, pids, task, task_trained

A, B = TaskId("gpt-a"), TaskId("gpt-b")


def refuse_the_state(world: World, error: str = "SuspectStateError") -> None:
    """All ranks refuse the vote on an iteration, as they do after a load, or the load itself."""
    world.run_until(lambda: all(rank.joined for rank in task(world).ranks.values()))
    raise_in_all(world, error)


def raise_in_all(world: World, error: str) -> None:
    generation = task(world).generation
    for number in sorted(task(world).ranks):
        _, rank = world.rank(A, number)
        rank.has_state, rank.copies = False, ()
        world.raise_in_rank(A, number, error, "loss 9, and 5 before", is_lasting=False)
    world.run_until(lambda: task(world).generation > generation or not task(world).can_regroup)


def running_world() -> World:
    world = World(demo_machine(is_auto_heal=True, num_nodes=4), num_iterations=10**6)
    task_trained(world, 7)
    return world


def test_all_ranks_go_on_with_the_state_from_elsewhere() -> None:
    world = running_world()
    before, generation_of_b = pids(world), task(world, B).generation
    for number in range(3):
        refuse_the_state(world)
        assert newest_incident(world).cause.status == "nan_loss", number
        assert newest_incident(world).cause.action == "reattempt"
        assert task(world).resume is not None
        assert task(world).resume.source == "disk"
    task_trained(world, 12)
    assert pids(world) == before
    assert task(world, B).generation == generation_of_b
    assert not any(node.service.isolated for node in world.machine.state.nodes.values())
    assert newest_incident(world).state is IncidentState.RESOLVED


def test_a_checkpoint_that_is_out_of_use_does_not_outdate_newer_copies_in_memory() -> None:
    world = running_world()
    node, rank = world.rank(A, 0)
    who = {"task": A, "generation": rank.generation, "global_rank": 0}
    saved = {"iteration": 5, "duration_s": 1.0, "num_bytes": 1}
    world.observe(node, CheckpointSaved.model_validate(who | saved))
    assert task(world).progress.checkpoint_iteration == 5
    world.tasks[A].checkpoint = 0  # it is in quarantine
    refuse_the_state(world)
    world.run_until(lambda: all(rank.joined for rank in task(world).ranks.values()))
    assert task(world).progress.checkpoint_iteration == 0


def test_operators_hear_of_a_checkpoint_that_was_given_up() -> None:
    world = running_world()
    node, rank = world.rank(A, 0)
    missed = CheckpointMissed(
        task=A,
        generation=rank.generation,
        global_rank=0,
        iteration=5,
        reason="not saved by rank 1: no room on the disk",
    )
    world.observe(node, missed)
    [told] = [each for _, each in world.announcements if each.kind == "checkpoint_missed"]
    assert told.level == "warning"
    assert told.text == "no checkpoint of iteration 5: not saved by rank 1: no room on the disk"


def test_checkpoints_that_can_not_be_loaded_are_no_nodes_fault() -> None:
    world = running_world()
    before = pids(world)
    refuse_the_state(world, "CheckpointError")
    task_trained(world, 9)
    assert newest_incident(world).state is IncidentState.RESOLVED
    while task(world).can_regroup:
        assert pids(world) == before
        refuse_the_state(world, "CheckpointError")
        assert (newest_incident(world).cause.action == "reattempt") is task(world).can_regroup
    world.run(world.now + 5.0)
    assert task(world).lifecycle.phase is TaskPhase.HELD
    assert not any(node.service.isolated for node in world.machine.state.nodes.values())
    [told] = [each for _, each in world.announcements if each.kind == "held"]
    assert "CheckpointError: loss 9, and 5 before: the task is held" in told.text


def test_nor_are_those_that_can_not_be_loaded_at_the_first_start() -> None:
    world = World(demo_machine(is_auto_heal=True, num_nodes=4), num_iterations=10**6)
    world.run_until(lambda: bool(task(world).ranks) and None not in pids(world))
    before = pids(world)
    assert not any(rank.joined for rank in task(world).ranks.values())
    raise_in_all(world, "CheckpointError")
    assert newest_incident(world).cause.action == "reattempt"
    task_trained(world, 3)
    assert pids(world) == before
    assert not any(node.service.isolated for node in world.machine.state.nodes.values())


def test_operators_hear_of_copies_that_are_not_made_any_more() -> None:
    world = running_world()
    node, rank = world.rank(A, 1)
    missed = CheckpointMissed(
        task=A, generation=rank.generation, global_rank=1, tier="memory", iteration=5,
        reason="no host memory for it: MemoryError",
    )  # fmt: skip
    world.observe(node, missed)
    [told] = [each for _, each in world.announcements if each.kind == "checkpoint_missed"]
    assert told.text == (
        "no in-memory checkpoints from iteration 5 on, until the next generation; rank 1:"
        " no host memory for it: MemoryError"
    )


def test_it_does_not_go_on_for_ever() -> None:
    world = running_world()
    while task(world).can_regroup:
        refuse_the_state(world)
        assert len(world.machine.state.incidents.all) <= world.machine.policy.max_recoveries + 1
    world.run(world.now + 5.0)
    assert task(world).lifecycle.phase is TaskPhase.HELD
    assert not any(node.service.isolated for node in world.machine.state.nodes.values())
