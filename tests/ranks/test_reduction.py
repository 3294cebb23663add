"""Buckets that were reduced before all other replicas were lost."""

from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace

import pytest

from nodeagent.protocol.regroup import Resume
from nodeagent.rank.iteration.ledger import Ledger
from profiles.layout import Layout
from tests.fakes.wrapped import Lazy, chunk_of

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("training_program"),
    pytest.mark.filterwarnings("ignore"),  # Megatron's own
]


@pytest.fixture
def torch() -> Lazy:
    return import_module("torch")


@pytest.fixture
def alone(torch: Lazy) -> Iterator[Lazy]:
    """The process group of a replica that has no others."""
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield distributed.group.WORLD
    distributed.destroy_process_group()


def test_a_replica_left_alone_takes_what_was_reduced_with_the_others(
    torch: Lazy, alone: Lazy
) -> None:
    ledger = Ledger()
    ledger.begin()
    ledger.count(0, 3.0, 10)
    chunk = chunk_of(torch, 1.0, 2.0)
    buckets = [each.grad_data for each in chunk.bucket_groups[0].buckets]
    reduction = import_module("nodeagent.rank.iteration.reduction").Reduction([chunk], ledger)
    reduction.enter(alone)
    first, losses = reduction._buckets[0], reduction._losses
    first.staging.fill_(9.0)
    losses.staging.copy_(torch.tensor([7.0, 20.0]))

    reduction.share(first.name, 0)
    reduction.finish()
    reduction.restore()
    assert [each.tolist() for each in buckets] == [[9.0, 9.0], [2.0, 2.0]]
    assert reduction.losses() == (3.0, 10.0)
    assert ledger.is_torn

    reduction.share(losses.name, 0)
    assert reduction.losses() == (7.0, 20.0)


def test_a_reduced_bucket_that_nobody_was_told_of_is_not_reduced_again(
    torch: Lazy, alone: Lazy
) -> None:
    resume = import_module("nodeagent.rank.training.resume")
    ledger = Ledger(committed=3, has_state=True)
    ledger.begin()
    ledger.reduced.add("unknown")
    reduction = import_module("nodeagent.rank.iteration.reduction").Reduction(
        [chunk_of(torch, 1.0)], ledger
    )
    iterations = SimpleNamespace(reduction=reduction, forget_sums=lambda: None)
    place = import_module("nodeagent.rank.groups.rank_place").Place(
        0, Layout(), torch.device("cpu")
    )
    with pytest.raises(resume.ResumeError, match="1 reduced bucket"):
        resume._gather_partial_results(Resume(committed=3), place, iterations, ledger)


class Work:
    """A reduction as torch shows it, which has failed or never ends."""

    def __init__(self, torch: Lazy, *, has_failed: bool) -> None:
        self.num_waits = 0
        self._future = torch.futures.Future()
        if has_failed:
            self._future.set_result([])

    def is_completed(self) -> bool:
        return bool(self._future.done())

    def get_future(self) -> Lazy:
        self.num_waits += 1
        return self._future

    def wait(self) -> None:
        self.num_waits += 1
        raise RuntimeError("Connection closed by peer")


def test_leaving_a_group_tells_whether_an_operation_never_ends(torch: Lazy, alone: Lazy) -> None:
    reduction = import_module("nodeagent.rank.iteration.reduction").Reduction(
        [chunk_of(torch, 1.0, 2.0)], Ledger()
    )
    reduction.enter(alone)
    first, second = reduction._buckets
    first.work, second.work = Work(torch, has_failed=True), None
    assert not reduction.abandon()
    first.work, second.work = Work(torch, has_failed=True), Work(torch, has_failed=False)
    assert reduction.abandon()
    assert not reduction.abandon(), "what never ends was left once"


def test_after_a_wait_for_what_never_ends_nobody_waits_for_another(
    torch: Lazy, alone: Lazy
) -> None:
    ledger = Ledger()
    reduction = import_module("nodeagent.rank.iteration.reduction").Reduction(
        [chunk_of(torch, 1.0, 2.0, 3.0)], ledger, lambda: True
    )
    reduction.enter(alone)
    works = [
        Work(torch, has_failed=False),
        Work(torch, has_failed=False),
        Work(torch, has_failed=True),
    ]
    for bucket, work in zip(reduction._buckets, works, strict=True):
        bucket.work = work
    with pytest.raises(import_module("nodeagent.rank.groups.halting").StuckWorkError):
        reduction.finish()
    assert [bool(work.num_waits) for work in works] == [True, False, True]
    assert not ledger.reduced & {bucket.name for bucket in reduction._buckets}


def test_a_bucket_that_did_not_arrive_is_not_held(
    torch: Lazy, alone: Lazy, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger()
    reduction = import_module("nodeagent.rank.iteration.reduction").Reduction(
        [chunk_of(torch, 1.0)], ledger
    )
    reduction.enter(alone)
    lost = Work(torch, has_failed=True)
    monkeypatch.setattr(torch.distributed, "broadcast", lambda *_, **__: lost)
    [bucket] = reduction._buckets
    with pytest.raises(RuntimeError, match="closed by peer"):
        reduction.share(bucket.name, 0)
    assert not ledger.reduced


@pytest.mark.parametrize("is_needed", [True, False])
def test_whoever_has_the_state_keeps_it_whatever_arrives(
    torch: Lazy, alone: Lazy, monkeypatch: pytest.MonkeyPatch, *, is_needed: bool
) -> None:
    def arrive_damaged(tensor: Lazy, **_: object) -> None:
        tensor.fill_(9.0)

    monkeypatch.setattr(torch.distributed, "broadcast", arrive_damaged)
    own, numbers = torch.zeros(3), [1.0]
    state = SimpleNamespace(
        tensors=lambda: [own], numbers=lambda: numbers, set_numbers=numbers.extend
    )
    broadcast_state = import_module("nodeagent.rank.state.rank_state").broadcast_state
    broadcast_state(state, alone, 0, lambda _: None, is_needed=is_needed)
    assert own.tolist() == [9.0 * is_needed] * 3
    assert numbers == ([1.0, 9.0] if is_needed else [1.0])
