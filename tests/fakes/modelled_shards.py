"""A modelled rank with a sharded optimizer, without torch.

Its state is one shard of that of its cell. The model that it computes with is gathered from all of
them after each update, and again at the start of a generation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nodeagent.protocol.regroup import ShardHolder
from tests.fakes.modelled_memory import ShardKey
from tests.fakes.modelled_ranks import InterruptedGenerationError, ModelledProcess, Run
from tests.fakes.modelled_state import Gradient, State, pieces_of, whole_update

_NUM_GATHERS = 2


@dataclass(eq=False)
class ShardedProcess(ModelledProcess):
    """A rank's process whose state is a shard.

    Attributes:
        model: What it computes with; after a broken gather a mixture of old and new.
    """

    model: State = field(default_factory=dict)
    _partition: tuple[int, int] = (0, 0)

    @property
    def pieces(self) -> Sequence[str]:
        """What its shard consists of."""
        return pieces_of(self.job.buckets, *self.shard)

    @property
    def _shard(self) -> tuple[int, int] | None:
        return self._partition if self._partition[1] else None

    @property
    def _place(self) -> tuple[int, int]:
        """The shard that it is to have in this generation."""
        return self._dp_rank, self.groups.layout.dp

    def _build(self) -> None:
        self.state, self._partition = {}, (0, 0)
        self.model = dict.fromkeys(pieces_of(self.job.buckets, 0, 1), ())

    def _load_whole(self, whole: State) -> None:
        self._partition = self._place
        self.model = whole or dict.fromkeys(pieces_of(self.job.buckets, 0, 1), ())
        self.state = {piece: self.model[piece] for piece in self.pieces}

    def _update(self, bucket: str, gradient: Gradient, iteration: int) -> None:
        updated = {
            piece: self._updated(piece, gradient, iteration)
            for piece in self.pieces
            if piece.startswith(f"{bucket}:")
        }
        self.state = {**self.state, **updated}

    def _check_model(self) -> None:
        committed, num = self.ledger.committed, self.job.num_micro_batches
        updates = tuple(whole_update(iteration, num) for iteration in range(1, committed + 1))
        for piece, history in self.model.items():
            assert history == updates, f"computes with a stale {piece}"

    def _share(self) -> Run:
        """``ShardedOptimizer.gather``, in as many steps as it has."""
        for number in range(_NUM_GATHERS):
            part = dict(list(self.state.items())[number::_NUM_GATHERS])
            gathering = self._begin("data parallel", f"parameters {number}", part)
            yield gathering
            for each in gathering.parts:
                self.model = {**self.model, **each}

    # --- nodeagent.rank.training.resume and nodeagent.rank.state.shard_distribution
    # ------------------------------------------

    def _bring_state(self, level: int) -> Run:
        ledger, before = self.ledger, self._partition
        if before == self._place:
            yield from self._spread_shards(level, self.state)
            yield from self._share()
            return
        own = self.state if ledger.has_state else None
        ledger.has_state = False
        self.state, self._partition = {}, self._place
        try:
            yield from self._spread_shards(level, own)
            yield from self._share()
        except InterruptedGenerationError:
            if own is not None:
                self.state, self._partition, ledger.has_state = own, before, True
            raise

    def _spread_shards(self, level: int, own: State | None) -> Run:
        num_shards = self.resume.num_shards
        for shard in self.resume.shards:
            data = None
            targets = self._targets(shard)
            if shard.holder == self.rank and targets:
                key = ShardKey(shard.tp_rank, shard.pp_rank, shard.dp_rank, num_shards)
                data = self.memory.data_of(key, level) if shard.is_copy else own
                assert shard.is_copy or self.cell == key[:2], f"has nothing of {key}"
                assert data is not None, f"does not have {key} of iteration {level}"
            for target in targets:
                if self.rank in (shard.holder, target) and shard.holder != target:
                    pair = ("pair", shard.holder, target)
                    sending = self.groups.begin(pair, self.rank, f"shard {shard.dp_rank}", data)
                    yield sending
                    data = sending.given[shard.holder]
            if self.rank in targets:
                assert data is not None
                assert data.keys() == set(pieces_of(self.job.buckets, shard.dp_rank, num_shards)), (
                    f"is given {data.keys()} for shard {shard.dp_rank} of {num_shards}"
                )
                mine = {piece: data[piece] for piece in self.pieces if piece in data}
                self.state = {**self.state, **mine}

    def _targets(self, shard: ShardHolder) -> list[int]:
        peers = self._ranks_at((shard.tp_rank, shard.pp_rank))
        if self.resume.num_shards != self.groups.layout.dp:
            return peers
        owner = peers[shard.dp_rank]
        return [] if owner == shard.holder and not shard.is_copy else [owner]
