"""Which worker each rank gets: tensor-parallel groups in a node, few ranks moved, replicas spread.

The ranks of a task come in *groups* of tp consecutive global ranks, one per tensor-parallel group. A
group never spans nodes, because its traffic is the heaviest. Among all placements the one is taken

1. that moves the fewest ranks. A rank *stays* if it gets a worker that the task holds and, where the
   task keeps its tp and pp, that a rank at the same place (tp, pp) holds: what its process has is
   of no use at another place. Every other rank moves;
2. of those, the one that spreads replicas best over failure domains: the fewest pairs of
   data-parallel peers (groups of one stage) share a domain. Nodes for which no domain is named are one
   domain together: nothing is spread over them, and tasks fill node after node.

How that is found, and how far it is proven, is told in ``controller.core.rules.packing.fewest_moves``. There groups are
counted by node; which workers and global ranks they get is told in ``controller.core.rules.packing.slot_assignment``.
Equal inputs give equal placements.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from controller.core.rules.packing.exhaustive import DomainSite, GroupKind
from controller.core.rules.packing.fewest_moves import NoPacking, Packing, pack
from controller.core.rules.packing.slot_assignment import GroupSlots, NodeSlot, TaskSlots
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.layout import Layout


@dataclass(frozen=True, slots=True, order=True)
class Worker:
    """One worker of a node. ``slot`` counts from 0; it is the GPU's index where there is one."""

    node: NodeId
    slot: int

    def __str__(self) -> str:
        return f"worker {self.slot} of {self.node}"


Placement = tuple[Worker, ...]
"""The worker of each global rank."""


def runs_of(placement: Placement) -> list[str]:
    """Return a placement in the order of the global ranks, neighbours in one term: ``n1:0-3``, ``n2:5``."""
    runs: list[tuple[Worker, int]] = []
    for worker in placement:
        if runs:
            first, num = runs[-1]
            if (worker.node, worker.slot) == (first.node, first.slot + num):
                runs[-1] = first, num + 1
                continue
        runs.append((worker, 1))
    return [
        f"{first.node}:{first.slot}" + (f"-{first.slot + num - 1}" if num > 1 else "")
        for first, num in runs
    ]


@dataclass(frozen=True, slots=True)
class Unplaceable:
    """Why tasks can't be placed, in words for operators."""

    reason: str


def place(
    layouts: Mapping[TaskId, Layout],
    current: Mapping[TaskId, Placement],
    num_workers_by_node: Mapping[NodeId, int],
    *,
    layouts_before: Mapping[TaskId, Layout] | None = None,
    blocked: Collection[Worker] = (),
    domains: Mapping[NodeId, str] | None = None,
) -> dict[TaskId, Placement] | Unplaceable:
    """Return the placement of every task, or why there is none.

    A task that keeps its layout keeps the global ranks of all ranks that stay.

    Args:
        layouts: Layout of every task that is to run.
        current: What tasks hold now, by global rank. Workers that can't be used any more and tasks
            that are not to run are ignored. If two tasks name the same worker, the one whose name
            sorts first holds it.
        num_workers_by_node: Workers of each node that may be used. The order of the nodes decides
            between equally good ones.
        layouts_before: Layouts of ``current``. For a task without one of that size, the same tp and pp
            are taken for granted where they divide what it holds.
        blocked: Workers of these nodes that are not to be given to anybody.
        domains: Failure domains by node, where they are named.
    """
    nodes = _Nodes(num_workers_by_node, blocked, domains or {})
    if reason := _shortage(layouts, nodes.rooms):
        return Unplaceable(reason)
    tasks = sorted(layouts)
    held = nodes.held_slots({task: current.get(task, ()) for task in tasks})
    slots_by_task: list[TaskSlots] = []
    for task in tasks:
        placement = current.get(task, ())
        before = (layouts_before or {}).get(task)
        if before is None or before.num_workers != len(placement):
            before = _layout_of(placement, layouts[task])
        slots_by_task.append(TaskSlots(layouts[task], before, held[task]))
    kinds = [slots.kinds() for slots in slots_by_task]
    packing = pack(
        [kind for each in kinds for kind in each], DomainSite(nodes.rooms, nodes.domains)
    )
    if isinstance(packing, NoPacking):
        groups = ", ".join(f"{task} {layout}" for task, layout in sorted(layouts.items()))
        verdict = "fit no node whole" if packing.is_proven else "were not fitted into the nodes"
        return Unplaceable(f"the tensor-parallel groups {verdict}: {groups}")
    flat = iter(_in_order(packing, [kind for each in kinds for kind in each], nodes))
    rows = [
        slots.rows([next(flat) for _ in each])
        for slots, each in zip(slots_by_task, kinds, strict=True)
    ]
    nodes.assign_free_slots([row for by_kind in rows for each in by_kind for row in each], current)
    return {
        task: nodes.workers(slots.in_rank_order(each, nodes.domains))
        for task, slots, each in zip(tasks, slots_by_task, rows, strict=True)
    }


