"""Which slot of its node each rank gets, once the number of groups per node is known.

Ranks that stay keep their slots. The other ranks get the remaining slots, first those that no task
holds: nobody has to wait for these. A task that keeps its size keeps the global ranks of its
groups. A task that shrinks keeps its most complete replicas, in their order. Ranks of its other
replicas fill the gaps, because ranks of one stage are interchangeable. A group that moves joins a
replica with other groups in the same failure domain.

Nodes and slots are numbers here; ``controller.core.rules.placement`` has the names.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller.core.rules.packing.exhaustive import GroupKind
from profiles.layout import Layout

NodeSlot = tuple[int, int]
"""A node and one of its slots."""

_GroupRemnant = dict[int, int]
"""The part of a held group that is still on one node: the slot of each tp rank."""


@dataclass(slots=True)
class GroupSlots:
    """The slots of one tensor-parallel group.

    Attributes:
        node: Its node.
        slots: Its slots by tp rank. None for a rank that moves and has no slot yet.
        origin: The replica that it was part of; None for a new group.
    """

    node: int
    slots: list[int | None]
    origin: int | None = None


class TaskSlots:
    """The slots of one task's ranks: those that they hold, and those that they get.

    Args:
        layout: The layout that the task is to have.
        before: Its present layout. With another tp or pp no rank can keep its place.
        held: Slots that its ranks hold and may keep, by global rank of ``before``.
    """

    def __init__(self, layout: Layout, before: Layout | None, held: Mapping[int, NodeSlot]) -> None:
        self._layout, self._held = layout, held
        is_same_model = before is not None and (before.tp, before.pp) == (layout.tp, layout.pp)
        self._before = before if is_same_model else None
        self._remnants: list[dict[int, dict[int, _GroupRemnant]]] = [{} for _ in range(layout.pp)]
        self._sizes = Counter[int]()
        if before is not None and self._before is not None:
            tp, dp = before.tp, before.dp
            sizes = [0] * dp
            for rank, (node, slot) in held.items():
                group, tp_rank = divmod(rank, tp)
                stage, replica = divmod(group, dp)
                remnants = self._remnants[stage].setdefault(node, {})
                remnants.setdefault(replica, {})[tp_rank] = slot
                sizes[replica] += 1
            self._sizes.update({replica: num for replica, num in enumerate(sizes) if num})

    def kinds(self) -> list[GroupKind]:
        """Return the groups to place: one kind per stage; one kind if no rank keeps its place."""
        tp, pp, dp = self._layout.tp, self._layout.pp, self._layout.dp
        if self._before is None:
            # With another tp or pp no rank keeps its place in the model. Its worker is still worth
            # keeping: no other task has to free one.
            nums = Counter(node for node, _ in self._held.values())
            stays = {v: (*[tp] * (num // tp), *filter(None, [num % tp])) for v, num in nums.items()}
            return [GroupKind(tp, pp * dp, pp, stays)]
        whole = tp * pp
        return [
            GroupKind(
                tp,
                dp,
                stays={v: _stays(each.values()) for v, each in remnants.items()},
                holes={
                    v: whole - max(self._sizes[replica] for replica in each)
                    for v, each in remnants.items()
                },
            )
            for remnants in self._remnants
        ]

    def rows(self, groups: Sequence[Mapping[int, int]]) -> list[list[GroupSlots]]:
        """Return the groups of each kind, with the slots of the ranks that stay.

        Args:
            groups: For each of ``kinds``, how many groups each node gets.

        Returns:
            For each kind, its groups in the order of their nodes. A slot is in one group at most.
        """
        if self._before is None:
            return [self._new_rows(groups[0])]
        return [
            [
                row
                for v, num in sorted(by_node.items())
                for row in self._kept_rows(v, num, remnants.get(v, {}))
            ]
            for remnants, by_node in zip(self._remnants, groups, strict=True)
        ]

    def _new_rows(self, by_node: Mapping[int, int]) -> list[GroupSlots]:
        held = defaultdict[int, list[int]](list)
        for node, slot in self._held.values():
            held[node].append(slot)
        rows: list[GroupSlots] = []
        tp = self._layout.tp
        for v, num in sorted(by_node.items()):
            slots = sorted(held[v])
            for start in range(0, num * tp, tp):
                stay = slots[start : start + tp]
                rows.append(GroupSlots(v, [*stay, *[None] * (tp - len(stay))]))
        return rows

    def _kept_rows(
        self, v: int, num: int, remnants: Mapping[int, _GroupRemnant]
    ) -> list[GroupSlots]:
        if num == len(remnants) == 1:  # on large clusters nearly all nodes are like that
            ((r, remnant),) = remnants.items()
            return [GroupSlots(v, [remnant.get(i) for i in range(self._layout.tp)], r)]
        # The most complete groups stay whole. Of equally complete ones, those of the replica with
        # the most ranks.
        order = sorted(remnants, key=lambda r: (-len(remnants[r]), -self._sizes[r], r))
        rows = [
            GroupSlots(v, [remnants[r].get(i) for i in range(self._layout.tp)], r)
            for r in sorted(order[:num])
        ]
        rows += [GroupSlots(v, [None] * self._layout.tp) for _ in range(num - len(rows))]
        for i in range(self._layout.tp):
            # Ranks of given-up groups fill the gaps of the kept ones: same stage and tp rank, so
            # the same part of the model.
            spare = [remnants[r][i] for r in order[num:] if i in remnants[r]]
            for row in rows:
                if row.slots[i] is None and spare:
                    row.slots[i] = spare.pop()
        return rows

    def in_rank_order(
        self, rows: Sequence[Sequence[GroupSlots]], domains: Sequence[int]
    ) -> list[GroupSlots]:
        """Return all groups in the order of the global ranks: stage by stage, then by replica.

        Args:
            rows: The answer of ``rows``.
            domains: The failure domain of every node.

        Returns:
            ``pp`` times ``dp`` groups, each of ``rows`` once.
        """
        if self._before is None:
            # Sorted by domain and dealt in turn over the stages, neighbours make a replica. The
            # loss of a domain then costs few replicas.
            pp = self._layout.pp
            queue = sorted(rows[0], key=lambda row: (domains[row.node], row.node))
            return [row for stage in range(pp) for row in queue[stage::pp]]
        number = self._replica_numbers(rows, self._before.dp)
        table_of: list[list[GroupSlots | None]] = [[None] * self._layout.dp for _ in rows]
        replica_domains: list[set[int]] = [set() for _ in range(self._layout.dp)]
        left: list[list[GroupSlots]] = []
        for table, each in zip(table_of, rows, strict=True):
            left.append([])
            for row in each:
                replica = None if row.origin is None else number.get(row.origin)
                # A replica that was combined from remnants can hold one stage on two nodes. The
                # first group keeps the number.
                if replica is None or table[replica] is not None:
                    left[-1].append(row)
                else:
                    table[replica] = row
                    replica_domains[replica].add(domains[row.node])
        for table, each in zip(table_of, left, strict=True):
            _fill_replicas(table, each, domains, replica_domains)
        return [row for table in table_of for row in table if row is not None]

    def _replica_numbers(
        self, rows: Sequence[Sequence[GroupSlots]], num_before: int
    ) -> dict[int, int]:
        """Return the new number of each replica that continues."""
        if num_before == self._layout.dp:
            return {replica: replica for replica in range(num_before)}
        present = Counter(row.origin for each in rows for row in each if row.origin is not None)
        order = sorted(present, key=lambda replica: (-present[replica], replica))
        return {old: new for new, old in enumerate(sorted(order[: self._layout.dp]))}


def _stays(remnants: Iterable[_GroupRemnant]) -> tuple[int, ...]:
    """Return how many ranks of the first, second, ... group on a node stay, given its remnants."""
    first, *others = remnants
    if not others:
        return (len(first),)
    nums = Counter(i for remnant in (first, *others) for i in remnant)
    return tuple(
        # Ranks of one tp rank are interchangeable between remnants. So the first group gets one of
        # each that is present, the second gets one of each that is left, and so on.
        sum(num > j for num in nums.values())
        for j in range(max(nums.values(), default=0))
    )


def _fill_replicas(
    table: list[GroupSlots | None],
    rows: Sequence[GroupSlots],
    domains: Sequence[int],
    replica_domains: Sequence[set[int]],
) -> None:
    """Put groups of one stage into replicas that lack it, preferring replicas in their domain."""
    waiting = defaultdict[int, deque[GroupSlots]](deque)
    for row in rows:
        waiting[domains[row.node]].append(row)
    empty = [replica for replica, row in enumerate(table) if row is None]
    for replica in empty:
        near = next((d for d in sorted(replica_domains[replica]) if waiting.get(d)), None)
        if near is not None:
            table[replica] = waiting[near].popleft()
    rest = iter(sorted((row for each in waiting.values() for row in each), key=lambda r: r.node))
    for replica in empty:
        if table[replica] is None:
            row = next(rest)
            table[replica] = row
            replica_domains[replica].add(domains[row.node])
