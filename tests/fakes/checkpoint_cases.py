"""Runs checkpoints on real gloo ranks: cases in, findings out.

A ``Case`` is one generation of a task: a layout, and steps that all its ranks take one after the
other. ``CheckpointRanks`` hands cases to ``checkpoint_ranks``, which forks the ranks.
"""

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel

from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.layout import Layout

REPOSITORY = Path(__file__).parents[2]
Arrays = dict[str, "np.ndarray[Any, Any]"]


class Step(BaseModel):
    """What every rank does.

    Attributes:
        do: ``train`` runs iterations, ``save`` saves and waits, ``begin`` saves and doesn't wait,
            ``wait`` waits, ``load`` loads, ``dump`` writes parameters and optimizer state to
            ``name``, ``note`` records a loss per iteration trained, ``distrust`` distrusts,
            ``rejoin`` goes on in the next generation with the same object, ``tear`` takes a file
            from the checkpoint ``name``, ``blind`` hides checkpoints from the rank, as a missing
            mount does.
        times: How many iterations.
        name: Of the dump, or the checkpoint.
        ranks: Which ranks take the step; none means all.
    """

    do: Literal[
        "train",
        "save",
        "begin",
        "wait",
        "load",
        "dump",
        "note",
        "distrust",
        "rejoin",
        "tear",
        "blind",
    ]
    times: int = 1
    name: str = ""
    ranks: list[int] = []


class Case(BaseModel):
    """One generation.

    Attributes:
        training: The task.
        layout: Layout of the generation.
        steps: What its ranks do.
        generation: Its number.
        give_up_s: How long rank 0 waits for the parts of the others.
        file_size_limit: Largest file in bytes that rank 1, or a lone rank 0, can write.
        lacks_memory_to: What rank 1, or a lone rank 0, has no memory for, once.
        dies_at: Rank 0 is killed by its own SIGKILL at this file operation after its first dump.
        learning_rate: Of the optimizer that is built.
        is_sharded: Whether a rank saves and loads only its data-parallel share of the optimizer's
            state, as an optimizer that is sharded does.
    """

    training: TrainingSpec
    layout: Layout = Layout()
    steps: list[Step]
    generation: int = 1
    give_up_s: float = 20.0
    file_size_limit: int | None = None
    lacks_memory_to: Literal["copy", "write"] | None = None
    dies_at: int | None = None
    learning_rate: float = 1e-3
    is_sharded: bool = False


class Found(BaseModel):
    """What one rank found.

    Attributes:
        loaded: Iterations that ``load`` returned.
        expected: Expected losses of the iterations after the newest load.
        saved: Iterations that were completed.
        missed: Iterations that were given up, and why.
        blocked_s: For how long training waited, of each completed one.
        num_bytes: Bytes of each completed one.
        waited: What ``wait`` returned.
        learning_rates: Of the optimizer at the end.
        num_file_operations: File operations after the first dump.
        log: What the rank logged.
        error: Traceback of an exception, the last one where steps went on.
    """

    loaded: list[int] = []
    expected: dict[int, float] = {}
    saved: list[int] = []
    missed: list[tuple[int, str]] = []
    blocked_s: list[float] = []
    num_bytes: list[int] = []
    waited: list[bool] = []
    learning_rates: list[float] = []
    num_file_operations: int = 0
    log: str = ""
    error: str = ""


class Outcome(BaseModel):
    """What the ranks of a case found, by global rank; None for one that was killed."""

    ranks: list[Found | None]
    out_dir: str

    @property
    def first(self) -> Found:
        found = self.ranks[0]
        assert found is not None
        return found

    @property
    def all(self) -> list[Found]:
        return [found for found in self.ranks if found is not None]

    def dump(self, name: str) -> Arrays:
        """Return parameters and optimizer state of the whole model, put together from the ranks.

        The ranks describe their arrays themselves, by name and split dimension, without the help
        of Megatron's ``sharded_state_dict``. Copies must be equal, bit for bit.
        """
        pieces: dict[str, dict[int, np.ndarray[Any, Any]]] = {}
        for path in sorted(Path(self.out_dir).glob(f"{name}.*.npz")):
            tp_rank = int(path.suffixes[-2].removeprefix("."))
            with np.load(path) as arrays:
                for key, array in arrays.items():
                    known = pieces.setdefault(key, {}).get(tp_rank, array)
                    # Not a number stands for what a rank doesn't hold.
                    merged = np.where(np.isnan(known), array, known)
                    other = np.where(np.isnan(array), known, array)
                    assert merged.tobytes() == other.tobytes(), f"replicas of {key} differ"
                    pieces[key][tp_rank] = merged
        return {key.rpartition("/")[0]: _whole(key, parts) for key, parts in pieces.items()}


def _whole(key: str, parts: dict[int, "np.ndarray[Any, Any]"]) -> "np.ndarray[Any, Any]":
    dimension = int(key.rpartition("/")[2])
    ordered = [parts[tp_rank] for tp_rank in sorted(parts)]
    if dimension >= 0:
        return np.concatenate(ordered, axis=dimension)
    assert all(one.tobytes() == ordered[0].tobytes() for one in ordered), f"copies of {key} differ"
    return ordered[0]


def is_equal(one: Arrays, other: Arrays) -> bool:
    """Return whether two dumps are equal bit for bit."""
    return one.keys() == other.keys() and all(
        one[key].shape == other[key].shape and one[key].tobytes() == other[key].tobytes()
        for key in one
    )


class CheckpointRanks:
    """The program, started once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._num_cases = 0
        self._log = (directory / "program.log").open("wb")
        self._program = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.warm", "tests.fakes.checkpoint_ranks"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def run(self, case: Case) -> Outcome:
        """Run the case to its end. A rank that raised has ``error`` set."""
        self._num_cases += 1
        out_dir = self._directory / str(self._num_cases)
        out_dir.mkdir()
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(f"{out_dir}\t{case.model_dump_json()}\n")
        self._program.stdin.flush()
        answer = self._program.stdout.readline()
        assert answer, (self._directory / "program.log").read_text()
        return Outcome.model_validate_json(answer)

    def run_well(self, case: Case) -> Outcome:
        """Run the case; fail the test if a rank raised or died."""
        outcome = self.run(case)
        for found in outcome.ranks:
            assert found is not None
            assert not found.error, found.error
        return outcome

    def close(self) -> None:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.close()
        self._program.wait(30)
        self._program.stdout.close()
        self._log.close()


@contextlib.contextmanager
def checkpoint_ranks() -> Iterator[CheckpointRanks]:
    """Start the program and end it afterwards."""
    with tempfile.TemporaryDirectory(prefix="ur-ck-") as directory:
        ranks = CheckpointRanks(Path(directory))
        try:
            yield ranks
        finally:
            ranks.close()
