"""In-memory checkpoints of modelled ranks, without tensors and threads.

Every shard has two places for copies, and a third one while both are to be kept. A copy lies with
its owner at once, and with its holder when the test lets it arrive, or half of it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from controller.core.rules.placement import Worker
from controller.core.rules.regroup.copy_holders import copy_holders
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.regroup import HeldCopy
from tests.fakes.modelled_groups import Groups
from tests.fakes.modelled_state import State


class ShardKey(NamedTuple):
    """A shard: whose it is, and of how many at its (tp, pp)."""

    tp_rank: int
    pp_rank: int
    dp_rank: int
    num_shards: int


@dataclass(eq=False)
class _Copy:
    iteration: int = 0
    state: State = field(default_factory=dict)


@dataclass(eq=False)
class ModelledMemory:
    """The copies that one process makes and holds, over all its generations.

    Attributes:
        holder: Rank that its copies go to; None if nobody holds any.
        outgoing: The copy that is on its way.
        awaited: Ranks whose copies it awaits.
    """

    holder: int | None = None
    outgoing: tuple[int, State] | None = None
    awaited: set[int] = field(default_factory=set)
    _key: ShardKey = field(default_factory=lambda: ShardKey(0, 0, 0, 1))
    _keys: dict[int, ShardKey] = field(default_factory=dict)
    _owners: Sequence[int] = ()
    _places: dict[ShardKey, list[_Copy]] = field(default_factory=dict)
    _num_taken: int = 0
    _newest: int = 0
    _kept: Collection[int] = ()

    def enter(self, groups: Groups, rank: int, *, is_sharded: bool, kept: Collection[int]) -> None:
        """Take up a generation: copies that have arrived stay, copies on their way are lost."""
        layout = groups.layout
        nodes = [Worker(NodeId(f"n{number}"), 0) for number in range(layout.num_workers)]
        holders = copy_holders(layout, nodes, is_sharded=is_sharded)
        self._keys = {
            number: ShardKey(
                layout.tp_rank(number),
                layout.pp_rank(number),
                layout.dp_rank(number) if is_sharded else 0,
                layout.dp if is_sharded else 1,
            )
            for number in range(layout.num_workers)
        }
        self._key, self.holder = self._keys[rank], holders[rank]
        self._owners = [owner for owner, holder in enumerate(holders) if holder == rank]
        self.outgoing, self.awaited, self._num_taken = None, set(), 0
        self._kept = kept

    @property
    def is_busy(self) -> bool:
        """Whether a copy is on its way, from here or to here."""
        return self.outgoing is not None or bool(self.awaited)

    def take(self, iteration: int, state: State) -> None:
        """Begin the copies of an iteration."""
        if self._num_taken:
            keys = {self._key, *(self._keys[owner] for owner in self._owners)}
            self._places = {
                key: sorted(copies, key=lambda copy: copy.iteration)[-2:]
                for key, copies in self._places.items()
                if key in keys
            }
            self._kept = (self._newest,)
        self._num_taken += 1
        self._newest = iteration
        if self.holder is not None:
            self._place_for(self._key, iteration, state)
            self.outgoing = iteration, state
        self.awaited = set(self._owners)

    def receive(self, owner: int, other: "ModelledMemory", *, is_half: bool) -> None:
        """Take what ``owner`` sends, or the first half of it."""
        if owner not in self.awaited or other.outgoing is None:
            return
        if is_half:
            self._place_for(self._keys[owner], 0, {})
            return
        self._place_for(self._keys[owner], *other.outgoing)
        self.awaited.remove(owner)
        other.outgoing = None

    def held(self) -> tuple[HeldCopy, ...]:
        """Return what can be handed out."""
        return tuple(
            HeldCopy(**key._asdict(), iteration=copy.iteration)
            for key, copies in sorted(self._places.items())
            for copy in copies
            if copy.iteration
        )

    def data_of(self, key: ShardKey, iteration: int) -> State | None:
        """Return a copy; None if it is not here."""
        found = [copy for copy in self._places.get(key, ()) if copy.iteration == iteration]
        return found[0].state if found else None

    def forget(self, *, newer_than: int = 0) -> None:
        """Drop the copies of iterations after ``newer_than``."""
        for copies in self._places.values():
            copies[:] = [copy if copy.iteration <= newer_than else _Copy() for copy in copies]

    def _place_for(self, key: ShardKey, iteration: int, state: State) -> None:
        copies = self._places.setdefault(key, [_Copy(), _Copy()])
        if all(copy.iteration in self._kept for copy in copies):
            copies.append(_Copy())
        free = [copy for copy in copies if copy.iteration not in self._kept]
        place = min(free, key=lambda copy: copy.iteration)
        place.iteration, place.state = iteration, state
