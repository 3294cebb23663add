"""The search through all packings of few groups on few nodes: exact, or given up.

The search fills one failure domain after the other, in every possible way. Of all ways that leave
the same groups to place it keeps only the best (dynamic programming). It drops a way that can't
beat the known packing, even if every kind had all remaining nodes for itself (branch and bound).
``controller.core.rules.packing.fewest_moves`` defines the best packing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class GroupKind:
    """Interchangeable groups: all groups of one stage of a task.

    Attributes:
        size: Workers of a group, all on one node.
        count: Groups to place.
        stages: Number of pipeline stages among which the groups of a domain are divided. Only
            groups of one stage count as sharing the domain. 1 if the kind is one stage.
        stays: By node, how many ranks of the first, second, ... group there stay. Descending, above
            0.
        holes: By node, ranks that the replicas there have lost. Replicas with fewer losses stay
            first.
    """

    size: int
    count: int
    stages: int = 1
    stays: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    holes: Mapping[int, int] = field(default_factory=dict)

    def usable_stays(self, v: int, room: int) -> tuple[int, ...]:
        """Return ``stays`` of a node, limited to the groups that fit into ``room``."""
        return self.stays.get(v, ())[: room // self.size]

    def num_held(self, rooms: Sequence[int]) -> int:
        """Return the number of groups of which at least one rank can stay."""
        return sum(len(self.usable_stays(v, rooms[v])) for v in self.stays)

    def most_staying(self, rooms: Sequence[int]) -> int:
        """Return the most ranks that can stay if this kind has all nodes for itself."""
        stays = (stay for v in self.stays for stay in self.usable_stays(v, rooms[v]))
        return sum(sorted(stays, reverse=True)[: self.count])

    def step(self, num: int) -> int:
        """Return by how much one more group in a domain with ``num`` groups raises the spread."""
        # The groups of a domain are divided evenly over the stages, so the new one joins a stage
        # with num // stages groups. (n + 1)^2 - n^2 = 2 n + 1.
        return 2 * (num // self.stages) + 1

    def cost(self, num: int) -> int:
        """Return the spread of ``num`` groups in one domain: the sum of squares over the stages."""
        each, more = divmod(num, self.stages)
        return (self.stages - more) * each**2 + more * (each + 1) ** 2


@dataclass(frozen=True, slots=True)
class DomainSite:
    """The free workers of every node, and the number of its failure domain."""

    rooms: Sequence[int]
    domains: Sequence[int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a search.

    Attributes:
        groups: By kind, groups by node; None if no packing is better than the known one.
        is_complete: Whether all packings were looked at.
    """

    groups: tuple[Mapping[int, int], ...] | None
    is_complete: bool


_Sizes = tuple[int, ...]
"""Groups of every kind."""
_History = tuple["_History", int, _Sizes] | None
"""How a packing came about: the history before, the node, and its groups of every kind."""


def search(
    kinds: Sequence[GroupKind],
    site: DomainSite,
    taken: Sequence[Counter[int]],
    known: tuple[int, int] | None,
    max_steps: int,
) -> Outcome:
    """Return the best packing, if one is better than the known one.

    Args:
        kinds: The groups to place, all of them.
        site: Nodes, rooms and domains.
        taken: For every kind, the groups that each domain has besides, which add to the spread.
        known: The score to beat: ranks that stay, and the negated additional spread. None if there
            is none.
        max_steps: Number of ways to fill a node after which the search gives up.

    Returns:
        A packing with a larger score than ``known``, and whether all packings were looked at. If
        so, it is the best, and no packing means that none is better.
    """
    try:
        return _Search(kinds, site, taken, max_steps).run(known)
    except _TooManyError:
        return Outcome(None, is_complete=False)


class _TooManyError(Exception):
    """The search exceeds its limit."""


