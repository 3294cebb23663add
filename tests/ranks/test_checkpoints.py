"""A checkpoint on disk is complete, or it is not loaded."""

from pathlib import Path

import pytest

from nodeagent.protocol.training import TrainingSpec
from profiles.layout import Layout
from tests.fakes.rank_host import RankHost, launches

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(60)]


@pytest.fixture
def trained(host: RankHost, training: TrainingSpec, request: pytest.FixtureRequest) -> TrainingSpec:
    """Train six iterations on pp2 and leave the checkpoints of iterations 2, 4 and 6."""
    spec = training.model_copy(update={"checkpoint_interval": 2})
    host.run(launches(spec, Layout(pp=2), task=request.node.name))
    return spec.model_copy(update={"num_iterations": 7})


def directory_of(spec: TrainingSpec) -> Path:
    return Path(spec.checkpoint_dir)


def loaded_iteration(host: RankHost, spec: TrainingSpec, task: str, generation: int = 2) -> int:
    record = host.run(launches(spec, Layout(pp=2), task=task, generation=generation))
    loaded: int = record.of_kind("checkpoint_loaded")[0].iteration
    return loaded


def test_damaged_shard_falls_back_to_an_older_checkpoint(
    host: RankHost, trained: TrainingSpec, request: pytest.FixtureRequest
) -> None:
    shard = directory_of(trained) / "iter_0000006" / "tp0_pp1.pt"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 0xFF
    shard.write_bytes(data)

    assert loaded_iteration(host, trained, request.node.name) == 4

    first = launches(trained, Layout(pp=2), task=request.node.name, generation=2)[0]
    assert "skipped iter_0000006: damaged" in host.log(first)
    # The iterations run again replaced the damaged one.
    assert loaded_iteration(host, trained, request.node.name, generation=3) == 7


def test_torn_unlisted_and_half_written_checkpoints_are_skipped(
    host: RankHost, trained: TrainingSpec, request: pytest.FixtureRequest
) -> None:
    directory = directory_of(trained)
    (directory / "iter_0000006" / "manifest.json").unlink()
    torn = directory / "iter_0000004" / "tp0_pp0.pt"
    torn.write_bytes(torn.read_bytes()[:-1])
    half_written = directory / "iter_0000008.g1.tmp"
    (directory / "iter_0000002").rename(directory / "iter_0000002.aside")
    half_written.mkdir()
    (half_written / "tp0_pp0.pt").write_bytes(b"half")

    assert loaded_iteration(host, trained, request.node.name) == 0

    assert not half_written.exists()
    first = launches(trained, Layout(pp=2), task=request.node.name, generation=2)[0]
    log = host.log(first)
    assert "skipped iter_0000006" in log
    assert "skipped iter_0000004" in log


def test_only_the_newest_three_are_kept_whatever_damaged_ones_lie_about(
    host: RankHost, training: TrainingSpec
) -> None:
    spec = training.model_copy(update={"checkpoint_interval": 1})
    damaged = [directory_of(spec) / f"iter_000090{number}" for number in range(3)]
    for path in damaged:
        path.mkdir(parents=True)
    host.run(launches(spec, Layout(dp=2), task="kept"))
    names = sorted(path.name for path in directory_of(spec).iterdir() if path not in damaged)
    assert names == ["iter_0000004", "iter_0000005", "iter_0000006"]


def test_another_tensor_parallel_size_is_refused(
    host: RankHost, trained: TrainingSpec, request: pytest.FixtureRequest
) -> None:
    ranks = launches(trained, Layout(tp=2), task=request.node.name, generation=2)
    host.start(ranks)
    for launch in ranks:
        raised = host.wait_for_raise(launch)
        assert raised.exception_type == "CheckpointError"
        assert "was saved with tp 1 pp 2 and can't be loaded with tp 2 pp 1" in raised.message
