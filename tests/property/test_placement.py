"""Every placement shares no worker, keeps groups whole, and moves no rank without need."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from hypothesis import given, strategies as st

from controller.core.rules.placement import Placement, Unplaceable, Worker, place
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.layout import Layout
from tests.fakes.examples import examples

Layouts = dict[TaskId, Layout]
Nodes = dict[NodeId, int]

_TASKS = st.sampled_from([TaskId(name) for name in "abcde"])


def layouts(tp: st.SearchStrategy[int]) -> st.SearchStrategy[Layouts]:
    layout = st.builds(Layout, tp=tp, pp=st.integers(1, 2), dp=st.integers(1, 3))
    return st.dictionaries(_TASKS, layout, max_size=4)


def clusters(size: st.SearchStrategy[int]) -> st.SearchStrategy[Nodes]:
    sizes = st.lists(size, min_size=1, max_size=6)
    return sizes.map(lambda counts: {NodeId(f"n{i}"): count for i, count in enumerate(counts)})


def histories(tp: st.SearchStrategy[int]) -> st.SearchStrategy[dict[TaskId, Placement]]:
    """Placements of any kind: overlapping, spanning nodes, on workers that never were."""
    worker = st.builds(
        Worker, node=st.integers(0, 7).map(lambda i: NodeId(f"n{i}")), slot=st.integers(0, 4)
    )
    return st.dictionaries(_TASKS, st.lists(worker, unique=True, max_size=8).map(tuple), max_size=4)


def chunks(placement: Placement, tp: int) -> Iterator[Placement]:
    for start in range(0, len(placement), tp):
        yield placement[start : start + tp]


def check_whole(wanted: Layouts, placements: Mapping[TaskId, Placement], nodes: Nodes) -> None:
    used = Counter(worker for placement in placements.values() for worker in placement)
    assert placements.keys() == wanted.keys()
    assert all(count == 1 for count in used.values())
    assert all(worker.slot < nodes[worker.node] for worker in used)
    for task, layout in wanted.items():
        assert len(placements[task]) == layout.num_workers
        for chunk in chunks(placements[task], layout.tp):
            assert len({worker.node for worker in chunk}) == 1


def fits(wanted: Layouts, nodes: Nodes) -> bool:
    """Whether any placement exists, by exhaustive search over where each group goes."""
    groups = sorted((x.tp for x in wanted.values() for _ in range(x.pp * x.dp)), reverse=True)

    @cache
    def search(free: tuple[int, ...], index: int) -> bool:
        if index == len(groups):
            return True
        return any(
            search(tuple(sorted((*free[:i], room - groups[index], *free[i + 1 :]))), index + 1)
            for i, room in enumerate(free)
            if room >= groups[index]
        )

    return search(tuple(sorted(nodes.values())), 0)


@given(
    wanted=layouts(st.integers(1, 4)),
    current=histories(st.integers(1, 4)),
    nodes=clusters(st.integers(0, 5)),
)
@examples(100)
def test_no_worker_is_shared_and_no_group_is_split(
    wanted: Layouts, current: dict[TaskId, Placement], nodes: Nodes
) -> None:
    placements = place(wanted, current, nodes)
    if not isinstance(placements, Unplaceable):
        check_whole(wanted, placements, nodes)
    assert place(dict(reversed(wanted.items())), current, nodes) == placements


@given(
    wanted=layouts(st.sampled_from([1, 2, 4])),
    current=histories(st.sampled_from([1, 2, 4])),
    nodes=clusters(st.integers(0, 8)),
)
@examples(100)
def test_with_powers_of_two_a_placement_is_found_whenever_there_is_one(
    wanted: Layouts, current: dict[TaskId, Placement], nodes: Nodes
) -> None:
    assert isinstance(place(wanted, current, nodes), Unplaceable) == (not fits(wanted, nodes))


@given(
    wanted=layouts(st.sampled_from([1, 2, 4])),
    current=histories(st.sampled_from([1, 2, 4])),
    num_nodes=st.integers(1, 10),
)
@examples(100)
def test_where_groups_divide_the_nodes_enough_workers_are_enough(
    wanted: Layouts, current: dict[TaskId, Placement], num_nodes: int
) -> None:
    nodes = {NodeId(f"n{i}"): 4 for i in range(num_nodes)}
    num_wanted = sum(layout.num_workers for layout in wanted.values())
    assert isinstance(place(wanted, current, nodes), Unplaceable) == (num_wanted > 4 * num_nodes)


@st.composite
def lost_nodes(draw: st.DrawFn) -> tuple[Layouts, dict[TaskId, Placement], Nodes]:
    """A cluster in which everything is placed, and the nodes that are left of it."""
    nodes = draw(clusters(st.integers(1, 5)))
    wanted = draw(layouts(st.sampled_from([1, 2, 4])))
    placements = place(wanted, {}, nodes)
    while isinstance(placements, Unplaceable):
        wanted.popitem()
        placements = place(wanted, {}, nodes)
    lost = draw(st.sets(st.sampled_from(sorted(nodes)), max_size=2))
    left = {node: count for node, count in nodes.items() if node not in lost}
    return wanted, placements, left


def holds(placement: Sequence[Worker], nodes: Nodes) -> bool:
    return all(worker.node in nodes for worker in placement)


@given(situation=lost_nodes())
@examples(100)
def test_tasks_keep_exactly_what_they_hold_if_the_rest_fits_around_it(
    situation: tuple[Layouts, dict[TaskId, Placement], Nodes],
) -> None:
    wanted, current, left = situation
    healthy = {task for task, placement in current.items() if holds(placement, left)}
    # Only tasks that lost nothing are to run on: then nothing can stand in their way.
    again = place({task: wanted[task] for task in healthy}, current, left)
    assert again == {task: current[task] for task in healthy}


@given(situation=lost_nodes(), num_spares=st.integers(0, 4))
@examples(100)
def test_standby_nodes_take_what_was_lost_and_nothing_else_moves(
    situation: tuple[Layouts, dict[TaskId, Placement], Nodes], num_spares: int
) -> None:
    wanted, current, left = situation
    lost_groups = sum(
        not holds(chunk, left)
        for task, layout in wanted.items()
        for chunk in chunks(current[task], layout.tp)
    )
    nodes = left | {NodeId(f"spare{i}"): 4 for i in range(max(num_spares, lost_groups))}
    placements = place(wanted, current, nodes)
    assert not isinstance(placements, Unplaceable)
    for task, layout in wanted.items():
        before, after = chunks(current[task], layout.tp), chunks(placements[task], layout.tp)
        for old, new in zip(before, after, strict=True):
            assert new == old or not holds(old, left)
