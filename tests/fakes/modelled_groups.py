"""Process groups of modelled ranks: collectives that some ranks end and others do not.

A collective of a group is known by its place in the group's sequence, as with gloo. A sum ends for
nobody before all members have given their part, a broadcast for nobody before its source has. From
then on each member takes the result, or is interrupted before it does: so a fault leaves every
mixture of ranks that know the result and ranks that do not.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from nodeagent.protocol.ids import Generation
from profiles.layout import Layout

Group = tuple[str, *tuple[int, ...]]
"""What it connects, and which of that kind it is."""

Part = Any
"""What a rank gives to a collective: that is between the ranks."""


@dataclass(eq=False)
class Collective:
    """One collective: what its members have given so far."""

    name: str
    group: Group
    members: frozenset[int]
    source: int | None
    given: dict[int, Part] = field(default_factory=dict)

    @property
    def is_inner(self) -> bool:
        """Whether it connects the ranks of one replica only."""
        return self.group[0] == "replica"

    @property
    def can_end(self) -> bool:
        """Whether a member that waits for it can take the result."""
        if self.source is not None:
            return self.source in self.given
        return self.given.keys() == self.members

    @property
    def parts(self) -> list[Part]:
        """What all members gave, by rank."""
        assert self.can_end
        return [self.given[rank] for rank in sorted(self.given)]

    @property
    def sent(self) -> Part:
        """What the source of a broadcast gave."""
        assert self.source is not None
        return self.given[self.source]


@dataclass(eq=False)
class Groups:
    """All groups of one generation; none of another can be reached through them."""

    generation: Generation
    layout: Layout
    _collectives: dict[tuple[Group, int], Collective] = field(default_factory=dict)
    _num_begun: Counter[tuple[Group, int]] = field(default_factory=Counter)

    def begin(
        self, group: Group, rank: int, name: str, part: Part, source: int | None = None
    ) -> Collective:
        """Give a rank's part of the next collective of ``group``."""
        number = self._num_begun[group, rank]
        self._num_begun[group, rank] += 1
        fresh = Collective(name, group, frozenset(self._members(group)), source)
        collective = self._collectives.setdefault((group, number), fresh)
        assert rank in collective.members
        assert (collective.name, collective.source) == (name, source), (
            f"rank {rank} begins {name} from {source} where others do {collective.name} from"
            f" {collective.source}"
        )
        collective.given[rank] = part
        return collective

    def _members(self, group: Group) -> Collection[int]:
        layout, ranks = self.layout, range(self.layout.num_workers)
        kind, *where = group
        if kind == "pair":
            return where
        if kind == "replica":
            return [rank for rank in ranks if [layout.dp_rank(rank)] == where]
        if kind == "data parallel":
            return [r for r in ranks if [layout.tp_rank(r), layout.pp_rank(r)] == where]
        return ranks
