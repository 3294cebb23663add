"""Which worker each rank gets: groups inside a node, few ranks moved, replicas spread.

The ranks of a task come in *groups* of tp consecutive global ranks, one per tensor-parallel group.
A group never spans nodes, because its traffic is the heaviest. The chosen placement

1. moves the fewest ranks. A rank *stays* if it gets a worker that its task holds. If the task keeps
   its tp and pp, a rank at the same place (tp, pp) must have held it: the process there has that
   part of the model. Every other rank moves;
2. and, of those, spreads replicas best over failure domains: the fewest pairs of data-parallel
   peers (groups of one stage) share a domain. Nodes without a named domain form one domain
   together. Nothing is spread over them, and tasks fill node after node.

``controller.core.rules.packing.fewest_moves`` finds the number of groups per node and says how far
the answer is proven. ``controller.core.rules.packing.slot_assignment`` picks workers and global
ranks. Equal inputs give equal placements.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controller.core.rules.packing.exhaustive import DomainSite
from controller.core.rules.packing.fewest_moves import NoPacking, pack
from controller.core.rules.packing.missing_groups import KeptRanks, pack_missing
from controller.core.rules.packing.slot_assignment import GroupSlots, NodeSlot, TaskSlots
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.layout import Layout


class Worker(NamedTuple):
    """One worker of a node. ``slot`` counts from 0; if the node has GPUs it is the GPU's index."""

    # A tuple is compared and hashed without Python code, and the core does so all the time.

    node: NodeId
    slot: int

    def __str__(self) -> str:
        return f"worker {self.slot} of {self.node}"


Placement = tuple[Worker, ...]
"""The worker of each global rank."""


