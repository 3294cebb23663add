"""Divisions without a placement: the next best division, and its announcement."""

from controller.core.machine import Machine
from controller.core.planning.placed_division import divide
from controller.core.planning.problem import Available
from controller.core.rules.planner.solver import Division
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.clusters import table
from tests.fakes.world import World


def spec(name: str, rate_by_size: dict[int, float], tp: int) -> TaskSpec:
    return TaskSpec(
        task=TaskId(name), weight=1.0, workers=tp, min_workers=tp, table=table(rate_by_size, tp),
        flops_per_iteration=1e9, num_iterations=None, num_micro_batches=12,
    )  # fmt: skip


def pairs(name: str, num_sizes: int, rate: float) -> TaskSpec:
    return spec(name, {2 * n: rate * n for n in range(1, num_sizes + 1)}, tp=2)


def divided(tasks: list[TaskSpec], node_sizes: list[int]) -> tuple[Division, dict[str, int]]:
    """Return the decision, and how many workers each task got."""
    nodes = [NodeSpec(NodeId(f"n{i}"), "", size) for i, size in enumerate(node_sizes)]
    world = World(Machine(nodes, tasks, Policy()), num_iterations=10**6)
    world.run(4.0)
    state = world.machine.state
    turn = Turn(state, world.machine.policy, cause=0, at=world.now)
    planned = list(state.tasks.values())
    decision, targets = divide(turn, planned, Available(turn, planned))
    return decision, {name: len(target.placement) for name, target in targets.items()}


def test_a_division_that_has_a_placement_is_taken_as_it_is() -> None:
    decision, placed = divided([pairs("a", 4, 2e9)], [4, 4])
    assert placed == {"a": 8}
    assert decision.why == "a grows 2 -> 8: weighted 2.0 -> 8.0 GFLOP/s"


def test_the_next_best_takes_from_the_task_that_is_worth_the_least() -> None:
    """Three nodes of three have room for three pairs; workers there are for four."""
    decision, placed = divided([pairs("a", 2, 3e9), pairs("b", 2, 2e9)], [3, 3, 3])
    assert decision.problem.num_workers == 9
    assert placed == {"a": 4, "b": 2}
    assert decision.why.startswith("b 4 would be better, but has no placement (the tensor-parallel")
    assert "; the next best that has one: a grows 2 -> 4 and b keeps 2" in decision.why
    assert ", like " not in decision.why


def test_sizes_that_have_no_place_even_for_a_task_alone_are_not_tried_one_by_one() -> None:
    decision, placed = divided([pairs("a", 60, 2e9)], [3] * 40)
    assert placed == {"a": 80}
    assert "; the next best that has one: a grows 2 -> 80" in decision.why
    assert ", like " not in decision.why


def test_where_too_many_divisions_have_no_placement_some_workers_stay_idle() -> None:
    """Of 120 workers 40 pairs can be made.

    More than 256 divisions come before those that do with 40.
    """
    decision, placed = divided([pairs("a", 40, 3e9), pairs("b", 40, 2.9e9)], [3] * 40)
    assert sum(placed.values()) == 80
    assert "), like 255 more; " in decision.why
    assert (
        "the best of 39 workers less, since the search for the next best timed out" in decision.why
    )
