"""The vote and the step of one rank: what is refused, and by what gradients are scaled."""

import contextlib
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace

import pytest

from nodeagent.protocol.regroup import VoteResult
from nodeagent.rank.iteration.ledger import Ledger
from profiles.layout import Layout
from tests.fakes.wrapped import Lazy, chunk_of

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("training_program"),
    pytest.mark.filterwarnings("ignore"),  # Megatron's own
]


@contextlib.contextmanager
def only_rank(layout: Layout) -> Iterator[Lazy]:
    """Make rank 0 of a layout whose collectives hear nobody else."""
    torch = import_module("torch")
    place = import_module("nodeagent.rank.groups.rank_place").Place(0, layout, torch.device("cpu"))
    with import_module("nodeagent.rank.groups.placeholder_groups").placeholder_groups(place):
        yield place


def iterations_of(place: Lazy, ledger: Ledger, max_grad_norm: float = 0.0) -> Lazy:
    """Return the iterations of a loop whose chunk and optimizer keep what they are told."""
    module = import_module("nodeagent.rank.iteration.iteration_phases")
    torch = import_module("torch")
    chunk = chunk_of(torch, 1.0)
    chunk.scales = []
    chunk.scale_gradients = chunk.scales.append
    for parameter in chunk.module.parameters():
        parameter.main_grad = torch.full((2,), 1.0)
    loop = SimpleNamespace(
        chunks=[chunk],
        max_grad_norm=max_grad_norm,
        before_step=lambda _: None,
        optimizer=SimpleNamespace(
            prepare_grads=lambda: False, step_with_ready_grads=lambda: True, zero_grad=lambda: None
        ),
    )
    nothing = module.IterationHooks(lambda _: None, lambda loss, *_: loss, lambda: None)
    iterations = module.Iterations(loop, ledger, nothing)
    iterations.enter(
        place, import_module("nodeagent.rank.groups.parallel_groups").data_parallel_group()
    )
    return iterations


@pytest.mark.parametrize(
    ("norm", "most", "scale"),
    [(4.0, 1.0, 1 / 4), (0.5, 1.0, 1.0), (4.0, 0.0, 1.0), (1.0, 1.0, 1.0)],
    ids=["too long", "short", "not bounded", "just so"],
)
def test_gradients_are_divided_by_tokens_and_shortened_to_the_bound(
    norm: float, most: float, scale: float
) -> None:
    ledger = Ledger(committed=4, has_state=True)
    with only_rank(Layout()) as place:
        iterations = iterations_of(place, ledger, most)
        iterations.step(
            VoteResult(iteration=5, loss=2.0, grad_norm=norm, num_tokens=10, is_park_wanted=False)
        )
    [scaled] = iterations._loop.chunks[0].scales
    assert scaled == pytest.approx(scale / 10)
    assert ledger.committed == 5


def test_what_is_copied_to_host_memory_is_complete_before_anything_changes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    module = import_module("nodeagent.rank.iteration.iteration_phases")
    monkeypatch.setattr(module, "wait_on_device", lambda: done.append("waits"))
    with only_rank(Layout()) as place:
        iterations = iterations_of(place, Ledger(committed=4, has_state=True))
        assert done == ["waits"]  # another generation's state may come from peers
        loop = iterations._loop
        loop.before_step = lambda _: done.append("the program's hook")
        loop.optimizer.step_with_ready_grads = lambda: done.append("the update")
        iterations.step(
            VoteResult(iteration=5, loss=2.0, grad_norm=1.0, num_tokens=10, is_park_wanted=False)
        )
    assert done[1:] == ["waits", "the program's hook", "the update"]


def voted(layout: Layout, num_tokens: int) -> Lazy:
    """Return what the vote on iteration 5 gives, after one micro-batch."""
    ledger = Ledger(committed=4, has_state=True)
    ledger.begin()
    ledger.count(0, 3.0, num_tokens)
    with only_rank(layout) as place:
        iterations = iterations_of(place, ledger)
        iterations.reduction.finish()
        return iterations.vote()[0]


def test_ranks_that_do_not_run_the_same_iteration_commit_nothing() -> None:
    assert voted(Layout(), num_tokens=10).loss == pytest.approx(0.3)
    # The sum over all ranks is that of one, who takes itself for one of two.
    with pytest.raises(
        import_module("nodeagent.rank.iteration.iteration_phases").VoteError, match="iteration 5"
    ):
        voted(Layout(dp=2), num_tokens=10)


def test_a_global_batch_without_a_token_is_named() -> None:
    with pytest.raises(ValueError, match="no token"):
        voted(Layout(), num_tokens=0)