def _shortage(layouts: Mapping[TaskId, Layout], rooms: Sequence[int]) -> str | None:
    num_wanted = sum(layout.num_workers for layout in layouts.values())
    num_available = sum(rooms)
    if num_wanted > num_available:
        return f"the tasks want {num_wanted} workers, {num_available} are available"
    largest = max(rooms, default=0)
    for task, layout in sorted(layouts.items()):
        if layout.tp > largest:
            return f"{task} wants {layout.tp} workers in one node (tp), the largest has {largest}"
    return None


def _layout_of(placement: Placement, layout: Layout) -> Layout | None:
    """Return what a placement is in terms of a layout's tp and pp; None where they do not divide it."""
    replicas, rest = divmod(len(placement), layout.tp * layout.pp)
    return Layout(layout.tp, layout.pp, replicas) if replicas and not rest else None


def _in_order(
    packing: Packing, kinds: Sequence[GroupKind], nodes: "_Nodes"
) -> list[dict[int, int]]:
    """Return the groups of a packing, nodes that are alike filled in the order of kinds.

    Nodes are alike where nobody holds anything and that have as much room, in one domain or each in its own.
    """
    by_node: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for k, groups in enumerate(packing.groups):
        for v, num in groups.items():
            by_node[v].append((k, -num))
    held = {v for kind in kinds for v in kind.stays}
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for v, room in enumerate(nodes.rooms):
        if v not in held:
            alike[room, nodes.shared_domain(v)].append(v)
    last = (len(kinds), 0)
    for same in alike.values():
        fillings = sorted((by_node.get(v, []) for v in same), key=lambda each: each or [last])
        by_node.update(zip(same, fillings, strict=True))
    ordered: list[dict[int, int]] = [{} for _ in kinds]
    for v, filling in sorted(by_node.items()):
        for k, num in filling:
            ordered[k][v] = -num
    return ordered


class _Nodes:
    """Nodes and slots as numbers, and who sits where."""

    def __init__(
        self,
        num_workers_by_node: Mapping[NodeId, int],
        blocked: Collection[Worker],
        domains: Mapping[NodeId, str],
    ) -> None:
        self._names = list(num_workers_by_node)
        self._number = {name: v for v, name in enumerate(self._names)}
        self._counts = list(num_workers_by_node.values())
        self._blocked: dict[int, set[int]] = defaultdict(set)
        for worker in blocked:
            if worker.node in self._number and worker.slot < num_workers_by_node[worker.node]:
                self._blocked[self._number[worker.node]].add(worker.slot)
        self.rooms = [count - len(self._blocked.get(v, ())) for v, count in enumerate(self._counts)]
        number: dict[str, int] = {}
        self.domains = [number.setdefault(domains.get(n, ""), len(number)) for n in self._names]
        self._num_sharing = [0] * len(number)
        for domain in self.domains:
            self._num_sharing[domain] += 1

    def shared_domain(self, v: int) -> int:
        """Return the domain of a node; -1 for one that shares it with no other."""
        return self.domains[v] if self._num_sharing[self.domains[v]] > 1 else -1

    def held_slots(self, current: Mapping[TaskId, Placement]) -> dict[TaskId, dict[int, NodeSlot]]:
        """Return the node_slots of each task that it may keep, by global rank."""
        taken: set[NodeSlot] = set()
        held: dict[TaskId, dict[int, NodeSlot]] = {}
        for task, placement in sorted(current.items()):
            held[task] = {}
            for rank, worker in enumerate(placement):
                node_slot = self._slot_of(worker)
                if node_slot and node_slot not in taken:
                    held[task][rank] = node_slot
                    taken.add(node_slot)
        return held

    def _slot_of(self, worker: Worker) -> NodeSlot | None:
        v = self._number.get(worker.node)
        if v is None or worker.slot >= self._counts[v] or worker.slot in self._blocked.get(v, ()):
            return None
        return v, worker.slot

    def assign_free_slots(
        self, rows: Sequence[GroupSlots], current: Mapping[TaskId, Placement]
    ) -> None:
        """Give slots to all ranks that have none: first those that no task holds."""
        incomplete = {row.node for row in rows if None in row.slots}
        used: dict[int, set[int]] = defaultdict(set)
        for row in rows:
            if row.node in incomplete:
                used[row.node].update(slot for slot in row.slots if slot is not None)
        busy = {
            node_slot
            for placement in current.values()
            for worker in placement
            if (node_slot := self._slot_of(worker)) and node_slot[0] in incomplete
        }
        free = {v: iter(self._free_slots(v, used[v], busy)) for v in incomplete}
        for row in rows:
            if row.node in incomplete:
                row.slots = [next(free[row.node]) if s is None else s for s in row.slots]

    def _free_slots(self, v: int, used: set[int], busy: set[NodeSlot]) -> list[int]:
        slots = set(range(self._counts[v])) - self._blocked.get(v, set()) - used
        return sorted(slots, key=lambda slot: ((v, slot) in busy, slot))

    def workers(self, rows: Sequence[GroupSlots]) -> Placement:
        """Return the workers of node_sloted rows."""
        return tuple(
            Worker(self._names[row.node], slot)
            for row in rows
            for slot in row.slots
            if slot is not None
        )
