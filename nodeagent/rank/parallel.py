"""This rank's process groups in one generation, and the small collectives of our own over all ranks.

Megatron makes its groups over our rendezvous store. With gloo a group costs connections and store
calls at once, and Megatron asks for the same set of ranks under many names (a dense model's
data-parallel group has four), so equal sets share one group there. NCCL connects a group at its
first use, so unused ones cost nothing and Megatron's own are left alone.

Groups are of two kinds. *Inner* ones lie inside a model replica (tensor parallel, pipeline parallel,
embeddings); *spanning* ones connect replicas (data parallel, the world). A fault in another replica
cuts the spanning ones alone, so that a whole replica can finish the micro-batch it is in.

A generation ends with ``leave``; the next one forms its own groups in the same process.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

import torch
from megatron.core import parallel_state
from torch import distributed
from torch.distributed import ProcessGroup

from nodeagent.rank.forming import interruptible
from nodeagent.rank.store import DEFAULT_TIMEOUT_S, AgentStore
from nodeagent.rank.wake import Connections, HaltedError, wait_unless_halted
from profiles.layout import Layout

COLLECTIVE_TIMEOUT_S: Final = DEFAULT_TIMEOUT_S
"""Bound of last resort on one collective; faults are found long before by other means."""

ORDER: Final = "tp-cp-ep-dp-pp"
"""Megatron's name of the order in which ``profiles.layout`` numbers ranks."""

_SPANNING: Final = ("DATA_PARALLEL", "DIST_OPT", "INTER_", "INTRA_")
"""Parts of the descriptions that Megatron gives to groups which connect replicas."""

_CREATE_GROUP: Final[Callable[..., ProcessGroup]] = parallel_state.create_group


_KEPT: Final[list[ProcessGroup]] = []
"""Groups that can't be ended."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where this rank stands in its task's layout.

    Attributes:
        global_rank: Rank in the world of the generation.
        layout: Sizes of the parallel groups.
        device: Device of this rank's tensors.
    """

    global_rank: int
    layout: Layout
    device: torch.device

    @property
    def tp_rank(self) -> int:
        """Position in the tensor-parallel group."""
        return self.layout.tp_rank(self.global_rank)

    @property
    def pp_rank(self) -> int:
        """Pipeline stage."""
        return self.layout.pp_rank(self.global_rank)

    @property
    def dp_rank(self) -> int:
        """Model replica."""
        return self.layout.dp_rank(self.global_rank)

    @property
    def is_first_stage(self) -> bool:
        """Whether this stage embeds tokens."""
        return self.pp_rank == 0

    @property
    def is_last_stage(self) -> bool:
        """Whether this stage computes the loss."""
        return self.pp_rank == self.layout.pp - 1

    def ranks_at(self, tp_rank: int, pp_rank: int) -> list[int]:
        """Return the global ranks at a place of the model: one per replica, in their order."""
        layout = self.layout
        return [
            rank
            for rank in range(layout.num_workers)
            if (layout.tp_rank(rank), layout.pp_rank(rank)) == (tp_rank, pp_rank)
        ]

    def sum_over_all(
        self, numbers: Sequence[float], is_halted: Callable[[], bool] = lambda: False
    ) -> list[float]:
        """Return the element-wise sums of ``numbers`` over all ranks; all ranks must call it.

        In float64, so that counts and byte sizes stay exact up to 2**53.

        Raises:
            RuntimeError: A peer was lost.
            HaltedError: The generation was halted.
        """
        tensor = torch.tensor(list(numbers), dtype=torch.float64, device=self.device)
        wait_unless_halted(distributed.all_reduce(tensor, async_op=True), is_halted)
        sums: list[float] = tensor.tolist()
        return sums


