"""Which worker each rank gets: a tensor-parallel group inside one node, and as few moves as possible.

A task's ranks come in *chunks* of tp consecutive global ranks, one chunk per tensor-parallel group;
a chunk never spans nodes, because its traffic is the heaviest. A task keeps the chunks it holds and
may keep; what is missing is placed where it fits tightest, task by task in order of name. Where keeping
everything in place leaves holes that a chunk does not fit, everything is placed anew, largest
chunks first, which always succeeds when chunk sizes divide the workers of a node and are powers of
two.

Deterministic: equal inputs give equal placements.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodeagent.protocol.ids import NodeId, TaskId
from profiles.layout import Layout


@dataclass(frozen=True, slots=True, order=True)
class Worker:
    """One worker slot of a node."""

    node: NodeId
    slot: int


Placement = tuple[Worker, ...]
"""The worker of each global rank."""


@dataclass(frozen=True, slots=True)
class Unplaceable:
    """Why tasks can't be placed, in words for operators."""

    reason: str


_Chunk = tuple[Worker, ...]


def place(
    layouts: Mapping[TaskId, Layout],
    current: Mapping[TaskId, Placement],
    num_workers_by_node: Mapping[NodeId, int],
) -> dict[TaskId, Placement] | Unplaceable:
    """Place every task of ``layouts``, or return the reason why that can't be done.

    Args:
        layouts: Layout of every task that is to run.
        current: Where tasks are now; workers of nodes that are not available are ignored.
        num_workers_by_node: Workers of every node that may be used.
    """
    wanted = sum(layout.num_workers for layout in layouts.values())
    total = sum(num_workers_by_node.values())
    if wanted > total:
        return Unplaceable(f"the tasks want {wanted} workers, {total} are available")
    kept = {
        name: _kept_chunks(layout, current.get(name, ()), num_workers_by_node)
        for name, layout in layouts.items()
    }
    placed = _fill(layouts, sorted(layouts), kept, num_workers_by_node)
    if placed is None:
        largest_first = sorted(layouts, key=lambda name: (-layouts[name].tp, name))
        nothing: dict[TaskId, list[_Chunk]] = {name: [] for name in layouts}
        placed = _fill(layouts, largest_first, nothing, num_workers_by_node)
    if placed is None:
        sizes = ", ".join(f"{name} {layout}" for name, layout in sorted(layouts.items()))
        return Unplaceable(f"no node has room for a whole tensor-parallel group: {sizes}")
    return placed


def _kept_chunks(
    layout: Layout, placement: Placement, num_workers_by_node: Mapping[NodeId, int]
) -> list[_Chunk]:
    """Return the chunks of ``placement`` that the task may keep, in order of global rank."""
    chunks = [placement[i : i + layout.tp] for i in range(0, len(placement), layout.tp)]
    usable = [
        chunk
        for chunk in chunks
        if len(chunk) == layout.tp
        and len({worker.node for worker in chunk}) == 1
        and all(worker.slot < num_workers_by_node.get(worker.node, 0) for worker in chunk)
    ]
    return usable[: layout.num_workers // layout.tp]


def _fill(
    layouts: Mapping[TaskId, Layout],
    order: Sequence[TaskId],
    kept: Mapping[TaskId, Sequence[_Chunk]],
    num_workers_by_node: Mapping[NodeId, int],
) -> dict[TaskId, Placement] | None:
    """Complete ``kept`` from the free workers; None where a chunk fits nowhere."""
    taken = {worker for chunks in kept.values() for chunk in chunks for worker in chunk}
    free = {
        node: [slot for slot in range(count) if Worker(node, slot) not in taken]
        for node, count in num_workers_by_node.items()
    }
    placed: dict[TaskId, Placement] = {}
    for name in order:
        layout = layouts[name]
        chunks = list(kept[name])
        while len(chunks) < layout.num_workers // layout.tp:
            chunk = _take_chunk(free, layout.tp)
            if chunk is None:
                return None
            chunks.append(chunk)
        placed[name] = tuple(worker for chunk in chunks for worker in chunk)
    return placed


def _take_chunk(free: dict[NodeId, list[int]], size: int) -> _Chunk | None:
    """Take ``size`` workers from the node where they leave the least room; names break ties."""
    candidates = [node for node, slots in free.items() if len(slots) >= size]
    if not candidates:
        return None
    node = min(candidates, key=lambda node: (len(free[node]), node))
    slots, free[node] = free[node][:size], free[node][size:]
    return tuple(Worker(node, slot) for slot in slots)
