"""What is left to read of a rank that a signal ended, and of workers of its data loader."""

import signal
from pathlib import Path

import pytest

from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from nodeagent.ranks.rank_files import RankFiles
from nodeagent.ranks.supervisor import key_of
from profiles.layout import Layout
from profiles.training_program import Program
from tests.fakes.rank_host import REPOSITORY, RankHost, launches

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(60)]

HEAD = f"""\
import ctypes
import os
import signal
import sys
from dataclasses import replace

from torch.utils.data import DataLoader, Dataset

sys.path.append({str(REPOSITORY / "examples" / "own_loop")!r})
import train


class Samples(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        break_worker()  # at the first: one that dies while it sends a sample leaves the rank waiting
        return index


def build(context):
    loop = train.build(context)

    def micro_batch(iteration, index):
        if iteration == 2:
            break_rank()
        return loop.micro_batch(iteration, index)

    return replace(loop, micro_batch=micro_batch)


def break_worker():
    pass

"""

LOADER = """
def break_rank():
    list(DataLoader(Samples(), num_workers=1))
"""


def launch_of(training: TrainingSpec, directory: Path, name: str, code: str) -> RankLaunch:
    """Return a rank whose program is broken by ``code`` in its second iteration."""
    (directory / f"{name}.py").write_text(HEAD + code)
    program = Program(function=f"{name}:build", directory=str(directory))
    spec = training.model_copy(update={"program": program})
    (launch,) = launches(spec, Layout(), task=name)
    return launch


@pytest.mark.parametrize(
    ("how", "number", "words"),
    [
        ("ctypes.string_at(0)", signal.SIGSEGV, "Segmentation fault"),
        ("os.abort()", signal.SIGABRT, "Aborted"),
        ("os.kill(os.getpid(), signal.SIGBUS)", signal.SIGBUS, "Bus error"),
    ],
)
def test_fatal_signal_leaves_the_stack_of_the_rank(
    host: RankHost, training: TrainingSpec, tmp_path: Path, how: str, number: int, words: str
) -> None:
    name = f"fatal_{signal.Signals(number).name.lower()}"
    launch = launch_of(training, tmp_path, name, f"def break_rank():\n    {how}\n")
    host.start([launch])
    assert host.wait_for_exit(launch)["signal"] == number
    tail = RankFiles(host.state_dir / "ranks").tail(key_of(launch))
    assert f"Fatal Python error: {words}" in tail
    assert "in break_rank" in tail
    assert "in micro_batch" in tail


def test_exception_in_a_worker_of_the_data_loader_is_the_rank_s(
    host: RankHost, training: TrainingSpec, tmp_path: Path
) -> None:
    code = LOADER + 'def break_worker():\n    raise ValueError("a sample is damaged")\n'
    launch = launch_of(training, tmp_path, "loader_raises", code)
    host.start([launch])
    raised = host.wait_for_raise(launch)
    assert raised.exception_type == "ValueError"
    assert "Caught ValueError in DataLoader worker process 0" in raised.message
    assert "a sample is damaged" in raised.message
    assert "in break_worker" in raised.traceback
    assert not raised.is_in_collective


def test_worker_of_the_data_loader_that_dies_is_an_exception_of_the_rank(
    host: RankHost, training: TrainingSpec, tmp_path: Path
) -> None:
    code = LOADER + "def break_worker():\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    launch = launch_of(training, tmp_path, "loader_dies", code)
    host.start([launch])
    raised = host.wait_for_raise(launch)
    assert raised.exception_type == "RuntimeError"
    assert "DataLoader worker" in raised.message
    assert not raised.is_in_collective
