"""A packing built greedily: held groups first, then each group where it is worth most."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controller.core.rules.packing.eviction import Eviction
from controller.core.rules.packing.exhaustive import DomainSite, GroupKind


def kinds_without_surplus(kinds: Sequence[GroupKind], site: DomainSite) -> list[int]:
    """Return the kinds that hold no more groups than they need."""
    return [k for k, kind in enumerate(kinds) if kind.num_held(site.rooms) <= kind.count]


@dataclass(slots=True)
class GreedyPacking:
    """A packing that grows by one kind after the other; what is placed never moves again.

    Args:
        kinds: The groups to place, and what each node holds of them.
        site: The free workers of every node, those under held groups included, and its domain.
    """

    kinds: Sequence[GroupKind]
    site: DomainSite
    eviction: Eviction | None = None
    """Groups that may stay, and places for sizes that do not divide each other; None: no limits."""
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
        """Keep held groups, then place the others. Call it once, on an empty packing.

        Args:
            order: Every kind once. Earlier kinds choose first.

        Returns:
            Whether all groups found room. If not, the packing is of no further use.
        """
        # A kind with a surplus can choose which of its groups to keep. The others can't, so they
        # get the room first.
        first = set(kinds_without_surplus(self.kinds, self.site))
        self.keep([k for k in order if k in first])
        self.keep([k for k in order if k not in first])
        return all(self.add(k) for k in order)

    def keep(self, order: Sequence[int]) -> None:
        """Keep held groups as far as they are needed, groups with the fewest lost ranks first."""
        waiting: list[tuple[int, int, int, dict[int, int]]] = []
        for place, k in enumerate(order):
            for stay, by_node in self._held(k).items():
                waiting.append((self.kinds[k].size - stay, place, k, by_node))
        # Sorted by lost ranks over all kinds, so that a complete group never loses its room to a
        # remnant of another kind.
        for lost, _, k, by_node in sorted(waiting, key=lambda each: each[:2]):
            size = self.kinds[k].size
            fitting = {v: min(n, self._room(v, size)) for v, n in by_node.items()}
            limit = min(self.kinds[k].count - self.num_placed(k), sum(fitting.values()))
            self._take(k, fitting, limit, size - lost)

    def add(self, k: int) -> bool:
        """Place the missing groups of a kind; return whether they found room.

        Each group goes to the domain with the fewest groups of its kind, and there into the
        smallest gap.
        """
        size, limit = self.kinds[k].size, self.kinds[k].count - self.num_placed(k)
        if not limit:
            return True
        room = {v: self._room(v, size) for v, free in enumerate(self.rooms) if free >= size}
        if sum(room.values()) < limit:
            return False
        self._take(k, room, limit, 0)
        return True

    def _room(self, v: int, size: int) -> int:
        """Return how many more groups of a size the node can get."""
        if self._places is None:
            return self.rooms[v] // size
        # The eviction has decided where each size goes. Free workers elsewhere are reserved for
        # other sizes.
        return min(self.rooms[v] // size, self._places[v].get(size, 0))

    def _held(self, k: int) -> dict[int, dict[int, int]]:
        """Return the groups that may stay, by node, for each number of staying ranks."""
        kind = self.kinds[k]
        levels: dict[int, dict[int, int]] = defaultdict(dict)
        for v in sorted(kind.stays):
            stays = kind.usable_stays(v, self.rooms[v])
            if self.eviction and self.eviction.keeps is not None:
                stays = stays[: self.eviction.keeps[k].get(v, 0)]
            if len(stays) == 1:  # on large clusters nearly all nodes are like that
                levels[stays[0]][v] = 1
                continue
            for stay, num in Counter(stays).items():
                levels[stay][v] = num
        return levels

    def _take(self, k: int, room: Mapping[int, int], limit: int, stay: int) -> None:
        """Place ``limit`` groups on nodes that have room for at least as many."""
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
        # One heap per domain orders its nodes, and one heap over the domains picks the next one. So
        # a group costs a logarithm of the nodes instead of a scan over all.
        domain_heads = []
        for domain, queue in nodes.items():
            heapq.heapify(queue)
            domain_heads.append((kind.step(self.by_domain[k][domain]), queue[0], domain))
        heapq.heapify(domain_heads)
        for _ in range(limit):
            _, (*_, v), domain = domain_heads[0]
            self._put(k, v, 1, stay)
            left[v] -= 1
            queue = nodes[domain]
            heapq.heappop(queue)
            if left[v]:
                heapq.heappush(queue, self._rank(kind, v, stay))
            if queue:
                head = (kind.step(self.by_domain[k][domain]), queue[0], domain)
                heapq.heapreplace(domain_heads, head)
            else:
                heapq.heappop(domain_heads)

    def _rank(self, kind: GroupKind, v: int, stay: int) -> tuple[int, int, int, int]:
        """Return the sort key of nodes of equal worth: the smallest loss, then the smallest gap."""
        # Keeping groups of replicas that have lost few ranks leaves whole replicas rather than
        # remnants of many.
        if stay:
            return kind.holes.get(v, 0), -len(kind.stays[v]), self.rooms[v], v
        # The fullest node that fits (best fit) leaves large gaps for large groups. The node number
        # makes the choice deterministic.
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
        """Place groups of a kind as another packing has them, besides the groups already there."""
        for v, num in groups.items():
            # The groups already there have used the best of ``stays``; the new ones get the
            # following ones.
            begin = self.groups[k][v]
            stays = self.kinds[k].stays.get(v, ())[begin : begin + num]
            self._put(k, v, num, 0)
            self.num_staying += sum(stays)

    def num_placed(self, k: int) -> int:
        """Return how many groups of a kind are placed."""
        return self.groups[k].total()

    def spread_of(self, k: int) -> int:
        """Return the spread of one kind."""
        return sum(self.kinds[k].cost(num) for num in self.by_domain[k].values())

    @property
    def spread(self) -> int:
        """The spread of all kinds."""
        return sum(self.spread_of(k) for k in range(len(self.kinds)))

    @property
    def score(self) -> tuple[int, int]:
        """Ranks that stay and the negated spread. A larger pair is a better packing."""
        return self.num_staying, -self.spread

    def score_over(self, part: "GreedyPacking") -> tuple[int, int]:
        """Return the part of the score that ``part`` does not have."""
        return self.num_staying - part.num_staying, part.spread - self.spread