def runs_of(placement: Placement) -> list[str]:
    """Return a placement by global rank, with runs of slots joined: ``n1:0-3``, ``n2:5``."""
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
    """The reason why tasks can't be placed, for operators."""

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
        current: Workers that each task holds now, by global rank. Unusable workers and tasks that
            are not to run are ignored. If two tasks name the same worker, the task whose name sorts
            first holds it.
        num_workers_by_node: Usable workers of each node. The order of the nodes decides ties.
        layouts_before: Layouts of ``current``. If the layout of a task is missing or has another
            size, its tp and pp are taken from ``layouts``, provided they divide its workers.
        blocked: Workers of these nodes that no task may get.
        domains: Failure domains by node, if they are named.
    """
    nodes = _Nodes(num_workers_by_node, blocked, domains or {})
    if reason := _shortage(layouts, nodes.rooms):
        return Unplaceable(reason)
    tasks = sorted(layouts)
    if nodes.can_keep(layouts, layouts_before or {}, current):
        return {task: current[task] for task in tasks}
    held = nodes.held_slots({task: current.get(task, ()) for task in tasks})
    befores = {
        task: _layout_before(current.get(task, ()), layouts[task], (layouts_before or {}).get(task))
        for task in tasks
    }
    if filled := _fill_gaps(layouts, befores, current, held, nodes):
        return filled
    slots_by_task = [TaskSlots(layouts[task], befores[task], held[task]) for task in tasks]
    kinds = [slots.kinds() for slots in slots_by_task]
    all_kinds = [kind for each in kinds for kind in each]
    packing = pack(all_kinds, DomainSite(nodes.rooms, nodes.domains))
    if isinstance(packing, NoPacking):
        groups = ", ".join(f"{task} {layout}" for task, layout in sorted(layouts.items()))
        unproven = "were not placed within the search limit"
        verdict = "do not fit into the nodes" if packing.is_proven else unproven
        return Unplaceable(f"the tensor-parallel groups {verdict}: {groups}")
    holding = {v for kind in all_kinds for v in kind.stays}
    flat = iter(_in_order(packing.groups, holding, nodes))
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
        return f"the tasks need {num_wanted} workers, {num_available} are available"
    largest = max(rooms, default=0)
    for task, layout in sorted(layouts.items()):
        if layout.tp > largest:
            return f"{task} needs {layout.tp} workers in one node (tp), the largest has {largest}"
    return None


def _fill_gaps(
    layouts: Mapping[TaskId, Layout],
    befores: Mapping[TaskId, Layout | None],
    current: Mapping[TaskId, Placement],
    held: Mapping[TaskId, Mapping[int, NodeSlot]],
    nodes: "_Nodes",
) -> dict[TaskId, Placement] | None:
    """Return the placement in which all held ranks stay, if it is known to be the best."""
    if len(set(nodes.domains)) > 1:
        return None
    kept_by_task: dict[TaskId, KeptRanks] = {}
    for task, before in befores.items():
        placement = current.get(task, ())
        if before is None or not _is_whole(placement, before.tp):
            return None
        lost = set(range(len(placement))).difference(held[task])
        kept = KeptRanks.of(layouts[task], before, lost)
        if kept is None:
            return None
        kept_by_task[task] = kept
    used: dict[int, set[int]] = defaultdict(set)
    for each in held.values():
        for v, slot in each.values():
            used[v].add(slot)
    rooms = [room - len(used.get(v, ())) for v, room in enumerate(nodes.rooms)]
    packed = pack_missing(list(kept_by_task.values()), DomainSite(rooms, nodes.domains))
    if packed is None:
        return None
    kinds, groups = packed
    rows = [
        [
            GroupSlots(v, [None] * kind.size)
            for v, num in sorted(by_node.items())
            for _ in range(num)
        ]
        for kind, by_node in zip(kinds, _in_order(groups, used, nodes), strict=True)
    ]
    nodes.assign_free_slots([row for each in rows for row in each], current, used)
    rest = iter(rows)
    placements: dict[TaskId, Placement] = {}
    for task, kept in kept_by_task.items():
        layout = kept.layout
        workers: list[Worker | None] = [None] * layout.num_workers
        for old, new in kept.numbers.items():
            workers[new] = current[task][old]
        for stage, replicas in enumerate(kept.order()):
            for replica, row in zip(replicas, next(rest), strict=True):
                first = (stage * layout.dp + replica) * layout.tp
                workers[first : first + layout.tp] = nodes.workers([row])
        placements[task] = tuple(worker for worker in workers if worker is not None)
    return placements


def _layout_before(placement: Placement, layout: Layout, before: Layout | None) -> Layout | None:
    """Return the layout of a placement; without one, that with the given tp and pp, if any."""
    # A task that lost workers has a placement without a layout of that size. With the same tp and
    # pp its ranks can still keep their places.
    if before is not None and before.num_workers == len(placement):
        return before
    replicas, rest = divmod(len(placement), layout.tp * layout.pp)
    return Layout(layout.tp, layout.pp, replicas) if replicas and not rest else None


def _is_whole(placement: Placement, tp: int) -> bool:
    """Return whether every tensor-parallel group is on one node."""
    return tp == 1 or all(
        worker.node == placement[rank - rank % tp].node for rank, worker in enumerate(placement)
    )


def _in_order(
    groups_by_kind: Sequence[Mapping[int, int]], held: Container[int], nodes: "_Nodes"
) -> list[dict[int, int]]:
    """Return the groups of a packing, with equal nodes filled in the order of the kinds.

    Two nodes are equal if no task holds a worker there and they have the same room. They also must
    share a domain, or each have a domain of its own.
    """
    by_node: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for k, groups in enumerate(groups_by_kind):
        for v, num in groups.items():
            by_node[v].append((k, -num))
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for v, room in enumerate(nodes.rooms):
        if v not in held:
            alike[room, nodes.shared_domain(v)].append(v)
    last = (len(groups_by_kind), 0)
    for same in alike.values():
        # The packing's choice between equal nodes is arbitrary. Sorting makes placements readable:
        # the first task on the first nodes. Empty nodes come last.
        fillings = sorted((by_node.get(v, []) for v in same), key=lambda each: each or [last])
        by_node.update(zip(same, fillings, strict=True))
    ordered: list[dict[int, int]] = [{} for _ in groups_by_kind]
    for v, filling in sorted(by_node.items()):
        for k, num in filling:
            ordered[k][v] = -num
    return ordered


class _Nodes:
    """Translates nodes, slots and domains to numbers and back."""

    def __init__(
        self,
        num_workers_by_node: Mapping[NodeId, int],
        blocked: Collection[Worker],
        domains: Mapping[NodeId, str],
    ) -> None:
        self._names = list(num_workers_by_node)
        self._number = {name: v for v, name in enumerate(self._names)}
        self._counts = list(num_workers_by_node.values())
        self._all_blocked = frozenset(blocked)
        self._blocked: dict[int, set[int]] = defaultdict(set)
        for worker in blocked:
            if worker.node in self._number and worker.slot < num_workers_by_node[worker.node]:
                self._blocked[self._number[worker.node]].add(worker.slot)
        self.rooms = [count - len(self._blocked.get(v, ())) for v, count in enumerate(self._counts)]
        number: dict[str, int] = {}
        self.domains = [number.setdefault(domains.get(n, ""), len(number)) for n in self._names]
        self._num_sharing = Counter(self.domains)

    def shared_domain(self, v: int) -> int:
        """Return the domain of a node; -1 if no other node shares it."""
        return self.domains[v] if self._num_sharing[self.domains[v]] > 1 else -1

    def can_keep(
        self,
        layouts: Mapping[TaskId, Layout],
        layouts_before: Mapping[TaskId, Layout],
        current: Mapping[TaskId, Placement],
    ) -> bool:
        """Return whether every rank can stay and no group is missing: nothing is left to choose."""
        number, counts = self._number, self._counts
        for task, layout in layouts.items():
            held = current.get(task, ())
            is_same = layouts_before.get(task) == layout and len(held) == layout.num_workers
            if not (is_same and _is_whole(held, layout.tp)):
                return False
        workers = [worker for task in layouts for worker in current[task]]
        return (
            all(node in number and slot < counts[number[node]] for node, slot in workers)
            and len(set(workers)) == len(workers)
            and self._all_blocked.isdisjoint(workers)
        )

    def held_slots(self, current: Mapping[TaskId, Placement]) -> dict[TaskId, dict[int, NodeSlot]]:
        """Return the slots of each task that it may keep, by global rank."""
        taken: set[NodeSlot] = set()
        held: dict[TaskId, dict[int, NodeSlot]] = {}
        # Two tasks may name the same worker. Sorted, so that the same task gets it every time.
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
        self,
        rows: Sequence[GroupSlots],
        current: Mapping[TaskId, Placement],
        kept: Mapping[int, Collection[int]] | None = None,
    ) -> None:
        """Give a slot to every rank that has none. Slots that no task holds come first.

        ``kept`` are slots, by node, of ranks that are not among ``rows``.
        """
        incomplete = {row.node for row in rows if None in row.slots}
        used: dict[int, set[int]] = defaultdict(set)
        for v in incomplete if kept else ():
            used[v].update((kept or {}).get(v, ()))
        for row in rows:
            if row.node in incomplete:
                used[row.node].update(slot for slot in row.slots if slot is not None)
        names = {self._names[v] for v in incomplete}
        # A slot that another task still holds is free only once that task has moved. The rank would
        # have to wait for it.
        busy = {
            node_slot
            for placement in current.values()
            for worker in placement
            if worker.node in names
            if (node_slot := self._slot_of(worker))
        }
        free = {v: iter(self._free_slots(v, used[v], busy)) for v in incomplete}
        for row in rows:
            if row.node in incomplete:
                row.slots = [next(free[row.node]) if s is None else s for s in row.slots]

    def _free_slots(self, v: int, used: set[int], busy: set[NodeSlot]) -> list[int]:
        slots = set(range(self._counts[v])) - self._blocked.get(v, set()) - used
        return sorted(slots, key=lambda slot: ((v, slot) in busy, slot))

    def workers(self, rows: Sequence[GroupSlots]) -> Placement:
        """Return the workers of groups whose slots are all assigned."""
        return tuple(
            Worker(self._names[row.node], slot)
            for row in rows
            for slot in row.slots
            if slot is not None
        )
