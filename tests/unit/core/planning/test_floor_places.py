"""Tasks that keep running, on nodes: against brute force, and in a machine that loses nodes."""

import itertools
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from controller.core.machine import Machine
from controller.core.planning.placed_division import FloorPlaces, divide
from controller.core.planning.problem import Available
from controller.core.rules.placement import Unplaceable, place
from controller.core.rules.planner.cost import PlanTask, Quantum, earned, forgone
from controller.core.rules.planner.solver import Division
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.phases import TaskPhase
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.layout import Layout
from profiles.rates import Rates
from profiles.throughput import ThroughputPoint, ThroughputTable
from tests.fakes.clusters import table
from tests.fakes.world import World
from tests.property.test_planner import Sizes, best_first


def spec(
    name: str, points: dict[int, tuple[float, int]], *, weight: float = 1.0, keeps: bool = True
) -> TaskSpec:
    """Return a task; its table has the rate and the tp of each size."""
    layouts = ThroughputTable(
        points=tuple(
            ThroughputPoint(workers=size, flops_per_s=rate, layout=Layout(tp=tp, dp=size // tp))
            for size, (rate, tp) in points.items()
        )
    )
    return TaskSpec(
        task=TaskId(name), weight=weight, workers=min(points), min_workers=min(points),
        table=layouts, flops_per_iteration=1e9, num_iterations=None, num_micro_batches=24,
        keeps_running=keeps,
    )  # fmt: skip


def divided(tasks: list[TaskSpec], node_sizes: list[int]) -> tuple[Division, Available]:
    """Return the decision for tasks that have lost all their workers."""
    nodes = [NodeSpec(NodeId(f"n{i}"), "", size) for i, size in enumerate(node_sizes)]
    world = World(Machine(nodes, [], Policy()), num_iterations=10**6)
    world.run(4.0)
    begun = NodeSpec(NodeId("gone"), "", sum(max(task.table.sizes) for task in tasks))
    state = Machine([begun], tasks, Policy()).state
    state.nodes.clear()
    state.nodes.update(world.machine.state.nodes)
    for task in state.tasks.values():
        task.assignment.lose_target()
    turn = Turn(state, world.machine.policy, cause=0, at=world.now)
    planned = list(state.tasks.values())
    available = Available(turn, planned)
    decision, targets = divide(turn, planned, available)
    placed = {name: len(target.placement) for name, target in targets.items()}
    assert placed == {name: size for name, size in decision.assignments.items() if size}
    return decision, available


@st.composite
def specs(draw: st.DrawFn) -> list[TaskSpec]:
    """Groups of several sizes, and rates that seldom make it worth while to run all tasks."""
    tasks = []
    for name in "abc"[: draw(st.integers(2, 3))]:
        sizes = draw(st.sets(st.integers(1, 3), min_size=1, max_size=3))
        points = {}
        for num in sizes:
            tp = draw(st.sampled_from([1, 2, 2, 3, 4]))
            points[num * tp] = (float(draw(st.sampled_from([1, 2, 9, 50])) * num * tp), tp)
        weight = float(draw(st.integers(1, 3)))
        tasks.append(spec(name, points, weight=weight, keeps=draw(st.booleans())))
    return tasks


@given(tasks=specs(), node_sizes=st.lists(st.integers(1, 5), min_size=2, max_size=4))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_plan_is_the_best_that_has_places_and_keeps_them_running(
    tasks: list[TaskSpec], node_sizes: list[int]
) -> None:
    decision, available = divided(tasks, node_sizes)
    asked, running_s = decision.problem.tasks, decision.problem.running_s
    table_of = {task.task: task.table for task in tasks}

    def has_places(sizes: Sizes) -> bool:
        layouts = {
            task.name: table_of[task.name].layout(size)
            for task, size in zip(asked, sizes, strict=True)
            if size
        }
        return not isinstance(place(layouts, {}, available.workers_by_node), Unplaceable)

    ranked = best_first(asked, available.num_workers, _gains(asked, running_s))
    placeable = [sizes for sizes in ranked if has_places(sizes)]
    marked = sorted(
        (number for number, task in enumerate(asked) if task.keeps_running),
        key=lambda number: (-asked[number].weight, asked[number].workers == 0, asked[number].name),
    )
    kept = max([sizes[number] > 0 for number in marked] for sizes in placeable)
    expected = next(
        sizes
        for sizes in placeable
        if all(sizes[number] for number, is_kept in zip(marked, kept, strict=True) if is_kept)
    )
    assert tuple(decision.assignments.values()) == expected


def _gains(tasks: tuple[PlanTask, ...], running_s: float) -> dict[tuple[TaskId, int], Fraction]:
    quantum = Quantum.for_tasks(tasks, running_s)
    return {
        (task.name, size): Fraction(
            quantum.count(earned(task, size, running_s)) - quantum.count(forgone(task, size))
        )
        for task in tasks
        for size in (0, *task.rates.sizes.tolist())
    }


def test_a_larger_size_is_kept_where_only_that_has_places() -> None:
    """Two nodes of three: a pair on each, not a group of four; b's workers fit beside."""
    quad = spec("a", {4: (1.0, 4), 6: (1.1, 3)}, weight=2.0)
    decision, _ = divided([quad, spec("b", {1: (90.0, 1)}, keeps=False)], [3, 3])
    assert decision.assignments == {"a": 6, "b": 0}


def test_a_task_without_places_lets_lighter_ones_run_and_the_plan_says_so() -> None:
    heavy = spec("a", {4: (9.0, 4)}, weight=9.0)
    decision, _ = divided([heavy, spec("b", {2: (1.0, 2)})], [3, 3])
    assert decision.assignments == {"a": 0, "b": 2}
    assert "a stays stopped (keeps_running, but there is no room for 4)" in decision.why


def test_where_the_search_ends_early_the_sizes_that_have_places_are_taken() -> None:
    """Forty nodes of three have forty pairs; more than the search tries are better by count."""
    rates = {2 * n: (3e9 * n, 2) for n in range(1, 41)}
    others = {2 * n: (2.9e9 * n, 2) for n in range(1, 41)}
    kept = spec("c", {2: (1.0, 2)}, weight=0.1)
    decision, _ = divided(
        [spec("a", rates, keeps=False), spec("b", others, keeps=False), kept], [3] * 40
    )
    assert decision.assignments[TaskId("c")] == 2
    assert sum(decision.assignments.values()) == 80


def test_the_kept_are_found_by_count_too_where_workers_are_few() -> None:
    tasks = [
        PlanTask(TaskId(name), weight, Rates.of({4: 1.0}), 0, 4, False, 1.0, None, True)
        for name, weight in (("a", 1.0), ("b", 2.0), ("c", 3.0))
    ]
    layouts = {task.name: {4: Layout(1, 1, 4)} for task in tasks}
    tried: list[dict[TaskId, int]] = []

    def is_placeable(sizes: object) -> bool:
        tried.append(dict(sizes))  # type: ignore[call-overload]
        return True

    assert FloorPlaces(8, layouts, is_placeable).kept(tasks) == {"c": 4, "b": 4}
    assert all(sum(sizes.values()) <= 8 for sizes in tried)


def linear(name: str, weight: float, sizes: range, workers: int, *, keeps: bool) -> TaskSpec:
    rates = {size: 4e8 * size / (1 + size / 4000) for size in sizes}
    return TaskSpec(
        task=TaskId(name), weight=weight, workers=workers, min_workers=min(sizes),
        table=table(rates, tp=8), flops_per_iteration=1e9, num_iterations=None,
        num_micro_batches=240, keeps_running=keeps,
    )  # fmt: skip


@pytest.mark.parametrize("keeps", [True, False])
def test_losing_8_of_128_gpus_stops_nothing_that_keeps_running(keeps: bool) -> None:
    """By the paper's rule the heaviest task takes all, also the workers of a healthy task."""
    nodes = [NodeSpec(NodeId(f"n{number}"), f"127.0.0.1:{number}", 8) for number in range(16)]
    tasks = [
        linear("t8b", 1.0, range(8, 65, 8), 16, keeps=keeps),
        linear("t13b", 1.0, range(16, 97, 16), 32, keeps=keeps),
        linear("t70b", 2.0, range(40, 121, 8), 80, keeps=False),
    ]
    world = World(
        Machine(nodes, tasks, Policy(is_auto_heal=True, worker_mtbf_s=7.2e6)), num_iterations=10**6
    )
    world.run(4.0)
    state = world.machine.state
    healthy = state.tasks[TaskId("t8b")]
    hit = state.tasks[TaskId("t13b")]
    sizes = {name: len(task.placement) for name, task in state.tasks.items()}
    assert sizes == {"t8b": 16, "t13b": 32, "t70b": 80}
    world.lose_node(next(iter(hit.nodes)))
    world.run(world.now + 120.0)
    decided = state.plans.all[0].problem
    assert {task.name for task in decided.tasks if task.keeps_running} == (
        {"t8b", "t13b"} if keeps else set()
    )
    is_running = {
        name: task.lifecycle.phase is TaskPhase.RUNNING for name, task in state.tasks.items()
    }
    assert is_running == {"t8b": keeps, "t13b": keeps, "t70b": True}
    assert (len(healthy.placement) >= 8) or not keeps


def test_every_order_of_tasks_gives_the_same_plan() -> None:
    tasks = [
        spec("a", {4: (9.0, 4)}, weight=9.0),
        spec("b", {2: (1.0, 2)}),
        spec("c", {1: (2.0, 1)}),
    ]
    plans = {
        tuple(sorted(divided(list(order), [3, 1])[0].assignments.items()))
        for order in itertools.permutations(tasks)
    }
    assert plans == {(("a", 0), ("b", 2), ("c", 1))}
    free = [replace(task, keeps_running=False) for task in tasks]
    assert divided(free, [3, 1])[0].assignments == {"a": 0, "b": 2, "c": 1}
