"""The groups that tasks lack, if every rank that may stay does: a packing of a few groups.

After most faults a task has lost the groups of one node, and all its other groups stay where they
are. Then only the missing groups are packed, so the cost follows what was lost and not the size of
the cluster. The result is that of ``controller.core.rules.packing.fewest_moves``, which packs
everything. It is the best one if

- no task holds more groups of a stage than it is to have, so all that it holds stay;
- groups are held whole or not at all, so no group is completed;
- all nodes share one failure domain, so every packing has the same spread.
"""

from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass

from controller.core.rules.packing.exhaustive import DomainSite, GroupKind
from controller.core.rules.packing.greedy import GreedyPacking
from profiles.layout import Layout


@dataclass(frozen=True, slots=True)
class KeptRanks:
    """A task that keeps all that it holds.

    Attributes:
        layout: The layout that it is to have.
        numbers: The global rank that each rank that stays gets, by its present one.
        empty: By stage, the replicas that lack their group, ascending.
    """

    layout: Layout
    numbers: Mapping[int, int]
    empty: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, layout: Layout, before: Layout, lost: AbstractSet[int]) -> "KeptRanks | None":
        """Return the new numbers of the task's ranks if all of them stay where they are.

        Args:
            layout: The layout that it is to have.
            before: Its present layout.
            lost: Global ranks of ``before`` that have no worker any more.

        Returns:
            None if more is to be decided: the model is split in another way, a group has lost some
            of its ranks, or the task holds more than it is to have.
        """
        tp, pp, dp = layout.tp, layout.pp, layout.dp
        if (before.tp, before.pp) != (tp, pp):
            return None
        lost_groups = {rank // tp for rank in lost}
        if len(lost_groups) * tp != len(lost):
            return None  # a group has lost some of its ranks
        held = [
            [r for r in range(before.dp) if stage * before.dp + r not in lost_groups]
            for stage in range(pp)
        ]
        if any(len(replicas) > dp for replicas in held):
            return None
        present = sorted(set().union(*held))
        if before.dp != dp and len(present) > dp:
            return None
        # A replica that keeps its number keeps all its global ranks.
        number = (
            {replica: replica for replica in present}
            if before.dp == dp
            else {replica: new for new, replica in enumerate(present)}
        )
        numbers = {
            (stage * before.dp + replica) * tp + i: (stage * dp + number[replica]) * tp + i
            for stage, replicas in enumerate(held)
            for replica in replicas
            for i in range(tp)
        }
        empty = tuple(
            tuple(sorted(set(range(dp)).difference(number[replica] for replica in replicas)))
            for replicas in held
        )
        return cls(layout, numbers, empty)

    def order(self) -> list[list[int]]:
        """Return, by stage, the replicas that lack their group, in the order of being filled."""
        # Replicas of which another stage is placed come first, as in ``slot_assignment``.
        whole = set(self.empty[0]).intersection(*self.empty[1:])
        first, *others = self.empty
        ordered = [sorted(first, key=lambda replica: (replica in whole, replica))]
        return ordered + [list(replicas) for replicas in others]


def pack_missing(
    tasks: Sequence[KeptRanks], site: DomainSite
) -> tuple[list[GroupKind], Sequence[Mapping[int, int]]] | None:
    """Return the missing groups, and how many of them each node gets.

    Args:
        tasks: What the tasks keep. Nothing of it is moved.
        site: The free workers of every node beside what the tasks keep, and its domain.

    Returns:
        One kind for each task and stage, in their order, and for each kind its groups by node. None
        if they have no room without moving other groups.
    """
    kinds = [GroupKind(task.layout.tp, len(empty)) for task in tasks for empty in task.empty]
    fill = GreedyPacking(kinds, site)
    return (kinds, fill.groups) if fill.run(range(len(kinds))) else None
