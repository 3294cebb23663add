"""The lookup table against solving afresh, for every event that may come next."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from hypothesis import given, strategies as st

from controller.core.rules.planner.cost import PlanTask, Problem, horizon_of, horizon_s
from controller.core.rules.planner.lookup import LookupTable, Loss, Outlook, look_ahead
from controller.core.rules.planner.solver import solve
from nodeagent.protocol.ids import TaskId
from profiles.rates import Rates
from tests.fakes.examples import examples

_NUMBER = st.integers(0, 9).map(float) | st.floats(0.0, 1e15)


@st.composite
def plan_tasks(draw: st.DrawFn, name: str) -> PlanTask:
    sizes = draw(st.sets(st.integers(1, 8), min_size=1, max_size=4))
    return PlanTask(
        name=TaskId(name),
        weight=draw(st.sampled_from([0.5, 1.0, 2.0])),
        rates=Rates.of(
            {size: draw(_NUMBER) for size in sizes},
            draw(st.none() | st.just({size: size % 2 for size in sizes})),
        ),
        workers=draw(st.integers(0, 6)),
        min_workers=draw(st.integers(1, 3)),
        is_faulted=draw(st.sampled_from([False, False, True])),
        transition_s=draw(_NUMBER),
        remaining_s=draw(st.none() | _NUMBER),
        keeps_running=draw(st.booleans()),
        layout_change_s=draw(st.none() | _NUMBER),
        model=draw(st.none() | st.integers(0, 1)),
    )


@st.composite
def outlooks(draw: st.DrawFn) -> Outlook:
    tasks = [draw(plan_tasks(f"t{index}")) for index in range(draw(st.integers(0, 5)))]
    num_queued = draw(st.integers(0, min(2, len(tasks))))
    names = st.sampled_from([task.name for task in tasks[num_queued:]] or [TaskId("nobody")])
    faulted = st.frozensets(names, max_size=2) if len(tasks) > num_queued else st.just(frozenset())
    nodes = draw(st.lists(st.builds(Loss, st.integers(0, 4), faulted), max_size=5))
    return Outlook(
        tasks=tuple(tasks[num_queued:]),
        queued=tuple(tasks[:num_queued]),
        num_workers=sum(loss.num_workers for loss in nodes),
        worker_mtbf_s=draw(st.sampled_from([1.0, 100.0, 7.2e6])),
        losses=tuple(nodes),
        joins=draw(st.frozensets(st.integers(1, 4), max_size=2)),
    )


def next_problems(outlook: Outlook) -> Iterator[tuple[int, list[PlanTask]]]:
    """Yield what the planner is asked after every event: workers and tasks, event by event."""

    def after(*losses: Loss) -> tuple[int, list[PlanTask]]:
        hit = {name for loss in losses for name in loss.faulted}
        tasks = [replace(t, is_faulted=t.is_faulted or t.name in hit) for t in outlook.tasks]
        return outlook.num_workers - sum(loss.num_workers for loss in losses), tasks

    for loss in outlook.losses:
        yield after(loss)
    for pair in combinations(outlook.losses, 2):
        yield after(*pair)
    for joined in outlook.joins:
        yield outlook.num_workers + joined, list(outlook.tasks)
    for gone in outlook.tasks:
        yield outlook.num_workers, [task for task in outlook.tasks if task is not gone]
    for come in outlook.queued:
        yield outlook.num_workers, [*outlook.tasks, come]


@given(outlook=outlooks())
@examples(200)
def test_the_table_holds_what_solving_afresh_finds_for_every_next_event(outlook: Outlook) -> None:
    steps: list[None] = []
    table = look_ahead(outlook, lambda: steps.append(None))
    assert len(steps) >= len(table.divisions) or not outlook.tasks
    count = 0
    for num_workers, tasks in next_problems(outlook):
        running_s = horizon_s(outlook.worker_mtbf_s, num_workers)
        afresh = solve(tasks, num_workers=num_workers, running_s=running_s)
        found = table.decide(Problem(tuple(tasks[::-1]), num_workers, running_s))
        assert found == afresh
        count += 1
    assert (table.num_found, table.num_missed) == (count, 0)


@given(outlook=outlooks(), data=st.data())
@examples(100)
def test_a_table_of_another_version_is_not_used(outlook: Outlook, data: st.DataObject) -> None:
    table = look_ahead(outlook)
    tasks = list(outlook.tasks)
    running_s = horizon_s(outlook.worker_mtbf_s, outlook.num_workers)
    if tasks:
        index = data.draw(st.integers(0, len(tasks) - 1))
        task = tasks[index]
        horizon = horizon_of(task, running_s)
        sooner = replace(task, remaining_s=horizon / 2 or min(1.0, running_s))
        tasks[index] = data.draw(
            st.sampled_from(
                [
                    replace(task, weight=task.weight + 1),
                    replace(task, workers=task.workers + 1),
                    replace(task, transition_s=task.transition_s + 1),
                    replace(task, min_workers=task.min_workers + 1),
                    replace(task, keeps_running=not task.keeps_running),
                    *([sooner] if running_s else []),
                    replace(task, rates=Rates.of({9: 1.0})),
                ]
            )
        )
    else:
        running_s += 1.0
    found = table.decide(Problem(tuple(tasks), outlook.num_workers, running_s))
    assert (table.num_found, table.num_missed) == (0, 1)
    assert found == solve(tasks, num_workers=outlook.num_workers, running_s=running_s)


def test_an_empty_table_solves_at_once() -> None:
    table = LookupTable()
    task = PlanTask(TaskId("a"), 1.0, Rates.of({1: 1.0}), 1, 1, False, 1.0)
    decision = table.decide(Problem((task,), 1, 10.0))
    assert decision == solve([task], num_workers=1, running_s=10.0)
    assert table.num_missed == 1
