"""This rank's process groups in one generation.

Megatron makes its groups over our rendezvous store. Megatron asks for the same set of ranks under
many names: a dense model's data-parallel group has four. With gloo each group costs connections and
store calls, so equal sets share one group. NCCL connects a group at its first use, so unused groups
cost nothing and Megatron's groups are used as they are.

There are two kinds of groups. *Inner* groups lie inside a model replica (tensor parallel, pipeline
parallel, embeddings). *Spanning* groups connect replicas (data parallel, the world). A fault in
another replica halts the spanning groups only, so that a complete replica can finish its
micro-batch.

A generation ends with ``leave``; the next one forms its own groups in the same process.

A group is made in a thread, so that a halt can abandon it. gloo connects all members while a group
is made. If a member publishes its address and then dies, the others wait for its connection until
the group's timeout. They have no socket yet that could be shut down. At a halt the thread is
abandoned, with anything that it still makes.
"""

import contextlib
import inspect
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, Literal

import torch
from megatron.core import parallel_state
from torch import distributed
from torch.distributed import ProcessGroup, distributed_c10d

from nodeagent.rank.agent_link.rendezvous_store import DEFAULT_TIMEOUT_S, AgentStore
from nodeagent.rank.groups.device_shim import use_device
from nodeagent.rank.groups.halting import Connections, HaltedError, in_thread
from nodeagent.rank.groups.nccl import wait_for_aborts
from nodeagent.rank.groups.rank_place import Place

_NUM_FORMED: Final = "unicron/num_formed"
_ALL_FORMED: Final = "unicron/all_formed"

COLLECTIVE_TIMEOUT_S: Final = DEFAULT_TIMEOUT_S
"""Last limit on one collective. Faults are found much earlier by other means."""

ORDER: Final = "tp-cp-ep-dp-pp"
"""Megatron's name for the order in which ``profiles.layout`` numbers ranks."""

_SPANNING: Final = ("DATA_PARALLEL", "DIST_OPT", "INTER_", "INTRA_")
"""Parts of Megatron's descriptions of groups that connect replicas."""

_CREATE_GROUP: Final[Callable[..., ProcessGroup]] = parallel_state.create_group


_KEPT: Final[list[ProcessGroup]] = []
"""Groups with an operation that never ends. Freeing them would block."""

_LOOK_UP_S: Final = 0.05
_NUM_LOOKS_AFTER_HALT: Final = 4


class ParallelGroups:
    """The process groups of one generation. Any thread may call ``halt`` at any time."""

    def __init__(self, store: AgentStore, place: Place, backend: Literal["gloo", "nccl"]) -> None:
        self._store = store
        self._place = place
        self._backend: Literal["gloo", "nccl"] = backend
        self._lock = threading.Lock()
        self._is_halted = False
        self.is_inner_halted = False
        """Whether collectives inside this rank's replica were halted."""
        self._inner: list[Connections] = []
        self._spanning: list[Connections] = []
        self._made: list[ProcessGroup] = []

    def form(self) -> None:
        """Meet the other ranks of the generation and make all groups that Megatron needs.

        Blocks until every rank has joined, for the store's timeout at most.

        Raises:
            HaltedError: ``halt`` was called meanwhile.
            RuntimeError: A peer did not join, or was lost.
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
        if self._backend == "nccl":
            self._connect()

    def form_for_copies(self, holders: Sequence[int | None]) -> dict[int, ProcessGroup]:
        """Make the groups for in-memory checkpoints. All ranks must call it.

        Each group has two ranks: one group of all would connect every rank with every other.

        Args:
            holders: For each global rank, the rank that holds the copies of its state.

        Returns:
            For each rank that this one sends copies to or holds copies of, the group with it.

        Raises:
            HaltedError: ``halt`` was called meanwhile.
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

    def halt(self, *, with_inner: bool) -> None:
        """Make collectives of this rank fail: those that connect replicas, or all of them.

        A thread that is blocked in such a collective is woken, also while groups are being formed.
        """
        with self._lock:
            self._is_halted = True
            self.is_inner_halted |= with_inner
            doomed = [*self._spanning, *(self._inner if with_inner else ())]
        self._store.close()
        for connections in doomed:
            connections.halt()

    def close_connections(self) -> None:
        """Make all collectives fail; with gloo also in peers that got no halt.

        Call it when the training thread is in no collective. A peer's send then fails, and gloo may
        never wake that peer if only a part was sent (``halting``).
        """
        self.halt(with_inner=True)
        for connections in [*self._spanning, *self._inner]:
            connections.close()

    def wake_peers(self) -> None:
        """Wake the peers that wait for this rank, which has parked.

        With NCCL this does nothing: the controller halts the peers. An abort here would not wake
        them, and they could take its remains for data.
        """
        if self._backend == "gloo":
            self.close_connections()

    def leave(self, *, has_stuck_work: bool = False) -> None:
        """Destroy all groups, because the generation is over. Call ``close_connections`` before.

        Destroying a group waits for its operations. If one of them never ends, the groups are kept
        unused for the rest of the process's life.
        """
        wait_for_aborts()
        if has_stuck_work:
            _KEPT.extend(self._made)
        parallel_state.destroy_model_parallel()
        if distributed.is_initialized():
            distributed.destroy_process_group()
        # Ranks find each other under the number of the group. If not even the world could be made,
        # torch would not reset the count, and this process would never meet a new process again.
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
        """Return the result of ``make``; record its connections so that ``halt`` can end them."""
        connections = Connections()
        with self._lock:
            kind.append(connections)
        with connections.recording(), _abandonable(lambda: self._is_halted):
            made = make()
        # A rank that is no member gets a number from torch instead of a group.
        group = made if isinstance(made, ProcessGroup) else None
        if group is not None:
            self._made.append(group)
            if self._backend == "nccl":
                connections.group = group
        # A halt during the creation of the group could not end its connections.
        if self._is_halted:
            connections.halt()
            raise HaltedError("the generation was halted while its groups were formed")
        return made

    def _connect(self) -> None:
        """Make NCCL connect the groups of every iteration now. gloo has connected them already.

        NCCL would connect them at their first use. There a rank can't be woken while it waits for a
        peer that still builds its model, or that is lost.
        """
        num_ranks = self._place.layout.num_workers
        if self._store.add(_NUM_FORMED, 1) == num_ranks:
            self._store.set(_ALL_FORMED, b"")
        self._store.get(_ALL_FORMED)
        _run_in_thread(
            lambda: _use_each(_groups_of_iterations(), self._place), lambda: self._is_halted
        )


