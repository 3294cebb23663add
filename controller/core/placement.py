"""Which worker each rank gets: tensor-parallel groups inside a node, and few ranks moved.

The ranks of a task come in *chunks* of tp consecutive global ranks, one per tensor-parallel group.
A chunk never spans nodes, because its traffic is the heaviest. A task keeps the healthy chunks it
holds; a chunk that is missing goes to the node that it fills best.

Keeping everything can leave holes that no missing chunk fits: two half-empty nodes have no room for
a group of two. So attempts follow one another, each willing to move more, and the first that fits
is taken:

1. All tasks keep what they hold. What is missing is placed by name of the task, so that an empty
   cluster fills in the order an operator expects; then again with the largest chunks first.
2. One more task at a time competes for its own chunks like for any other, largest chunks first:
   tasks that start anew anyway before tasks that the plan leaves alone, small chunks before large
   ones. It still gets its old place unless a larger chunk needs that.
3. Everything is placed anew, whatever is held.

Largest first is exact where of any two chunk sizes one divides the other (powers of two, say). A
node with f free workers has floor(f / s) places of size s, and a chunk of s or a multiple of s uses
up the same number of them in whatever node it goes to. So how the larger chunks were placed does
not matter when the turn comes to size s, and where a chunk finds no place there is no placement.
For other sizes this is first-fit decreasing, and may fail where a search would not. Few ranks move,
but they are not proven to be the fewest.

Equal inputs give equal placements.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Unplaceable:
    """Why tasks can't be placed, in words for operators."""

    reason: str


_Chunk = tuple[Worker, ...]

_Slots = Mapping[NodeId, frozenset[int]]
"""Workers of each node that may be given away."""

_Part = tuple[TaskId, int]
"""What is placed as a whole: the chunk of a task with this index."""


def place(
    layouts: Mapping[TaskId, Layout],
    current: Mapping[TaskId, Placement],
    num_workers_by_node: Mapping[NodeId, int],
    *,
    blocked: Collection[Worker] = (),
) -> dict[TaskId, Placement] | Unplaceable:
    """Return the placement of every task, or why there is none.

    A healthy chunk of a task that keeps its size keeps its global ranks. A task that changes size
    keeps chunks in their order; one that shrinks gives up nodes where it holds the least.

    Args:
        layouts: Layout of every task that is to run.
        current: What tasks hold now, by global rank. Workers that can't be used any more and tasks
            that are not to run are ignored. If two tasks name the same worker, the one whose name
            sorts first holds it.
        num_workers_by_node: Workers of each node that may be used. The order of the nodes decides
            between equally good ones.
        blocked: Workers of these nodes that are not to be given to anybody.
    """
    slots_by_node = {
        node: frozenset(slot for slot in range(count) if Worker(node, slot) not in blocked)
        for node, count in num_workers_by_node.items()
    }
    if reason := _shortage(layouts, slots_by_node):
        return Unplaceable(reason)
    held = _held_chunks(layouts, current, slots_by_node)
    for wanted, queue in _attempts(layouts, current, held):
        chunks = _fill(layouts, wanted, queue, slots_by_node)
        if chunks is not None:
            return {task: _ranks_of(task, layout, chunks) for task, layout in layouts.items()}
    groups = ", ".join(f"{task} {layout}" for task, layout in sorted(layouts.items()))
    return Unplaceable(f"the tensor-parallel groups fit no node whole: {groups}")


def _shortage(layouts: Mapping[TaskId, Layout], slots_by_node: _Slots) -> str | None:
    num_wanted = sum(layout.num_workers for layout in layouts.values())
    num_available = sum(map(len, slots_by_node.values()))
    if num_wanted > num_available:
        return f"the tasks want {num_wanted} workers, {num_available} are available"
    largest = max(map(len, slots_by_node.values()), default=0)
    for task, layout in sorted(layouts.items()):
        if layout.tp > largest:
            return f"{task} wants {layout.tp} workers in one node (tp), the largest has {largest}"
    return None


def _ranks_of(task: TaskId, layout: Layout, chunks: Mapping[_Part, _Chunk]) -> Placement:
    return tuple(worker for part in _parts_of(task, layout) for worker in chunks[part])