class Groups:
    """The process groups of one generation. ``cut`` may be called from any thread, at any time."""

    def __init__(self, store: AgentStore, place: Place, backend: Literal["gloo", "nccl"]) -> None:
        self._store = store
        self._place = place
        self._backend: Literal["gloo", "nccl"] = backend
        self._lock = threading.Lock()
        self._is_cut = False
        self._inner: list[Connections] = []
        self._spanning: list[Connections] = []
        self._made: list[ProcessGroup] = []

    def form(self) -> None:
        """Meet the other ranks of the generation and make all groups that Megatron needs.

        Blocks until every rank has come, at most for the store's timeout.

        Raises:
            HaltedError: ``cut`` was called meanwhile.
            RuntimeError: A peer did not come, or was lost.
        """
        self._make(self._spanning, self._make_world)
        create = _sharing(self._create) if self._backend == "gloo" else self._create
        state: Any = parallel_state
        state.create_group = create
        try:
            parallel_state.initialize_model_parallel(
                tensor_model_parallel_size=self._place.layout.tp,
                pipeline_model_parallel_size=self._place.layout.pp,
                order=ORDER,
                create_gloo_process_groups=False,  # for saving with the distributed optimizer only
                distributed_timeout_minutes=int(COLLECTIVE_TIMEOUT_S // 60),
            )
        finally:
            state.create_group = _CREATE_GROUP

    def form_for_copies(self, holders: Sequence[int | None]) -> dict[int, ProcessGroup]:
        """Make the groups that in-memory checkpoints travel over; all ranks must call it.

        Each is of two ranks: a group of all would connect every rank with every other.

        Args:
            holders: By global rank, who holds the copies of its state.

        Returns:
            By global rank, the group with each rank that this one sends copies to or has copies of.

        Raises:
            HaltedError: ``cut`` was called meanwhile.
            RuntimeError: A peer was lost.
        """
        own = self._place.global_rank
        return {sum(pair) - own: self._pair(pair) for pair in in_rounds(holders) if own in pair}

    def _pair(self, pair: tuple[int, int]) -> ProcessGroup:
        with _naming(f"copies of {pair[0]} and {pair[1]}"):
            group = self._make(
                self._spanning,
                lambda: distributed.new_group(
                    list(pair),
                    backend="gloo",
                    timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S),
                    use_local_synchronization=True,
                ),
            )
        assert group is not None
        return group

    def cut(self, *, with_inner: bool) -> None:
        """Make collectives of this rank fail: those that connect replicas, or all of them.

        If it is blocked in one it is woken, and also if it still waits for peers to come.
        """
        with self._lock:
            self._is_cut = True
            doomed = [*self._spanning, *(self._inner if with_inner else ())]
        self._store.close()
        for connections in doomed:
            connections.cut()

    def hang_up(self) -> None:
        """Make all collectives fail; with gloo also in peers that were not told to halt.

        Call it when the training thread is in none of them: what a peer is sending then fails, and gloo
        may forget it (``wake``).
        """
        self.cut(with_inner=True)
        for connections in [*self._spanning, *self._inner]:
            connections.hang_up()

    def leave(self, *, has_stuck_work: bool = False) -> None:
        """Take all groups apart. The generation is over for this process.

        Ending a group waits for its operations. Where one never ends, the groups are kept as they
        are, out of use, for the rest of the process's life. ``hang_up`` comes first.
        """
        if has_stuck_work:
            _KEPT.extend(self._made)
        parallel_state.destroy_model_parallel()
        if distributed.is_initialized():
            distributed.destroy_process_group()
        # Ranks meet under the number of the group. Where not even the world could be made torch
        # would count on, and this process would never again meet one that counts from 0.
        distributed.distributed_c10d._world.group_count = 0  # noqa: SLF001 - no public way

    def _make_world(self) -> ProcessGroup | None:
        distributed.init_process_group(
            self._backend,
            store=self._store,
            rank=self._place.global_rank,
            world_size=self._place.layout.num_workers,
            timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S),
        )
        return distributed.group.WORLD

    def _create(self, ranks: Sequence[int], **options: object) -> ProcessGroup:
        kind = self._spanning if _is_spanning(options) else self._inner
        group = self._make(kind, lambda: _CREATE_GROUP(ranks, **options))
        assert group is not None
        return group

    def _make(
        self, kind: list[Connections], make: Callable[[], ProcessGroup | None]
    ) -> ProcessGroup | None:
        connections = Connections()
        with self._lock:
            kind.append(connections)
        with connections.recording(), interruptible(lambda: self._is_cut):
            group = make()
        if group is not None:
            self._made.append(group)
        if self._backend == "nccl":
            connections.group = group
        # A cut that came while the group was made has not seen its connections.
        if self._is_cut:
            connections.cut()
            raise HaltedError("the generation was halted while its groups were formed")
        return group


