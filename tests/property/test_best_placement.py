"""The placement against brute force: fewest moved ranks, then the least spread."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import permutations, product

from hypothesis import given, strategies as st

from controller.core.rules.placement import Placement, Unplaceable, Worker, place
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.layout import Layout
from tests.fakes.examples import examples


@dataclass(frozen=True)
class Case:
    """What is to be placed, and where the tasks are."""

    layouts: dict[TaskId, Layout]
    before: dict[TaskId, Layout]
    current: dict[TaskId, Placement]
    nodes: dict[NodeId, int]
    blocked: set[Worker] = field(default_factory=set)
    domains: dict[NodeId, str] = field(default_factory=dict)

    def place(self) -> dict[TaskId, Placement] | Unplaceable:
        return place(
            self.layouts, self.current, self.nodes,
            layouts_before=self.before, blocked=self.blocked, domains=self.domains,
        )  # fmt: skip

    def can_use(self, worker: Worker) -> bool:
        return worker not in self.blocked and worker.slot < self.nodes.get(worker.node, 0)

    def old_place(self, task: TaskId, worker: Worker) -> tuple[int, int] | None:
        """The place (tp, pp) of the rank that sits there, if it does."""
        if worker not in self.current.get(task, ()) or not self.can_use(worker):
            return None
        rank = self.current[task].index(worker)
        return self.before[task].tp_rank(rank), self.before[task].pp_rank(rank)

    def keeps_model(self, task: TaskId) -> bool:
        old, new = self.before.get(task), self.layouts[task]
        return old is not None and (old.tp, old.pp) == (new.tp, new.pp)

    def domain(self, node: NodeId) -> str:
        return self.domains.get(node, "")

    def score(self, placements: Mapping[TaskId, Placement]) -> tuple[int, int]:
        """Ranks that stay and, negated, pairs of peers that share a domain; by the definition."""
        num_staying, sharing = 0, Counter[tuple[TaskId, int, str]]()
        for task, placement in placements.items():
            layout = self.layouts[task]
            for rank, worker in enumerate(placement):
                old, new = (
                    self.old_place(task, worker),
                    (layout.tp_rank(rank), layout.pp_rank(rank)),
                )
                num_staying += old is not None and (old == new or not self.keeps_model(task))
                if layout.tp_rank(rank) == 0:
                    sharing[task, layout.pp_rank(rank), self.domain(worker.node)] += 1
        return num_staying, -sum(num**2 for num in sharing.values())


def compositions(total: int, limits: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """All ways to write a sum, each term within its limit."""
    if not limits:
        if not total:
            yield ()
        return
    for first in range(min(total, limits[0]) + 1):
        for rest in compositions(total - first, limits[1:]):
            yield first, *rest


def by_brute_force(case: Case) -> tuple[int, int] | None:
    """The best score, over all numbers of groups of every stage on every node.

    None where none fits.
    """
    names, tasks = list(case.nodes), sorted(case.layouts)
    rooms = tuple(
        sum(case.can_use(Worker(node, slot)) for slot in range(case.nodes[node])) for node in names
    )

    def staying(task: TaskId, stages: tuple[tuple[int, ...], ...]) -> int:
        layout, total = case.layouts[task], 0
        for v, node in enumerate(names):
            held = [
                old
                for slot in range(case.nodes[node])
                if (old := case.old_place(task, Worker(node, slot))) is not None
            ]
            if not case.keeps_model(task):
                total += min(len(held), layout.tp * sum(nums[v] for nums in stages))
                continue
            total += sum(
                min(nums[v], held.count((tp_rank, stage)))
                for stage, nums in enumerate(stages)
                for tp_rank in range(layout.tp)
            )
        return total

    def spread(stages: tuple[tuple[int, ...], ...]) -> int:
        total = 0
        for nums in stages:
            by_domain = Counter[str]()
            for v, num in enumerate(nums):
                by_domain[case.domain(names[v])] += num
            total += sum(num**2 for num in by_domain.values())
        return total

    @cache
    def best(index: int, rooms: tuple[int, ...]) -> tuple[int, int] | None:
        if index == len(tasks):
            return 0, 0
        task, found = tasks[index], None
        layout = case.layouts[task]
        limits = tuple(room // layout.tp for room in rooms)
        for stages in product(*[list(compositions(layout.dp, limits))] * layout.pp):
            used = [layout.tp * sum(nums[v] for nums in stages) for v in range(len(rooms))]
            left = tuple(room - num for room, num in zip(rooms, used, strict=True))
            rest = best(index + 1, left) if min(left) >= 0 else None
            if rest is not None:
                score = staying(task, stages) + rest[0], rest[1] - spread(stages)
                found = max(found or score, score)
        return found

    return best(0, rooms)


TASKS = [TaskId(name) for name in "abc"]


def made(seed: int, sizes: Sequence[int], num_slots: int = 4, num_nodes: int = 4) -> Case:
    """A case in which little is free: what tasks hold lies anywhere, and their sizes change."""
    dice = random.Random(seed)
    counts = [
        dice.choice([num_slots, num_slots, num_slots - 1, dice.randint(0, num_slots)])
        for _ in range(dice.randint(1, num_nodes))
    ]
    nodes = {NodeId(f"n{v}"): count for v, count in enumerate(counts)}
    # One node is lost, so that tasks hold what they can't keep.
    free = [[Worker(NodeId(f"n{v}"), slot) for slot in range(num_slots)] for v in range(5)]
    free = free[: len(counts) + 1]
    blocked = {dice.choice(dice.choice(free)) for _ in range(dice.choice([0, 0, 1, 2]))}
    wanted = round(dice.choice([0.5, 0.8, 1.0]) * sum(counts))
    layouts: dict[TaskId, Layout] = {}
    before: dict[TaskId, Layout] = {}
    current: dict[TaskId, Placement] = {}
    for task in dice.sample(TASKS, dice.randint(1, 3)):
        tp, pp = dice.choice(sizes), dice.choice([1, 1, 2])
        if tp * pp > wanted:
            continue
        layouts[task] = Layout(tp, pp, dice.randint(1, min(8 // pp, wanted // (tp * pp))))
        wanted -= layouts[task].num_workers
        if dice.random() < 0.2:
            tp, pp = dice.choice(sizes), dice.choice([1, 2])  # the model is divided anew
        dp = max(1, layouts[task].dp + dice.choice([-2, -1, 0, 0, 1, 2]))
        held = [taken(free, tp, dice) for _ in range(dp * pp)]
        if dice.random() < 0.9 and all(held):
            before[task] = Layout(tp, pp, dp)
            current[task] = tuple(worker for group in held for worker in group)
    names = dice.choice([[], list(nodes), dice.sample(list(nodes), len(nodes) // 2)])
    domains = {node: dice.choice("xy") for node in names}
    return Case(layouts, before, current, nodes, blocked, domains)


def taken(free: list[list[Worker]], num: int, dice: random.Random) -> list[Worker]:
    """Take the workers of a group out of one node, or seldom out of several."""
    fitting = [node for node in free if len(node) >= num]
    if not fitting:
        return []
    if dice.random() < 0.05:
        loose = [node for node in free if node]
        return [node.pop() for node in dice.sample(loose, min(num, len(loose)))] * (
            len(loose) >= num
        )
    node = dice.choice(fitting)
    dice.shuffle(node)
    return [node.pop() for _ in range(num)]


A, B, C = TASKS
N = [NodeId(f"n{i}") for i in range(4)]


@examples(600)
@given(seed=st.integers(0, 10**9), sizes=st.sampled_from([(1, 2, 4), (1, 2), (1, 2, 3), (2, 3)]))
def test_the_placement_is_as_good_as_the_best_that_brute_force_finds(
    seed: int, sizes: tuple[int, ...]
) -> None:
    case = made(seed, sizes)
    best, placements = by_brute_force(case), case.place()
    if isinstance(placements, Unplaceable):
        assert best is None
    else:
        assert case.score(placements) == best


def test_sizes_that_do_not_divide_each_other_are_placed_where_largest_first_finds_no_room() -> None:
    """The first three would go to the node of four, and leave room for no two."""
    pairs = (Worker(N[0], 0), Worker(N[0], 1), Worker(N[1], 0), Worker(N[1], 1))
    layouts = {A: Layout(tp=3), B: Layout(tp=2, dp=2), C: Layout(tp=3)}
    case = Case(layouts, {B: layouts[B]}, {B: pairs}, {N[0]: 6, N[1]: 4})
    placements = case.place()
    assert not isinstance(placements, Unplaceable)
    assert case.score(placements) == by_brute_force(case) == (2, -6)


@examples(60)
@given(seed=st.integers(0, 10**9))
def test_no_way_to_give_out_single_workers_is_better(seed: int) -> None:
    """Here brute force knows nothing of groups by node: it gives every rank every worker."""
    case = made(seed, (1, 2), num_slots=2, num_nodes=3)
    workers = [
        worker
        for node, count in case.nodes.items()
        for slot in range(count)
        if case.can_use(worker := Worker(node, slot))
    ]
    layouts = sorted(case.layouts.items())
    best = None
    for order in permutations(workers, sum(layout.num_workers for _, layout in layouts)):
        rest, placements = order, {}
        for task, layout in layouts:
            placements[task], rest = rest[: layout.num_workers], rest[layout.num_workers :]
        if all(
            len({worker.node for worker in placements[task][i : i + layout.tp]}) == 1
            for task, layout in layouts
            for i in range(0, layout.num_workers, layout.tp)
        ):
            best = max(best or case.score(placements), case.score(placements))
    outcome = case.place()
    assert (None if isinstance(outcome, Unplaceable) else case.score(outcome)) == best