def _use_each(groups: Sequence[ProcessGroup], place: Place) -> None:
    use_device(place.device)
    # Without the wrapper of ``nccl``: an abandoned thread must not hold the lock for launches.
    all_reduce = inspect.unwrap(distributed.all_reduce)
    for group in groups:
        all_reduce(torch.zeros(1, device=place.device), group=group)
    torch.cuda.current_stream().synchronize()


def _groups_of_iterations() -> list[ProcessGroup]:
    """Return the groups of an iteration with several ranks, in one order on all ranks."""
    state: Any = parallel_state
    groups = [
        distributed.group.WORLD,
        state.get_tensor_model_parallel_group(),
        state.get_pipeline_model_parallel_group(),
        state.get_embedding_group(check_initialized=False),
        state.get_data_parallel_group(),
    ]
    return [each for each in groups if isinstance(each, ProcessGroup) and each.size() > 1]


def in_rounds(holders: Sequence[int | None]) -> list[tuple[int, int]]:
    """Return the pairs of owner and holder in rounds, so that few ranks wait for others.

    Making the group of a pair needs both ranks. In a round no rank is in two pairs, so a round
    takes as long as one pair. The order is the same on all ranks.
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
    """Name the group that is made in the block, so that both of its ranks use the same name.

    Ranks find each other under the name. torch's default name counts the groups of the rank, and
    that number differs from rank to rank.
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
    """Wrap ``create_group`` to make one group per kind and set of ranks, the world included."""
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


@contextlib.contextmanager
def _abandonable(is_halted: Callable[[], bool]) -> Iterator[None]:
    """Abandon the next gloo group of the block if ``is_halted`` while it is being made.

    torch calls the constructor by a name of its module. That name is replaced for one call.

    Raises:
        HaltedError: The group was abandoned. It is raised where the group is made.
    """
    module: Any = distributed_c10d
    make = module.ProcessGroupGloo

    def make_in_thread(*args: object, **options: object) -> object:
        module.ProcessGroupGloo = make
        return _run_in_thread(lambda: make(*args, **options), is_halted)

    module.ProcessGroupGloo = make_in_thread
    try:
        yield
    finally:
        module.ProcessGroupGloo = make


def _run_in_thread(make: Callable[[], object], is_halted: Callable[[], bool]) -> object:
    """Run ``make`` in a thread and return its result, or abandon it soon after ``is_halted``.

    Raises:
        HaltedError: The thread was abandoned.
        Exception: ``make`` raised it.
    """
    made = in_thread(make)
    ended = threading.Event()
    made.add_done_callback(lambda _: ended.set())
    num_looks = 0
    while not ended.wait(_LOOK_UP_S):
        num_looks += is_halted()
        if num_looks >= _NUM_LOOKS_AFTER_HALT:
            raise HaltedError("a group was given up: its members do not connect")
    return made.result()
