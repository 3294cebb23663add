"""The search through all packings of few groups on few nodes: exact, or given up.

One failure domain after the other is filled in every way, and of all ways that leave the same groups to be placed
only the best is kept. A way is dropped if it could not become better than what is known, even if every kind had the
rest of the nodes for itself. What is wanted is told in ``controller.core.rules.packing.fewest_moves``.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class GroupKind:
    """Groups that may stand for each other.

    Attributes:
        size: Workers of a group, all in one node.
        count: Groups to be placed.
        stages: Among how many pipeline stages the groups of a domain are dealt; only those of one stage
            count as sharing it. 1 where a kind is one stage.
        stays: By node, how many ranks of the first, second, ... group there stay; not ascending, above 0.
        holes: By node, ranks lost by the replicas that would stay there; the fewer, the rather they do.
    """

    size: int
    count: int
    stages: int = 1
    stays: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    holes: Mapping[int, int] = field(default_factory=dict)

    def usable_stays(self, v: int, room: int) -> tuple[int, ...]:
        """Return what stays with the first, second, ... group on a node with so much room."""
        return self.stays.get(v, ())[: room // self.size]

    def num_held(self, rooms: Sequence[int]) -> int:
        """Return the groups with which anything stays."""
        return sum(len(self.usable_stays(v, rooms[v])) for v in self.stays)

    def most_staying(self, rooms: Sequence[int]) -> int:
        """Return the most ranks that can stay, whatever the other kinds do."""
        stays = (stay for v in self.stays for stay in self.usable_stays(v, rooms[v]))
        return sum(sorted(stays, reverse=True)[: self.count])

    def step(self, num: int) -> int:
        """Return what one group more in a domain with ``num`` adds to the spread."""
        return 2 * (num // self.stages) + 1

    def cost(self, num: int) -> int:
        """Return the spread of ``num`` groups in one domain: the sum of squares over the stages."""
        each, more = divmod(num, self.stages)
        return (self.stages - more) * each**2 + more * (each + 1) ** 2


@dataclass(frozen=True, slots=True)
class DomainSite:
    """Where groups can be put: for every node, its free workers and the number of its domain."""

    rooms: Sequence[int]
    domains: Sequence[int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search has found.

    Attributes:
        groups: By kind, groups by node; None where nothing is better than what is known.
        is_complete: Whether everything was looked at.
    """

    groups: tuple[Mapping[int, int], ...] | None
    is_complete: bool


_Sizes = tuple[int, ...]
_History = tuple["_History", int, _Sizes] | None
"""How a packing came about: what was before, the node, and the groups of every kind put there."""


def search(
    kinds: Sequence[GroupKind],
    site: DomainSite,
    taken: Sequence[Counter[int]],
    known: tuple[int, int] | None,
    max_steps: int,
) -> Outcome:
    """Return the best packing that is better than what is known.

    Args:
        kinds: What is to be placed.
        site: Where.
        taken: For every kind, groups that every domain has already.
        known: Ranks that stay and, negated, added spread of a known packing.
        max_steps: Ways of filling a node that are looked at before it is given up.
    """
    try:
        return _Search(kinds, site, taken, max_steps).run(known)
    except _TooManyError:
        return Outcome(None, is_complete=False)


class _TooManyError(Exception):
    """The search takes too long."""


class _Search:
    def __init__(
        self,
        kinds: Sequence[GroupKind],
        site: DomainSite,
        taken: Sequence[Counter[int]],
        max_steps: int,
    ) -> None:
        self._kinds, self._site, self._taken = kinds, site, taken
        self._left = max_steps
        smallest = min((kind.size for kind in kinds if kind.count), default=1)
        domains: dict[int, list[int]] = {}
        for v, room in enumerate(site.rooms):
            if room >= smallest:
                domains.setdefault(site.domains[v], []).append(v)
        self._domains = list(domains.items())
        # One rank that stays outweighs any spread.
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
                if most is None or (floor is not None and value + most <= floor):
                    del layer[left]
        found = layer.get((0,) * len(counts))
        if found is None or (floor is not None and found[0] <= floor):
            return Outcome(None, is_complete=True)
        return Outcome(self._read(found[1]), is_complete=True)

    def _fill_domain(
        self, domain: int, nodes: Sequence[int], layer: Mapping[_Sizes, tuple[int, _History]]
    ) -> dict[_Sizes, tuple[int, _History]]:
        """Return the best way to each state after one domain."""
        base = tuple(count[domain] for count in self._taken)
        states = {(left, base): entry for left, entry in layer.items()}
        for v in nodes:
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
        """Return, after each domain and for each kind, the most that any number of groups can be worth."""
        bounds: list[list[list[int]]] = []
        rest: list[list[int]] = [[] for _ in self._kinds]
        for domain, nodes in reversed(self._domains):
            bounds.append([list(accumulate(steps, initial=0)) for steps in rest])
            rest = [
                sorted([*steps, *self._steps(k, domain, nodes)], reverse=True)[: kind.count]
                for k, (kind, steps) in enumerate(zip(self._kinds, rest, strict=True))
            ]
            self._left -= sum(map(len, rest))
            if self._left < 0:
                raise _TooManyError
        return bounds[::-1]

    def _steps(self, k: int, domain: int, nodes: Sequence[int]) -> list[int]:
        """Return what the first, second, ... group of a kind is worth in a domain, alone there."""
        kind = self._kinds[k]
        stays: list[int] = []
        for v in nodes:
            num = min(self._site.rooms[v] // kind.size, kind.count)
            held = kind.stays.get(v, ())[:num]
            stays += [*held, *[0] * (num - len(held))]
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
    """Return the most that what is left can be worth; None where it has no room."""
    if any(num >= len(worth) for worth, num in zip(bound, left, strict=True)):
        return None
    return sum(worth[num] for worth, num in zip(bound, left, strict=True))


def _minus(left: _Sizes, groups: _Sizes) -> _Sizes:
    return tuple(a - b for a, b in zip(left, groups, strict=True))


def _plus(here: _Sizes, groups: _Sizes) -> _Sizes:
    return tuple(a + b for a, b in zip(here, groups, strict=True))
