"""Times of placements on fragmented and on large clusters, and how much of them is proven.

Fragmented: tasks hold groups scattered over nodes that are 80 to 90 % full, and tasks of whole
nodes are to be placed beside them, so somebody has to move. Large: a node of a full cluster is
lost. One JSON object a line; ``moved`` counts the ranks of running tasks that can't stay.

    python benchmarks/placement_times.py
"""

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from controller.core.rules.packing.exhaustive import DomainSite, GroupKind
from controller.core.rules.packing.fewest_moves import Packing, pack
from controller.core.rules.packing.slot_assignment import TaskSlots
from controller.core.rules.placement import Placement, Unplaceable, Worker, place
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.layout import Layout

SLOTS = 8
LOST = NodeId("lost")


@dataclass(frozen=True)
class Case:
    """What is to be placed, and where the tasks are."""

    name: str
    num_nodes: int
    layouts: dict[TaskId, Layout]
    before: dict[TaskId, Layout] = field(default_factory=dict)
    current: dict[TaskId, Placement] = field(default_factory=dict)
    is_first_lost: bool = False

    @property
    def rooms(self) -> list[int]:
        """Workers of every node; a node that is lost has none."""
        return [0 if v == 0 and self.is_first_lost else SLOTS for v in range(self.num_nodes)]


def fragmented(
    name: str,
    num_nodes: int,
    sizes: Sequence[int],
    new: Sequence[Layout],
    *,
    full: float,
    seed: int,
) -> Case:
    """Return a cluster on which one task per size holds groups anywhere, and what is new."""
    dice = random.Random(seed)  # noqa: S311 - not a secret
    free = [dice.sample(range(SLOTS), SLOTS) for _ in range(num_nodes)]
    before: dict[TaskId, Layout] = {}
    current: dict[TaskId, Placement] = {}
    for number, size in enumerate(sorted(sizes, reverse=True)):
        groups: list[list[Worker]] = []
        wanted = int(num_nodes * SLOTS * full / len(sizes)) // size
        for v in dice.sample(list(range(num_nodes)) * SLOTS, num_nodes * SLOTS):
            if len(groups) < wanted and len(free[v]) >= size:
                groups.append([Worker(NodeId(f"n{v}"), free[v].pop()) for _ in range(size)])
        task = TaskId(f"held-{number}")
        before[task] = Layout(tp=size, dp=len(groups))
        current[task] = tuple(worker for group in groups for worker in group)
    layouts = before | {TaskId(f"new-{i}"): layout for i, layout in enumerate(new)}
    return Case(name, num_nodes, layouts, before, current)


def lost_node(name: str, num_nodes: int, num_tasks: int) -> Case:
    """Return a full cluster of tp8 tasks that has lost its first node; one task shrinks."""
    dp = num_nodes // num_tasks
    layouts = {TaskId(f"held-{i}"): Layout(tp=SLOTS, dp=dp) for i in range(num_tasks)}
    nodes = iter(range(num_nodes))
    current = {
        task: tuple(
            Worker(NodeId(f"n{v}") if v else LOST, slot)
            for v in (next(nodes) for _ in range(dp))
            for slot in range(SLOTS)
        )
        for task in layouts
    }
    first = next(iter(layouts))
    smaller = layouts | {first: Layout(tp=SLOTS, dp=dp - 1)}
    return Case(name, num_nodes, smaller, layouts, current, is_first_lost=True)


def cases() -> list[Case]:
    """Return what is measured."""
    wide = Layout(tp=8, dp=8)
    made = []
    for seed in range(3):
        made += [
            fragmented("100 nodes, tp 1 and 2", 100, (1, 2, 1, 2, 1), [wide], full=0.8, seed=seed),
            fragmented("100 nodes, tp 1 to 8", 100, (1, 2, 4, 2, 1, 8), [wide], full=0.85, seed=seed),
            fragmented(
                "100 nodes, tp 2 and 3", 100, (2, 3, 3), [Layout(3, 1, 8), Layout(8, 1, 2)],
                full=0.8, seed=seed,
            ),
        ]  # fmt: skip
    made.append(
        fragmented("1,000 nodes, tp 1 to 8", 1000, (1, 2, 4, 2, 1, 8), [wide] * 3, full=0.9, seed=0)
    )
    made.append(lost_node("1,200 nodes, one lost", 1200, 6))
    made.append(lost_node("12,500 nodes, one lost", 12500, 125))
    return made


def packed(case: Case) -> Packing:
    """Return the counts that the placement is made of."""
    kinds: list[GroupKind] = []
    for task in sorted(case.layouts):
        held = {
            rank: (int(worker.node[1:]), worker.slot)
            for rank, worker in enumerate(case.current.get(task, ()))
            if worker.node != LOST
        }
        kinds += TaskSlots(case.layouts[task], case.before.get(task), held).kinds()
    packing = pack(kinds, DomainSite(case.rooms, range(case.num_nodes)))
    assert isinstance(packing, Packing), case.name
    return packing


def main() -> None:
    """Measure every case, and print its figures."""
    argparse.ArgumentParser(description="How long a placement takes.").parse_args()
    for case in cases():
        nodes = {NodeId(f"n{v}"): room for v, room in enumerate(case.rooms)}
        begin_s = time.perf_counter()
        placements = place(case.layouts, case.current, nodes, layouts_before=case.before)
        took_s = time.perf_counter() - begin_s
        assert not isinstance(placements, Unplaceable), placements.reason
        packing = packed(case)
        held = sum(w.node != LOST for placement in case.current.values() for w in placement)
        line = {
            "case": case.name,
            "took_s": round(took_s, 3),
            "moved": held - packing.num_staying,
            "fewest_proven": packing.has_fewest_moves,
            "spread_proven": packing.is_best,
        }
        print(json.dumps(line), flush=True)  # noqa: T201 - a script


if __name__ == "__main__":
    main()
