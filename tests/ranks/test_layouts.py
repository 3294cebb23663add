"""The losses of a task do not depend on its layout, nor on being restarted."""

from pathlib import Path

import pytest

from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.layout import Layout
from tests.fakes.rank_host import RankHost, launches

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(60)]

LAYOUTS = [Layout(), Layout(dp=2), Layout(tp=2), Layout(pp=2), Layout(tp=2, dp=2)]


def test_losses_are_equal_on_every_layout(
    host: RankHost, training: TrainingSpec, tmp_path: Path
) -> None:
    losses: list[dict[int, float]] = []
    norms: list[list[float]] = []
    for layout in LAYOUTS:
        spec = training.model_copy(update={"checkpoint_dir": str(tmp_path / str(layout))})
        record = host.run(launches(spec, layout, task=f"layout-{len(losses)}"))
        losses.append(record.loss_by_iteration)
        norms.append([one.grad_norm for one in record.of_kind("iteration_committed")])
    assert list(losses[0]) == [1, 2, 3, 4, 5, 6]
    for other_losses, other_norms in zip(losses[1:], norms[1:], strict=True):
        # Float32 rounding; 4e-8 was measured over 30 iterations.
        assert other_losses == pytest.approx(losses[0], rel=1e-6)
        assert other_norms == pytest.approx(norms[0], rel=1e-5)
    assert losses[0][6] < losses[0][1]


def test_losses_with_dropout_do_not_depend_on_the_number_of_replicas(
    host: RankHost, training: TrainingSpec, tmp_path: Path
) -> None:
    model = training.model.model_copy(update={"hidden_dropout": 0.1, "attention_dropout": 0.1})
    losses: list[dict[int, float]] = []
    for dp in (1, 2, 3):
        update = {"model": model, "checkpoint_dir": str(tmp_path / str(dp))}
        spec = training.model_copy(update=update)
        ranks = launches(spec, Layout(dp=dp), task=f"dropout-{dp}")
        losses.append(host.run(ranks).loss_by_iteration)
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert losses[2] == pytest.approx(losses[0], rel=1e-6)


def test_equal_runs_are_bit_identical(
    host: RankHost, training: TrainingSpec, tmp_path: Path
) -> None:
    options = {"hidden_dropout": 0.1, "attention_dropout": 0.1, "sequence_parallel": True}
    training = training.model_copy(update={"model": training.model.model_copy(update=options)})
    runs = []
    for name in ("one", "two"):
        spec = training.model_copy(update={"checkpoint_dir": str(tmp_path / name)})
        ranks = launches(spec, Layout(tp=2), task=f"run-{name}")
        runs.append(host.run(ranks).loss_by_iteration)
    assert runs[0] == runs[1]


def test_another_seed_gives_other_losses(
    host: RankHost, training: TrainingSpec, tmp_path: Path
) -> None:
    first = host.run(launches(training, Layout(), task="seed-one")).loss_by_iteration
    other = training.model_copy(update={"seed": 2, "checkpoint_dir": str(tmp_path / "other")})
    second = host.run(launches(other, Layout(), task="seed-two")).loss_by_iteration
    assert all(first[iteration] != second[iteration] for iteration in first)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Layout(tp=2, dp=2), Layout(tp=2, dp=2)),
        pytest.param(Layout(pp=2), Layout(pp=2), marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_restart_from_a_checkpoint_is_bit_identical(
    host: RankHost, training: TrainingSpec, tmp_path: Path, before: Layout, after: Layout
) -> None:
    task = f"restart-{before}".replace(" ", "-")
    whole = training.model_copy(update={"checkpoint_dir": str(tmp_path / "whole")})
    undisturbed = host.run(launches(whole, before, task=f"{task}-whole")).loss_by_iteration

    half = training.model_copy(update={"num_iterations": 3})
    host.run(launches(half, before, task=task))
    record = host.run(launches(training, after, task=task, generation=2))

    joined = record.of_kind("rank_joined")
    assert [(one.source, one.iteration) for one in joined] == [("disk", 3)]
    assert record.loss_by_iteration == {i: undisturbed[i] for i in (4, 5, 6)}


def test_checkpoint_is_restored_with_another_number_of_replicas(
    host: RankHost, training: TrainingSpec, tmp_path: Path
) -> None:
    whole = training.model_copy(update={"checkpoint_dir": str(tmp_path / "whole")})
    undisturbed = host.run(launches(whole, Layout(dp=2), task="resize-whole")).loss_by_iteration

    half = training.model_copy(update={"num_iterations": 3})
    host.run(launches(half, Layout(dp=4), task="resize"))
    record = host.run(launches(training, Layout(dp=2), task="resize", generation=2))

    expected = {i: undisturbed[i] for i in (4, 5, 6)}
    assert record.loss_by_iteration == pytest.approx(expected, rel=1e-6)