def in_rounds(holders: Sequence[int | None]) -> list[tuple[int, int]]:
    """Return the pairs of owner and holder in an order in which few wait for others.

    A pair is made when both are there. In a round no rank is in two pairs, so a round takes as long
    as one pair; the order is the same on all ranks.
    """
    pairs = {
        (min(owner, holder), max(owner, holder))
        for owner, holder in enumerate(holders)
        if holder is not None
    }
    rounds_of: dict[int, set[int]] = {}
    round_of: dict[tuple[int, int], int] = {}
    for pair in sorted(pairs):
        taken = rounds_of.setdefault(pair[0], set()) | rounds_of.setdefault(pair[1], set())
        number = next(each for each in itertools.count() if each not in taken)
        round_of[pair] = number
        for rank in pair:
            rounds_of[rank].add(number)
    return sorted(pairs, key=lambda pair: (round_of[pair], pair))


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Give the group that is made in the block a name that both its ranks know.

    torch counts the groups that a rank is in, which differs from rank to rank, and ranks meet under
    the name.
    """
    module: Any = distributed.distributed_c10d
    original = module._process_group_name  # noqa: SLF001 - no public way
    module._process_group_name = lambda *_, **__: name  # noqa: SLF001
    try:
        yield
    finally:
        module._process_group_name = original  # noqa: SLF001


def _is_spanning(options: dict[str, object]) -> bool:
    description = str(options.get("group_desc") or "")
    return any(part in description for part in _SPANNING)


def _sharing(create_group: Callable[..., ProcessGroup]) -> Callable[..., ProcessGroup]:
    """Return ``create_group`` that makes one group per kind and set of ranks, the world included."""
    world = tuple(range(distributed.get_world_size()))
    group_by_key = {(world, True): distributed.group.WORLD}

    def shared(ranks: Sequence[int], **options: object) -> ProcessGroup:
        key = (tuple(sorted(ranks)), _is_spanning(options))
        if key not in group_by_key:
            group_by_key[key] = create_group(ranks, **options)
        group = group_by_key[key]
        assert group is not None
        return group

    return shared


def data_parallel_group() -> ProcessGroup:
    """Return Megatron's present data-parallel group."""
    group: ProcessGroup = parallel_state.get_data_parallel_group()
    return group


class NotAloneError(Exception):
    """A program wanted to communicate where it must build alone."""


_NEEDS_PEERS: Final = (
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "new_group",
    "reduce_scatter_tensor",
)


@contextlib.contextmanager
def building_alone() -> Iterator[None]:
    """Build a model and an optimizer inside the block without waiting for any other rank.

    A replacement builds while its peers keep what they have, so nobody would answer. Megatron asks
    all ranks for the names of their parameter groups, to number them alike in checkpoints; ours name
    parameters. Inside the block a rank hears itself only, and any other collective raises at once,
    also at the first start, where it would work.

    Raises:
        NotAloneError: From a collective inside the block.
    """
    module: Any = distributed
    originals = {name: getattr(module, name) for name in ("all_gather_object", *_NEEDS_PEERS)}

    def hear_oneself(answers: list[object], own: object, *_: object, **__: object) -> None:
        answers[:] = [own] * len(answers)

    module.all_gather_object = hear_oneself
    for name in _NEEDS_PEERS:
        setattr(module, name, _refusing(name))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(module, name, original)


def _refusing(name: str) -> Callable[..., None]:
    def refuse(*_: object, **__: object) -> None:
        raise NotAloneError(f"torch.distributed.{name} was called")

    return refuse
