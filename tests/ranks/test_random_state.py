"""Random numbers follow from the micro-batch, on the CPU's stand-in for Megatron's generators."""

from typing import Any

import pytest

from profiles.layout import Layout
from tests.fakes.megatron_import import import_quietly

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(60)]

TP2_PP2_DP2 = Layout(tp=2, pp=2, dp=2)


@pytest.fixture
def torch() -> Any:
    torch = import_quietly("torch")
    before = torch.get_rng_state()
    yield torch
    torch.set_rng_state(before)


@pytest.fixture
def generators(torch: Any) -> Any:
    return import_quietly("nodeagent.rank.random_state").CpuGenerators()


def draw(torch: Any) -> list[float]:
    numbers: list[float] = torch.rand(4).tolist()
    return numbers


def test_fork_draws_from_its_own_state_and_leaves_the_default_alone(
    torch: Any, generators: Any
) -> None:
    generators.add("model-parallel-rng", 7)
    torch.manual_seed(1)
    expected = [draw(torch), draw(torch)]
    torch.manual_seed(7)
    inside = [draw(torch), draw(torch)]

    torch.manual_seed(1)
    found = [draw(torch)]
    with generators.fork():
        forked = [draw(torch)]
    found.append(draw(torch))
    with generators.fork():
        forked.append(draw(torch))
    assert found == expected
    assert forked == inside


def test_nested_forks_go_on_where_the_outer_one_is(torch: Any, generators: Any) -> None:
    generators.add("model-parallel-rng", 7)
    generators.add("other", 8)
    torch.manual_seed(7)
    expected = [draw(torch) for _ in range(4)]
    with generators.fork():
        found = [draw(torch)]
        with generators.fork():
            found.append(draw(torch))
        with generators.fork("other"):
            assert draw(torch) not in expected
        found.append(draw(torch))
    with generators.fork():
        found.append(draw(torch))
    assert found == expected


def test_an_exception_in_a_fork_puts_the_default_back(torch: Any, generators: Any) -> None:
    generators.add("model-parallel-rng", 7)
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), generators.fork():
        draw(torch)
        raise ZeroDivisionError
    assert torch.equal(torch.get_rng_state(), before)


def test_states_that_were_handed_out_do_not_change(torch: Any, generators: Any) -> None:
    generators.add("model-parallel-rng", 7)
    kept = generators.get_states()
    with generators.fork():
        first = draw(torch)
    generators.set_states(kept)
    with generators.fork():
        assert draw(torch) == first


def test_fork_without_a_state_is_refused(generators: Any) -> None:
    assert not generators.is_initialized()
    with pytest.raises(KeyError), generators.fork():
        pass


@pytest.fixture
def numbers_of() -> Any:
    """Return a function that reseeds in a process of its own and returns what is drawn there."""
    return import_quietly("tests.fakes.reseeding").numbers_of


def test_numbers_follow_from_seed_iteration_micro_batch_stage_and_tensor_rank(
    numbers_of: Any,
) -> None:
    base = (1, 5, 3, 0)  # seed, iteration, micro-batch, global rank
    default, tracked = numbers_of(base)
    assert (default, tracked) == numbers_of(base)
    for other in ((2, 5, 3, 0), (1, 6, 3, 0), (1, 5, 4, 0)):
        other_default, other_tracked = numbers_of(other)
        assert other_default != default
        assert other_tracked != tracked
