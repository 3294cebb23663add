"""Trains the built-in model on real gloo ranks: cases in, findings out.

``ModelRanks`` hands cases to the program ``model_ranks``, which forks the ranks of each.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.layout import Layout
from profiles.model import ModelShape

TINY = ModelShape(num_layers=2, hidden_size=32, num_attention_heads=4, seq_length=32)
"""The smallest model of the tests."""

_REPOSITORY = Path(__file__).parents[2]


class Case(BaseModel):
    """One run.

    Attributes:
        training: What is trained; all of its ``num_iterations``.
        layout: On which ranks.
        out_dir: A directory for the ranks' files.
        config: Settings of Megatron that differ from the built-in ones.
        bucket_size: Elements of a gradient bucket.
        is_finalised_by_megatron: Whether Megatron's own ``finalize_model_grads`` is used.
        is_reversed: Whether each replica computes its micro-batches in falling order.
        builds_alone: Rank that builds its model before any other begins to.
    """

    training: TrainingSpec
    layout: Layout
    out_dir: Path
    config: dict[str, Any] = {}
    bucket_size: int | None = None
    is_finalised_by_megatron: bool = False
    is_reversed: bool = False
    builds_alone: int | None = None


class Outcome(BaseModel):
    """What the ranks found.

    Attributes:
        losses: Mean loss per token, of each iteration.
        grad_norms: Norm of the mean gradient, of each iteration.
        buckets: Names of the parameters of each bucket, by rank.
        num_draws_in_backward: How often a backward pass left a generator in another state.
        is_repeatable: Whether finalising again from the reduced gradients gave the same bits.
        errors: Tracebacks of the ranks that failed.
    """

    losses: list[float] = []
    grad_norms: list[float] = []
    buckets: list[list[list[str]]] = []
    num_draws_in_backward: int = 0
    is_repeatable: bool = True
    errors: list[str] = []


class Result:
    """Outcome of a case, and the gradients of its first iteration."""

    def __init__(self, case: Case, outcome: Outcome) -> None:
        self.outcome = outcome
        self._out_dir = case.out_dir

    def gradients(self) -> dict[str, NDArray[np.float32]]:
        """Return the gradients of the whole model, as the first replica holds them, by name.

        Fails if tensor-parallel ranks disagree about a parameter that is not split.
        """
        parts: dict[str, list[NDArray[np.float32]]] = {}
        for path in sorted(self._out_dir.glob("0.*.npz")):  # by stage, then tensor-parallel rank
            with np.load(path) as arrays:
                for key in arrays.files:
                    parts.setdefault(key, []).append(arrays[key])
        whole: dict[str, NDArray[np.float32]] = {}
        for key, of_ranks in parts.items():
            name, split_dimension = key.split("/")
            if split_dimension == "-1":
                assert all(np.array_equal(of_ranks[0], one) for one in of_ranks), name
                whole[name] = of_ranks[0]
            else:
                whole[name] = np.concatenate(of_ranks, axis=int(split_dimension))
        return whole


class ModelRanks:
    """The running program."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, case: Case) -> Result:
        """Run ``case``; fails the test if a rank failed."""
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None
        assert answers is not None
        case.out_dir.mkdir()
        questions.write(case.model_dump_json() + "\n")
        questions.flush()
        outcome = Outcome.model_validate_json(answers.readline())
        assert not outcome.errors, outcome.errors[0]
        return Result(case, outcome)


@contextlib.contextmanager
def model_ranks() -> Iterator[ModelRanks]:
    """Run the program for as long as the context lasts."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.fakes.warm", "tests.fakes.model_ranks"],
        cwd=_REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield ModelRanks(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)
