"""Random numbers follow from the micro-batch, on the CPU's stand-in for Megatron's generators."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("training_program"),
    pytest.mark.filterwarnings("ignore"),  # Megatron's own
]

Lazy = Any
"""Something of torch or of ours, imported when a test runs: collecting tests stays fast."""

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def torch() -> Iterator[Lazy]:
    torch = import_module("torch")
    before = torch.get_rng_state()
    yield torch
    torch.set_rng_state(before)


@pytest.fixture
def generators(torch: Lazy) -> Lazy:
    return import_module("nodeagent.rank.groups.random_state").CpuGenerators()


def draw(torch: Lazy) -> list[float]:
    numbers: list[float] = torch.rand(4).tolist()
    return numbers


def test_fork_draws_from_its_own_state_and_leaves_the_default_alone(
    torch: Lazy, generators: Lazy
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


def test_nested_forks_go_on_where_the_outer_one_is(torch: Lazy, generators: Lazy) -> None:
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


def test_an_exception_in_a_fork_puts_the_default_back(torch: Lazy, generators: Lazy) -> None:
    generators.add("model-parallel-rng", 7)
    before = torch.get_rng_state()
    with pytest.raises(AssertionError), generators.fork():
        assert draw(torch) == []
    assert torch.equal(torch.get_rng_state(), before)


def test_states_that_were_handed_out_do_not_change(torch: Lazy, generators: Lazy) -> None:
    generators.add("model-parallel-rng", 7)
    kept = generators.get_states()
    with generators.fork():
        first = draw(torch)
    generators.set_states(kept)
    with generators.fork():
        assert draw(torch) == first


def test_fork_without_a_state_is_refused(generators: Lazy) -> None:
    assert not generators.is_initialized()
    with pytest.raises(KeyError), generators.fork():
        pass


DRAW_EACH = """
import json, os, sys, torch
from megatron.core.tensor_parallel import get_cuda_rng_tracker
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.groups.random_state import reseed
from nodeagent.rank.groups.device_shim import prepare_device
from profiles.layout import Layout

device = prepare_device("gloo", 0, seed=1)
drawn = []
for seed, iteration, micro_batch, global_rank in json.loads(sys.argv[1]):
    reseed(seed, iteration, micro_batch, Place(global_rank, Layout(tp=2, pp=2, dp=2), device))
    with get_cuda_rng_tracker().fork():
        split = torch.rand(4).tolist()
    drawn.append([torch.rand(4).tolist(), split])
os.write(1, json.dumps(drawn).encode() + b"\\n")
"""
"""Draws from the default generator and from Megatron's tracker after reseeding."""

# seed, iteration, micro-batch, global rank in tp 2 x pp 2 x dp 2
BASE = (1, 5, 3, 0)
AGAIN = (1, 5, 3, 0)
OTHER_SEED, OTHER_ITERATION, OTHER_MICRO_BATCH = (2, 5, 3, 0), (1, 6, 3, 0), (1, 5, 4, 0)
OTHER_TENSOR_RANK, OTHER_REPLICA, OTHER_STAGE = (1, 5, 3, 1), (1, 5, 3, 2), (1, 5, 3, 4)
CASES = (
    BASE,
    OTHER_SEED,
    OTHER_ITERATION,
    OTHER_MICRO_BATCH,
    OTHER_TENSOR_RANK,
    OTHER_REPLICA,
    OTHER_STAGE,
)


def draw_each() -> dict[tuple[int, ...], tuple[list[float], list[float]]]:
    """Return what is drawn for each case, from the default generator and from the tracker."""
    printed = subprocess.run(
        [sys.executable, "-m", "tests.fakes.warm", "-c", DRAW_EACH, json.dumps([*CASES, AGAIN])],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    *drawn, again = json.loads(printed)
    assert again == drawn[0]
    return {case: (one[0], one[1]) for case, one in zip(CASES, drawn, strict=True)}


def test_numbers_follow_from_the_micro_batch_and_the_part_of_the_model() -> None:
    drawn = draw_each()
    default, tracked = drawn[BASE]
    for other in (OTHER_SEED, OTHER_ITERATION, OTHER_MICRO_BATCH, OTHER_STAGE):
        assert drawn[other][0] != default
        assert drawn[other][1] != tracked
    # What all tensor-parallel ranks compute needs equal numbers, what they share different ones.
    assert drawn[OTHER_TENSOR_RANK][0] == default
    assert drawn[OTHER_TENSOR_RANK][1] != tracked
    assert drawn[OTHER_REPLICA] == drawn[BASE]
    assert default != tracked
    assert draw_each() == drawn, "another process, with other hashes of strings, draws the same"
