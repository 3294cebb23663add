"""One warm template for all tests here, and one whose ranks break where a test wants it.

Each test gives its tasks names of their own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.protocol.rank_launch import TrainingSpec
from nodeagent.rank.process.warm_imports import import_training_program
from tests.fakes.checkpoint_cases import CheckpointRanks, checkpoint_ranks
from tests.fakes.directories import short_directory
from tests.fakes.model_cases import TINY
from tests.fakes.rank_host import FAULTY_TEMPLATE, RankHost, rank_host


@pytest.fixture(scope="session")
def training_program() -> None:
    """Import torch and Megatron into this process, as a template does."""
    import_training_program()


@pytest.fixture(scope="session")
def warm_host() -> Iterator[RankHost]:
    with short_directory() as state_dir, rank_host(state_dir) as host:
        yield host


@pytest.fixture(scope="session")
def warm_faulty_host() -> Iterator[RankHost]:
    with short_directory() as state_dir, rank_host(state_dir, FAULTY_TEMPLATE) as host:
        yield host


@pytest.fixture
def host(warm_host: RankHost) -> Iterator[RankHost]:
    yield warm_host
    warm_host.resume_storing()
    warm_host.kill_ranks()


@pytest.fixture
def faulty_host(warm_faulty_host: RankHost) -> Iterator[RankHost]:
    yield warm_faulty_host
    warm_faulty_host.kill_ranks()


@pytest.fixture(scope="module")
def ranks() -> Iterator[CheckpointRanks]:
    """Programs that save and load checkpoints on real ranks."""
    with checkpoint_ranks() as started:
        yield started


@pytest.fixture
def training(tmp_path: Path) -> TrainingSpec:
    """Six iterations of a tiny model, a checkpoint after each third."""
    return TrainingSpec(
        model=TINY,
        checkpoint_dir=str(tmp_path / "checkpoints"),
        checkpoint_interval=3,
        num_micro_batches=4,
        num_iterations=6,
    )