def _parts_of(task: TaskId, layout: Layout) -> list[_Part]:
    return [(task, index) for index in range(layout.num_workers // layout.tp)]


def _held_chunks(
    layouts: Mapping[TaskId, Layout],
    current: Mapping[TaskId, Placement],
    slots_by_node: _Slots,
) -> dict[_Part, _Chunk]:
    """Return the chunks that tasks hold and may keep, under their indices in the new layout."""
    healthy = _healthy_chunks(layouts, current, slots_by_node)
    num_held = Counter(w.node for chunks in healthy.values() for c in chunks.values() for w in c)
    num_idle = {node: len(slots) - num_held[node] for node, slots in slots_by_node.items()}
    held: dict[_Part, _Chunk] = {}
    for task, layout in layouts.items():
        chunks = healthy[task]
        if len(current.get(task, ())) != layout.num_workers:
            chunks = _compact(chunks, layout.num_workers // layout.tp, num_idle)
        held |= {(task, index): chunk for index, chunk in chunks.items()}
    return held


def _healthy_chunks(
    layouts: Mapping[TaskId, Layout],
    current: Mapping[TaskId, Placement],
    slots_by_node: _Slots,
) -> dict[TaskId, dict[int, _Chunk]]:
    """Return the present chunks whose workers can be used, under their present indices."""
    taken: set[Worker] = set()
    healthy: dict[TaskId, dict[int, _Chunk]] = {}
    for task, layout in sorted(layouts.items()):
        healthy[task] = {}
        for index, chunk in enumerate(_split(current.get(task, ()), layout.tp)):
            if _is_usable(chunk, slots_by_node) and taken.isdisjoint(chunk):
                healthy[task][index] = chunk
                taken.update(chunk)
    return healthy


def _split(placement: Placement, tp: int) -> Iterator[_Chunk]:
    """Yield the whole chunks of a placement."""
    for start in range(0, len(placement) - tp + 1, tp):
        yield placement[start : start + tp]


def _is_usable(chunk: _Chunk, slots_by_node: _Slots) -> bool:
    return len({worker.node for worker in chunk}) == 1 and all(
        worker.slot in slots_by_node.get(worker.node, ()) for worker in chunk
    )


def _compact(
    chunks: Mapping[int, _Chunk], limit: int, num_idle: Mapping[NodeId, int]
) -> dict[int, _Chunk]:
    """Return at most ``limit`` chunks, numbered anew in their order.

    What is given up should leave large holes: chunks go first that are few in their node, and
    among those the ones whose node has the most idle workers already.
    """
    num_own = Counter(chunk[0].node for chunk in chunks.values())

    def worth(index: int) -> tuple[int, int, int]:
        node = chunks[index][0].node
        return -num_own[node], num_idle[node], index

    kept = sorted(sorted(chunks, key=worth)[:limit])
    return {new: chunks[old] for new, old in enumerate(kept)}


def _attempts(
    layouts: Mapping[TaskId, Layout],
    current: Mapping[TaskId, Placement],
    held: Mapping[_Part, _Chunk],
) -> Iterator[tuple[Mapping[_Part, _Chunk], Sequence[_Part]]]:
    """Yield what to try: the chunks that parts want to keep, and the order to serve parts in."""
    by_name = [part for task, layout in sorted(layouts.items()) for part in _parts_of(task, layout)]
    largest_first = sorted(by_name, key=lambda part: -layouts[part[0]].tp)
    yield held, _holders_first(held, by_name)
    yield held, _holders_first(held, largest_first)

    def is_left_alone(task: TaskId) -> bool:
        is_same_size = len(current.get(task, ())) == layouts[task].num_workers
        return is_same_size and all(part in held for part in _parts_of(task, layouts[task]))

    keepers = dict(held)
    for task in sorted(layouts, key=lambda t: (is_left_alone(t), layouts[t].tp, t)):
        for part in _parts_of(task, layouts[task]):
            keepers.pop(part, None)
        yield held, _holders_first(keepers, largest_first)
    yield {}, largest_first


def _holders_first(holders: Mapping[_Part, _Chunk], queue: Iterable[_Part]) -> list[_Part]:
    return sorted(queue, key=lambda part: part not in holders)


def _fill(
    layouts: Mapping[TaskId, Layout],
    wanted: Mapping[_Part, _Chunk],
    queue: Iterable[_Part],
    slots_by_node: _Slots,
) -> dict[_Part, _Chunk] | None:
    """Serve the queue: each part gets the chunk it wants, or else one where it fits best."""
    free = {node: set(slots) for node, slots in slots_by_node.items()}
    claims = {worker: part for part, chunk in wanted.items() for worker in chunk}
    chunks: dict[_Part, _Chunk] = {}
    for part in queue:
        chunk = wanted.get(part)
        if chunk is None or any(worker.slot not in free[worker.node] for worker in chunk):
            chunk = _best_fit(part, layouts[part[0]].tp, free, claims)
        if chunk is None:
            return None
        free[chunk[0].node] -= {worker.slot for worker in chunk}
        chunks[part] = chunk
    return chunks


def _best_fit(
    part: _Part, tp: int, free: Mapping[NodeId, set[int]], claims: Mapping[Worker, _Part]
) -> _Chunk | None:
    """Return the free workers that the fewest others want, in the node that they fill best."""
    best: tuple[int, int, _Chunk] | None = None
    for node, slots in free.items():
        if len(slots) < tp:
            continue
        wanted_by_others = {slot: claims.get(Worker(node, slot), part) != part for slot in slots}
        chosen = sorted(slots, key=lambda slot: (wanted_by_others[slot], slot))[:tp]
        num_disturbed = sum(wanted_by_others[slot] for slot in chosen)
        if best is None or (num_disturbed, len(slots)) < best[:2]:
            best = num_disturbed, len(slots), tuple(Worker(node, slot) for slot in chosen)
            if (num_disturbed, len(slots)) == (0, tp):
                break  # nothing is better
    return best[2] if best else None
