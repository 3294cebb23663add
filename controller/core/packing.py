"""How many tensor-parallel groups each node gets: the fewest ranks moved, then replicas spread.

Placements are compared by counts alone. A *group* is the ranks of one tensor-parallel group; groups of one
*kind* (one stage of a task) may stand for each other. With y groups of a kind on a node, so many of their ranks
stay as are held there, and every further group lets no more of its ranks stay than the one before. Wanted is

1. the most ranks that stay,
2. then the least *spread*: the number of ordered pairs of groups of one kind that share a failure domain, each
   with itself included; that is the sum over kinds and domains of the square of the number of groups. Groups of
   a kind are each other's data-parallel peers, so the loss of a domain takes few replicas of a task.

A kind for itself is placed best by taking one group after the other where it is worth most, since both parts
become less from group to group. The sum over all kinds, each placed as if it had the nodes for itself, is a
bound. Placing the kinds one after the other often attains it: then it is the best, by proof, in about as many
steps as there are nodes and groups. Where every rank stays that could, only what is missing is open, and is
searched for (``packing_search``). Else everything is searched where that is small, and where it is not, which
groups give way is found exactly (``clearing``), and the spread is as good as it comes out.

Which workers the groups get is decided in ``controller.core.placement``.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from controller.core.clearing import Cleared, clear, has_places
from controller.core.packing_search import Kind, Site, search

_MAX_STEPS: Final = 10_000
"""A tenth or two of a second."""

Groups = tuple[Mapping[int, int], ...]
"""Groups by node, for every kind."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Groups by node, and what is proven about them.

    Attributes:
        groups: For every kind, groups by node.
        num_staying: Ranks that stay.
        spread: The smaller, the better.
        has_fewest_moves: Whether no packing lets more ranks stay.
        is_best: Whether, besides, none of those has a smaller spread.
    """

    groups: Groups
    num_staying: int
    spread: int
    has_fewest_moves: bool
    is_best: bool


@dataclass(frozen=True, slots=True)
class NoPacking:
    """There is none, or, where that is not proven, none was found."""

    is_proven: bool


def pack(kinds: Sequence[Kind], site: Site, max_steps: int = _MAX_STEPS) -> Packing | NoPacking:
    """Return the best packing of all groups of ``kinds``; ties go by the order of kinds and nodes.

    Args:
        kinds: What is to be placed.
        site: Where.
        max_steps: Partial packings that are looked at before the search for the least spread is given up.
    """
    if not has_places(kinds, site.rooms):
        return NoPacking(is_proven=True)
    most = sum(kind.most_staying(site.rooms) for kind in kinds)
    least_spread: int | None = None
    best: _Fill | None = None
    for order in _orders(kinds):
        fill = _Fill(kinds, site)
        if not fill.run(order):
            continue
        if best is None or fill.score > best.score:
            best = fill
        if fill.num_staying == most:
            if least_spread is None:
                least_spread = _least_spread(kinds, site)
            if fill.spread == least_spread:
                return fill.packing(has_fewest_moves=True, is_best=True)
    if best is not None and best.num_staying == most:
        return _spread_what_is_missing(kinds, site, best, max_steps)
    return _make_room(kinds, site, best, max_steps)


def _orders(kinds: Sequence[Kind]) -> list[list[int]]:
    """Return the orders in which to serve kinds: as given, and the largest groups first."""
    given = list(range(len(kinds)))
    largest_first = sorted(given, key=lambda k: -kinds[k].size)
    return [given] if given == largest_first else [given, largest_first]


def _spread_what_is_missing(
    kinds: Sequence[Kind], site: Site, best: "_Fill", max_steps: int
) -> Packing:
    """Return the best packing in which all that can stay does."""
    kept = _Fill(kinds, site)
    kept.keep(_needy(kinds, site))
    missing = [
        replace(kind, count=kind.count - kept.num_placed(k), stays={})
        if kept.num_placed(k)
        else kind
        for k, kind in enumerate(kinds)
    ]
    rest = Site(kept.rooms, site.domains)
    outcome = search(missing, rest, kept.by_domain, best.score_over(kept), max_steps)
    if outcome.groups is None:
        return best.packing(has_fewest_moves=True, is_best=outcome.is_complete)
    for k, groups in enumerate(outcome.groups):
        kept.put_all(k, groups)
    return kept.packing(has_fewest_moves=True, is_best=True)


def _make_room(
    kinds: Sequence[Kind], site: Site, best: "_Fill | None", max_steps: int
) -> Packing | NoPacking:
    """Return the best packing where not everything can stay, or the order of service was of no use."""
    nothing: tuple[Counter[int], ...] = tuple(Counter() for _ in kinds)
    outcome = search(kinds, site, nothing, best.score if best else None, max_steps)
    if outcome.groups is not None:
        fill = _Fill(kinds, site)
        for k, groups in enumerate(outcome.groups):
            fill.put_all(k, groups)
        return fill.packing(has_fewest_moves=True, is_best=True)
    if outcome.is_complete:
        if best is None:
            return NoPacking(is_proven=True)
        return best.packing(has_fewest_moves=True, is_best=True)
    cleared = clear(kinds, site.rooms, best.num_staying if best else None)
    if cleared.keeps is not None:
        fill = _Fill(kinds, site, cleared)
        is_placed = fill.run(_orders(kinds)[-1])
        assert is_placed, "what was cleared has room for everything"
        if best is None or fill.score > best.score:
            best = fill
    if best is None:
        return NoPacking(is_proven=cleared.is_complete)
    return best.packing(has_fewest_moves=cleared.is_complete, is_best=False)


def _needy(kinds: Sequence[Kind], site: Site) -> list[int]:
    """Return the kinds of which everything that is held is needed."""
    return [k for k, kind in enumerate(kinds) if kind.num_held(site.rooms) <= kind.count]


def _least_spread(kinds: Sequence[Kind], site: Site) -> int:
    """Return a bound of the spread of packings in which all that can stay does.

    What a kind needs of what it holds, it keeps; that leaves the others less room.
    """
    needy = _needy(kinds, site)
    kept = _Fill(kinds, site)
    kept.keep(needy)
    total = 0
    for k in range(len(kinds)):
        alone = kept.copy_for(k)
        if k not in needy:
            alone.rooms = list(site.rooms)
            alone.keep([k])
        alone.add(k)
        total += alone.spread_of(k)
    return total


@dataclass(slots=True)
class _Fill:
    """Groups put on nodes, one kind after the other."""

    kinds: Sequence[Kind]
    site: Site
    cleared: Cleared | None = None
    """What may stay, and where sizes that do not divide each other go; None leaves it open."""
    rooms: list[int] = field(init=False)
    groups: tuple[Counter[int], ...] = field(init=False)
    by_domain: tuple[Counter[int], ...] = field(init=False)
    num_staying: int = 0
    _places: Sequence[dict[int, int]] | None = field(init=False)

    def __post_init__(self) -> None:
        self._places = self.cleared.places if self.cleared else None
        self.rooms = list(self.site.rooms)
        self.groups = tuple(Counter() for _ in self.kinds)
        self.by_domain = tuple(Counter() for _ in self.kinds)

    def copy_for(self, k: int) -> "_Fill":
        """Return a copy that may be used for kind ``k`` only."""
        copy = _Fill(self.kinds, self.site)
        copy.rooms = list(self.rooms)
        copy.groups[k].update(self.groups[k])
        copy.by_domain[k].update(self.by_domain[k])
        return copy

    def run(self, order: Sequence[int]) -> bool:
        """Place everything; return whether it found room."""
        needy = set(_needy(self.kinds, self.site))
        self.keep([k for k in order if k in needy])
        self.keep([k for k in order if k not in needy])
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
            if self.cleared and self.cleared.keeps is not None:
                stays = stays[: self.cleared.keeps[k].get(v, 0)]
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

    def _rank(self, kind: Kind, v: int, stay: int) -> tuple[int, int, int, int]:
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

    def score_over(self, part: "_Fill") -> tuple[int, int]:
        """Return how much of the score is not that of a part of it."""
        return self.num_staying - part.num_staying, part.spread - self.spread

    def packing(self, *, has_fewest_moves: bool, is_best: bool) -> Packing:
        """Return it as a result."""
        return Packing(self.groups, self.num_staying, self.spread, has_fewest_moves, is_best)
