"""In-memory checkpoints of modelled ranks: ``nodeagent.rank.memory`` without tensors and threads.

Every cell has two places for copies, of which the one that is known complete everywhere stays. A copy lies with its owner
at once, and with its holder when the test lets it arrive, or half of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from controller.core.copies import copy_holders
from controller.core.placement import Worker
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.regroup import HeldCopy
from tests.fakes.modelled_groups import Groups
from tests.fakes.modelled_state import Cell, Parameters


@dataclass(eq=False)
class _Copy:
    iteration: int = 0
    parameters: Parameters = field(default_factory=dict)


@dataclass(eq=False)
class ModelledMemory:
    """The copies that one process makes and holds, over all its generations.

    Attributes:
        holder: Rank that its copies go to; None if nobody holds any.
        outgoing: The copy that is on its way.
        awaited: Ranks whose copies it awaits.
    """

    holder: int | None = None
    outgoing: tuple[int, Parameters] | None = None
    awaited: set[int] = field(default_factory=set)
    _cell: Cell = (0, 0)
    _cells: dict[int, Cell] = field(default_factory=dict)
    _owners: Sequence[int] = ()
    _places: dict[Cell, list[_Copy]] = field(default_factory=dict)
    _num_taken: int = 0
    _newest: int = 0
    _complete: int = 0

    def enter(self, groups: Groups, rank: int) -> None:
        """Take up a generation: what was on its way is not there, what has arrived stays."""
        layout = groups.layout
        nodes = [Worker(NodeId(f"n{number}"), 0) for number in range(layout.num_workers)]
        holders = copy_holders(layout, nodes, is_sharded=False)
        self._cells = {
            number: (layout.tp_rank(number), layout.pp_rank(number))
            for number in range(layout.num_workers)
        }
        self._cell, self.holder = self._cells[rank], holders[rank]
        self._owners = [owner for owner, holder in enumerate(holders) if holder == rank]
        self.outgoing, self.awaited, self._num_taken = None, set(), 0

    @property
    def is_busy(self) -> bool:
        """Whether a copy is on its way, from here or to here."""
        return self.outgoing is not None or bool(self.awaited)

    def take(self, iteration: int, parameters: Parameters) -> None:
        """Begin the copies of an iteration."""
        if self._num_taken:
            kept = {self._cell, *(self._cells[owner] for owner in self._owners)}
            self._places = {cell: each for cell, each in self._places.items() if cell in kept}
            self._complete = self._newest
        self._num_taken += 1
        self._newest = iteration
        if self.holder is not None:
            self._place_for(self._cell, iteration, parameters)
            self.outgoing = iteration, parameters
        self.awaited = set(self._owners)

    def receive(self, owner: int, other: "ModelledMemory", *, is_half: bool) -> None:
        """Take what ``owner`` sends, or the first half of it."""
        if owner not in self.awaited or other.outgoing is None:
            return
        if is_half:
            self._place_for(self._cells[owner], 0, {})
            return
        self._place_for(self._cells[owner], *other.outgoing)
        self.awaited.remove(owner)
        other.outgoing = None

    def held(self) -> tuple[HeldCopy, ...]:
        """Return what can be handed out."""
        return tuple(
            HeldCopy(tp_rank=tp, pp_rank=pp, dp_rank=0, iteration=copy.iteration)
            for (tp, pp), copies in sorted(self._places.items())
            for copy in copies
            if copy.iteration
        )

    def data_of(self, cell: Cell, iteration: int) -> Parameters | None:
        """Return a copy; None if it is not here."""
        found = [copy for copy in self._places.get(cell, ()) if copy.iteration == iteration]
        return found[0].parameters if found else None

    def forget(self, *, newer_than: int = 0) -> None:
        """Drop the copies of iterations after ``newer_than``."""
        for copies in self._places.values():
            copies[:] = [copy if copy.iteration <= newer_than else _Copy() for copy in copies]

    def _place_for(self, cell: Cell, iteration: int, parameters: Parameters) -> None:
        copies = self._places.setdefault(cell, [_Copy(), _Copy()])
        place = min(copies, key=lambda copy: (copy.iteration == self._complete, copy.iteration))
        place.iteration, place.parameters = iteration, parameters
