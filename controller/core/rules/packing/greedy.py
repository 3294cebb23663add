"""Groups put on nodes one kind after the other: what is held first, then where it is worth most."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controller.core.rules.packing.eviction import Eviction
from controller.core.rules.packing.exhaustive import DomainSite, GroupKind


def kinds_without_surplus(kinds: Sequence[GroupKind], site: DomainSite) -> list[int]:
    """Return the kinds of which everything that is held is needed."""
    return [k for k, kind in enumerate(kinds) if kind.num_held(site.rooms) <= kind.count]


@dataclass(slots=True)
class GreedyPacking:
    """Groups put on nodes, one kind after the other."""

    kinds: Sequence[GroupKind]
    site: DomainSite
    eviction: Eviction | None = None
    """What may stay, and where sizes that do not divide each other go; None leaves it open."""
    rooms: list[int] = field(init=False)
    groups: tuple[Counter[int], ...] = field(init=False)
    by_domain: tuple[Counter[int], ...] = field(init=False)
    num_staying: int = 0
    _places: Sequence[dict[int, int]] | None = field(init=False)

    def __post_init__(self) -> None:
        self._places = self.eviction.places if self.eviction else None
        self.rooms = list(self.site.rooms)
        self.groups = tuple(Counter() for _ in self.kinds)
        self.by_domain = tuple(Counter() for _ in self.kinds)

    def copy_for(self, k: int) -> "GreedyPacking":
        """Return a copy that may be used for kind ``k`` only."""
        copy = GreedyPacking(self.kinds, self.site)
        copy.rooms = list(self.rooms)
        copy.groups[k].update(self.groups[k])
        copy.by_domain[k].update(self.by_domain[k])
        return copy

    def run(self, order: Sequence[int]) -> bool:
        """Place everything; return whether it found room."""
        first = set(kinds_without_surplus(self.kinds, self.site))
        self.keep([k for k in order if k in first])
        self.keep([k for k in order if k not in first])
        return all(self.add(k) for k in order)

    def keep(self, order: Sequence[int]) -> None:
        """Keep what is held as far as it is needed: groups of which all ranks stay come first."""
        waiting: list[tuple[int, int, int, dict[int, int]]] = []
        for place, k in enumerate(order):
            for stay, by_node in self._held(k).items():
                waiting.append((self.kinds[k].size - stay, place, k, by_node))
        for lost, _, k, by_node in sorted(waiting, key=lambda each: each[:2]):
            size = self.kinds[k].size
            fitting = {v: min(n, self._room(v, size)) for v, n in by_node.items()}
            limit = min(self.kinds[k].count - self.num_placed(k), sum(fitting.values()))
            self._take(k, fitting, limit, size - lost)

    def add(self, k: int) -> bool:
        """Put the missing groups of a kind where they share a domain with the fewest, then in the smallest hole."""
        size, limit = self.kinds[k].size, self.kinds[k].count - self.num_placed(k)
        if not limit:
            return True
        room = {v: num for v in range(len(self.rooms)) if (num := self._room(v, size))}
        if sum(room.values()) < limit:
            return False
        self._take(k, room, limit, 0)
        return True

    def _room(self, v: int, size: int) -> int:
        """Return how many groups of a size the node can still get."""
        if self._places is None:
            return self.rooms[v] // size
        return min(self.rooms[v] // size, self._places[v].get(size, 0))

    def _held(self, k: int) -> dict[int, dict[int, int]]:
        """Return the groups that may stay, by node, for every number of their ranks that do."""
        kind = self.kinds[k]
        levels: dict[int, dict[int, int]] = defaultdict(dict)
        for v in sorted(kind.stays):
            stays = kind.usable_stays(v, self.rooms[v])
            if self.eviction and self.eviction.keeps is not None:
                stays = stays[: self.eviction.keeps[k].get(v, 0)]
            for stay, num in Counter(stays).items():
                levels[stay][v] = num
        return levels

    def _take(self, k: int, room: Mapping[int, int], limit: int, stay: int) -> None:
        """Put ``limit`` groups where there is room for that many or more."""
        if not limit:
            return
        if sum(room.values()) == limit:
            for v, num in room.items():
                self._put(k, v, num, stay)
            return
        kind, left = self.kinds[k], dict(room)
        nodes: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
        for v, num in room.items():
            if num:
                nodes[self.site.domains[v]].append(self._rank(kind, v, stay))
        heads = []
        for domain, queue in nodes.items():
            heapq.heapify(queue)
            heads.append((kind.step(self.by_domain[k][domain]), queue[0], domain))
        heapq.heapify(heads)
        for _ in range(limit):
            _, (*_, v), domain = heads[0]
            self._put(k, v, 1, stay)
            left[v] -= 1
            queue = nodes[domain]
            heapq.heappop(queue)
            if left[v]:
                heapq.heappush(queue, self._rank(kind, v, stay))
            if queue:
                head = (kind.step(self.by_domain[k][domain]), queue[0], domain)
                heapq.heapreplace(heads, head)
            else:
                heapq.heappop(heads)

    def _rank(self, kind: GroupKind, v: int, stay: int) -> tuple[int, int, int, int]:
        """Return what decides between nodes of equal worth: little to give up, then the smallest hole."""
        if stay:
            return kind.holes.get(v, 0), -len(kind.stays[v]), self.rooms[v], v
        return 0, 0, self.rooms[v], v

    def _put(self, k: int, v: int, num: int, stay: int) -> None:
        if num:
            self.rooms[v] -= num * self.kinds[k].size
            self.groups[k][v] += num
            self.by_domain[k][self.site.domains[v]] += num
            self.num_staying += num * stay
            if self._places is not None:
                self._places[v][self.kinds[k].size] -= num

    def put_all(self, k: int, groups: Mapping[int, int]) -> None:
        """Put groups of a kind as another packing has them, beside those that are there."""
        for v, num in groups.items():
            begin = self.groups[k][v]
            stays = self.kinds[k].stays.get(v, ())[begin : begin + num]
            self._put(k, v, num, 0)
            self.num_staying += sum(stays)

    def num_placed(self, k: int) -> int:
        """Return the groups of a kind that have their places."""
        return self.groups[k].total()

    def spread_of(self, k: int) -> int:
        """Return the spread of one kind."""
        return sum(self.kinds[k].cost(num) for num in self.by_domain[k].values())

    @property
    def spread(self) -> int:
        """The spread of all of them."""
        return sum(self.spread_of(k) for k in range(len(self.kinds)))

    @property
    def score(self) -> tuple[int, int]:
        """Ranks that stay and, negated, spread."""
        return self.num_staying, -self.spread

    def score_over(self, part: "GreedyPacking") -> tuple[int, int]:
        """Return how much of the score is not that of a part of it."""
        return self.num_staying - part.num_staying, part.spread - self.spread