class _Search:
    def __init__(
        self,
        kinds: Sequence[GroupKind],
        site: DomainSite,
        taken: Sequence[Counter[int]],
        max_steps: int,
    ) -> None:
        self._kinds, self._site, self._taken = kinds, site, taken
        # Counts down in steps, not in seconds: equal inputs must give equal placements on every
        # machine.
        self._left = max_steps
        # Nodes without room for even the smallest group can't get one. Skipping them keeps a nearly
        # full cluster searchable.
        smallest = min((kind.size for kind in kinds if kind.count), default=1)
        domains: dict[int, list[int]] = {}
        for v, room in enumerate(site.rooms):
            if room >= smallest:
                domains.setdefault(site.domains[v], []).append(v)
        self._domains = list(domains.items())
        # One rank that stays must outweigh any spread, so that one integer orders both criteria.
        self._weight = 1 + sum(
            kind.cost(kind.count + max(count.values(), default=0)) + kind.count
            for kind, count in zip(kinds, taken, strict=True)
        )

    def run(self, known: tuple[int, int] | None) -> Outcome:
        counts = tuple(kind.count for kind in self._kinds)
        floor = None if known is None else known[0] * self._weight + known[1]
        bounds = self._bounds()
        layer: dict[_Sizes, tuple[int, _History]] = {counts: (0, None)}
        for (domain, nodes), bound in zip(self._domains, bounds, strict=True):
            layer = self._fill_domain(domain, nodes, layer)
            for left, (value, _) in list(layer.items()):
                most = _most(bound, left)
                # Admissible: ``most`` gives every kind all remaining nodes for itself, so no
                # completion is worth more. ``<=`` drops ties too, because only a better packing is
                # wanted.
                if most is None or (floor is not None and value + most <= floor):
                    del layer[left]
        found = layer.get((0,) * len(counts))
        if found is None or (floor is not None and found[0] <= floor):
            return Outcome(None, is_complete=True)
        return Outcome(self._read(found[1]), is_complete=True)

    def _fill_domain(
        self, domain: int, nodes: Sequence[int], layer: Mapping[_Sizes, tuple[int, _History]]
    ) -> dict[_Sizes, tuple[int, _History]]:
        """Return the best way to each state after one more domain."""
        base = tuple(count[domain] for count in self._taken)
        states = {(left, base): entry for left, entry in layer.items()}
        for v in nodes:
            # Inside a domain the state includes the groups that the domain has, because the spread
            # depends on them.
            after: dict[tuple[_Sizes, _Sizes], tuple[int, _History]] = {}
            for (left, here), (value, history) in states.items():
                for groups in self._patterns(left, self._site.rooms[v]):
                    gained = value + self._worth(v, here, groups)
                    state = _minus(left, groups), _plus(here, groups)
                    if state not in after or after[state][0] < gained:
                        after[state] = gained, (history, v, groups)
            states = after
        best: dict[_Sizes, tuple[int, _History]] = {}
        for (left, _), entry in states.items():
            # After the domain only the groups left to place matter, so ways that differ inside the
            # domain are merged. Strictly greater: of equals the first way found stays.
            if left not in best or best[left][0] < entry[0]:
                best[left] = entry
        return best

    def _patterns(self, left: _Sizes, room: int) -> Iterator[_Sizes]:
        """Yield all ways to fill a node."""
        stack: list[tuple[_Sizes, int]] = [((), room)]
        while stack:
            groups, free = stack.pop()
            if len(groups) == len(left):
                self._left -= 1
                if self._left < 0:
                    raise _TooManyError
                yield groups
                continue
            size = self._kinds[len(groups)].size
            most = min(left[len(groups)], free // size)
            stack += [((*groups, num), free - num * size) for num in range(most + 1)]

    def _worth(self, v: int, here: _Sizes, groups: _Sizes) -> int:
        total = 0
        for kind, before, num in zip(self._kinds, here, groups, strict=True):
            if num:
                total += self._weight * sum(kind.stays.get(v, ())[:num])
                total -= kind.cost(before + num) - kind.cost(before)
        return total

    def _bounds(self) -> list[list[list[int]]]:
        """Return, after each domain and by kind, a bound for the worth of any number of groups."""
        bounds: list[list[list[int]]] = []
        rest: list[list[int]] = [[] for _ in self._kinds]
        for domain, nodes in reversed(self._domains):
            bounds.append([list(accumulate(steps, initial=0)) for steps in rest])
            # Each further group of a kind in a domain is worth less than the one before. So the
            # largest steps over all domains, summed up, bound any choice of groups.
            rest = [
                sorted([*steps, *self._steps(k, domain, nodes)], reverse=True)[: kind.count]
                for k, (kind, steps) in enumerate(zip(self._kinds, rest, strict=True))
            ]
            self._left -= sum(map(len, rest))
            if self._left < 0:
                raise _TooManyError
        return bounds[::-1]

    def _steps(self, k: int, domain: int, nodes: Sequence[int]) -> list[int]:
        """Return the worth of the first, second, ... group of a kind in a domain, alone there."""
        kind = self._kinds[k]
        stays: list[int] = []
        for v in nodes:
            num = min(self._site.rooms[v] // kind.size, kind.count)
            held = kind.stays.get(v, ())[:num]
            stays += [*held, *[0] * (num - len(held))]
        # The largest stays come first, so the first i steps bound the worth of any i groups in the
        # domain.
        stays = sorted(stays, reverse=True)[: kind.count]
        base = self._taken[k][domain]
        return [self._weight * stay - kind.step(base + i) for i, stay in enumerate(stays)]

    def _read(self, history: _History) -> tuple[Mapping[int, int], ...]:
        groups: tuple[dict[int, int], ...] = tuple({} for _ in self._kinds)
        while history:
            history, v, nums = history
            for k, num in enumerate(nums):
                if num:
                    groups[k][v] = num
        return groups


def _most(bound: Sequence[Sequence[int]], left: _Sizes) -> int | None:
    """Return an upper bound for the worth of the groups left; None if they have no room."""
    if any(num >= len(worth) for worth, num in zip(bound, left, strict=True)):
        return None
    return sum(worth[num] for worth, num in zip(bound, left, strict=True))


def _minus(left: _Sizes, groups: _Sizes) -> _Sizes:
    return tuple(a - b for a, b in zip(left, groups, strict=True))


def _plus(here: _Sizes, groups: _Sizes) -> _Sizes:
    return tuple(a + b for a, b in zip(here, groups, strict=True))
