"""A checkpoint on disk is complete, or it is not loaded."""

import shutil
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest

from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.layout import Layout
from tests.fakes.checkpoint_cases import Case, CheckpointRanks, Step, is_equal

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(120)]

TRAIN = Step(do="train")
SAVE = Step(do="save")
LOAD = Step(do="load")
TWO_STAGES = Layout(pp=2)


def directory_of(spec: TrainingSpec) -> Path:
    return Path(spec.checkpoint_dir)


def names_in(spec: TrainingSpec) -> list[str]:
    return sorted(path.name for path in directory_of(spec).glob("iter_*"))


def load(ranks: CheckpointRanks, spec: TrainingSpec, generation: int = 2) -> int:
    case = Case(training=spec, layout=TWO_STAGES, steps=[LOAD], generation=generation)
    iterations = {tuple(found.loaded) for found in ranks.run_well(case).all}
    assert len(iterations) == 1, "the ranks loaded different checkpoints"
    return iterations.pop()[0]


@pytest.fixture
def trained(ranks: CheckpointRanks, training: TrainingSpec) -> TrainingSpec:
    """Leave the checkpoints of iterations 1, 2 and 3, made on two pipeline stages."""
    ranks.run_well(Case(training=training, layout=TWO_STAGES, steps=[TRAIN, SAVE] * 3))
    return training


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


# --- torn ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.thorough)])
def test_rank_killed_at_any_file_operation_leaves_a_complete_checkpoint(
    ranks: CheckpointRanks, training: TrainingSpec, tmp_path: Path, stride: int
) -> None:
    first = [TRAIN, SAVE, Step(do="dump", name="1")]
    second = [TRAIN, SAVE, Step(do="dump", name="2")]

    def spec(number: int) -> TrainingSpec:
        return training.model_copy(update={"checkpoint_dir": str(tmp_path / str(number))})

    whole = ranks.run_well(Case(training=spec(0), steps=first + second, dies_at=0))
    dumps = {1: whole.dump("1"), 2: whole.dump("2")}
    num_operations = whole.first.num_file_operations
    assert num_operations > 10
    loaded: list[int] = []
    for number in range(1, num_operations + 1, stride):
        killed = ranks.run(Case(training=spec(number), steps=first + second[:-1], dies_at=number))
        # The last operations are those of the second dump.
        assert killed.ranks[0] is None or number > num_operations - 5
        case = Case(
            training=spec(number), steps=[LOAD, Step(do="dump", name="loaded")], generation=2
        )
        outcome = ranks.run_well(case)
        loaded += outcome.first.loaded
        assert is_equal(outcome.dump("loaded"), dumps[loaded[-1]])
        assert not list(directory_of(spec(number)).glob("*.tmp"))
        assert not list(directory_of(spec(number)).glob("*.bad*"))
    assert loaded == sorted(loaded)
    assert set(loaded) == {1, 2}


@pytest.mark.parametrize("name", ["manifest.json", "manifest.crc32", "__1_0.distcp", ".metadata"])
@pytest.mark.parametrize("is_missing", [True, False], ids=["missing", "truncated"])
def test_torn_checkpoint_is_quarantined(
    ranks: CheckpointRanks, trained: TrainingSpec, name: str, *, is_missing: bool
) -> None:
    path = directory_of(trained) / "iter_0000003" / name
    if is_missing:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-2])

    assert load(ranks, trained) == 2
    assert names_in(trained) == ["iter_0000001", "iter_0000002", "iter_0000003.bad-torn"]


def test_half_written_checkpoint_is_removed_by_a_later_generation(
    ranks: CheckpointRanks, trained: TrainingSpec
) -> None:
    directory = directory_of(trained)
    (directory / "iter_0000003").rename(directory / "iter_0000003.g1.tmp")
    (directory / "iter_0000009.g7.tmp").mkdir()

    assert load(ranks, trained) == 2
    # What a later generation writes is not this one's to judge.
    assert names_in(trained) == ["iter_0000001", "iter_0000002", "iter_0000009.g7.tmp"]


# --- damaged -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["manifest.json", "manifest.crc32", "__0_0.distcp", "__1_0.distcp", ".metadata"]
)
def test_one_flipped_bit_is_found_and_never_met_again(
    ranks: CheckpointRanks, trained: TrainingSpec, name: str
) -> None:
    flip_a_bit(directory_of(trained) / "iter_0000003" / name)

    assert load(ranks, trained) == 2
    assert [name for name in names_in(trained) if ".bad-" in name]
    assert load(ranks, trained, generation=3) == 2
    case = Case(
        training=trained, layout=TWO_STAGES, steps=[LOAD, TRAIN, SAVE, TRAIN, SAVE], generation=4
    )
    assert ranks.run_well(case).first.saved == [3, 4]
    assert load(ranks, trained, generation=5) == 4


def test_all_ranks_say_what_one_of_them_has_found(
    ranks: CheckpointRanks, trained: TrainingSpec
) -> None:
    steps = [Step(do="blind", ranks=[1]), LOAD]
    outcome = ranks.run(Case(training=trained, layout=TWO_STAGES, steps=steps, generation=2))
    told = "iter_0000003 can't be loaded: it is missing on this rank's node, or unreadable there;"
    assert all("CheckpointError: rank 1: " in found.error for found in outcome.all)
    assert all(told in found.error for found in outcome.all)
    assert "iter_0000003" in names_in(trained)

    flip_a_bit(directory_of(trained) / "iter_0000003" / "__1_0.distcp")
    ranks.run_well(Case(training=trained, layout=TWO_STAGES, steps=[LOAD], generation=3))
    reason = directory_of(trained) / "iter_0000003.bad-checksum" / "why_quarantined.txt"
    assert reason.read_text().startswith("rank 1: ")
    assert "__1_0.distcp" in reason.read_text()


def test_damage_in_all_checkpoints_leaves_model_and_optimizer_as_they_were(
    ranks: CheckpointRanks, trained: TrainingSpec
) -> None:
    for number in (1, 2, 3):
        flip_a_bit(directory_of(trained) / f"iter_000000{number}" / "__1_0.distcp")
    dumps = [Step(do="dump", name="before"), LOAD, Step(do="dump", name="after"), TRAIN]
    outcome = ranks.run_well(Case(training=trained, layout=TWO_STAGES, steps=dumps, generation=2))
    assert [found.loaded for found in outcome.all] == [[0], [0]]
    assert is_equal(outcome.dump("before"), outcome.dump("after"))
    assert all(name.endswith(".bad-checksum") for name in names_in(trained))


def test_distrusted_checkpoints_are_passed_over_one_after_the_other(
    ranks: CheckpointRanks, trained: TrainingSpec
) -> None:
    distrust = Step(do="distrust")
    steps = [LOAD, TRAIN, SAVE, distrust, LOAD, TRAIN, SAVE, distrust, LOAD]
    keeping = trained.model_copy(update={"checkpoints_kept": 9})
    case = Case(training=keeping, layout=TWO_STAGES, steps=steps, generation=2)
    outcome = ranks.run_well(case)
    assert [found.loaded for found in outcome.all] == [[3, 2, 1]] * 2
    assert outcome.first.saved == []  # both derive from what was distrusted
    assert load(ranks, trained, generation=3) == 1
    reason = directory_of(trained) / "iter_0000003.bad-distrusted" / "why_quarantined.txt"
    assert "its loss is not the recorded one" in reason.read_text()


def test_what_was_saved_since_the_oldest_was_loaded_is_not_trusted_either(
    ranks: CheckpointRanks, training: TrainingSpec
) -> None:
    ranks.run_well(Case(training=training, layout=TWO_STAGES, steps=[TRAIN, SAVE]))
    steps = [LOAD, TRAIN, SAVE, Step(do="distrust")]
    outcome = ranks.run(Case(training=training, layout=TWO_STAGES, steps=steps, generation=2))
    # The oldest stays, for a person to look at: without it training would begin from the seed.
    assert all("CheckpointError: " in found.error for found in outcome.all)
    told = "iter_0000001 is not to be trusted, and there is no older one: its loss"
    assert all(told in found.error for found in outcome.all)
    assert names_in(training) == ["iter_0000001", "iter_0000002.bad-distrusted"]
    assert load(ranks, training, generation=3) == 1


def test_an_older_checkpoint_that_is_torn_is_none_to_go_back_to(
    ranks: CheckpointRanks, trained: TrainingSpec
) -> None:
    # Torn after the load, which would have quarantined them.
    tear = [Step(do="tear", name=f"iter_000000{number}") for number in (1, 2)]
    steps = [LOAD, *tear, Step(do="distrust")]
    outcome = ranks.run(Case(training=trained, layout=TWO_STAGES, steps=steps, generation=2))
    assert all("there is no older one: its loss" in found.error for found in outcome.all)
    assert "iter_0000003" in names_in(trained)


@pytest.mark.parametrize("between", [[], [Step(do="rejoin")]], ids=["same", "rejoined"])
def test_a_wrong_loss_long_after_a_load_speaks_against_no_checkpoint(
    ranks: CheckpointRanks, trained: TrainingSpec, between: list[Step]
) -> None:
    later = Step(do="train", times=8)
    steps = [LOAD, later, *between, Step(do="distrust"), LOAD]
    outcome = ranks.run_well(Case(training=trained, layout=TWO_STAGES, steps=steps, generation=2))
    assert [found.loaded for found in outcome.all] == [[3, 3]] * 2


# --- what follows --------------------------------------------------------------------------------


def test_first_losses_after_a_load_are_known_on_all_ranks(
    ranks: CheckpointRanks, training: TrainingSpec
) -> None:
    # The last save waits: losses are written in the background, after what was asked for before.
    steps = [Step(do="note", times=3), SAVE] * 3
    ranks.run_well(Case(training=training, layout=TWO_STAGES, steps=steps))
    for newer in ("iter_0000006", "iter_0000009"):
        shutil.rmtree(directory_of(training) / newer)

    again = [LOAD, Step(do="note", times=1), SAVE]
    outcome = ranks.run_well(Case(training=training, layout=TWO_STAGES, steps=again, generation=2))
    losses = outcome.first.expected
    assert [found.expected for found in outcome.all] == [losses] * 2
    assert list(losses) == [4, 5, 6, 7, 8, 9]

    slower = training.model_copy(update={"learning_rate": 1e-5})
    outcome = ranks.run_well(Case(training=slower, layout=TWO_STAGES, steps=[LOAD], generation=3))
    assert outcome.first.loaded == [4]
    assert outcome.first.expected == {}


def test_learning_rate_and_step_come_from_the_checkpoint(
    ranks: CheckpointRanks, trained: TrainingSpec
) -> None:
    case = Case(training=trained, steps=[LOAD], generation=2, learning_rate=0.5)
    assert set(ranks.run_well(case).first.learning_rates) == {1e-3}


# --- what is kept, skipped, given up -------------------------------------------------------------


def test_only_the_newest_are_kept_whatever_lies_about(
    ranks: CheckpointRanks, training: TrainingSpec
) -> None:
    bad = directory_of(training) / "iter_0000900.bad-torn"
    bad.mkdir(parents=True)
    spec = training.model_copy(update={"checkpoints_kept": 2})
    case = Case(training=spec, layout=Layout(dp=2), steps=[TRAIN, SAVE] * 4)
    assert ranks.run_well(case).first.saved == [1, 2, 3, 4]
    assert names_in(training) == ["iter_0000003", "iter_0000004", bad.name]


def test_full_disk_costs_a_checkpoint_and_nothing_else(
    ranks: CheckpointRanks, training: TrainingSpec
) -> None:
    ranks.run_well(Case(training=training, layout=TWO_STAGES, steps=[TRAIN, SAVE]))
    case = Case(
        training=training,
        layout=TWO_STAGES,
        steps=[LOAD, TRAIN, SAVE, TRAIN, SAVE, TRAIN],
        generation=2,
        file_size_limit=50_000,
    )
    outcome = ranks.run_well(case)
    first, second = outcome.all
    assert first.saved == []
    assert first.waited == second.waited == [False, False]
    assert (
        "checkpoint was not saved; training continues: iteration=2 reason=[Errno 27] File too large"
        in second.log
    )
    assert f"make room in {directory_of(training)}" in second.log
    assert "checkpoint is given up: iteration=3 reason=not saved by rank 1" in first.log
    assert [iteration for iteration, _ in first.missed] == [2, 3]
    assert "File too large" in first.missed[0][1]
    assert second.missed == []
    assert names_in(training) == ["iter_0000001"]


def test_full_disk_on_rank_0_is_no_different(
    ranks: CheckpointRanks, training: TrainingSpec
) -> None:
    case = Case(training=training, steps=[TRAIN, SAVE, TRAIN], file_size_limit=50_000)
    outcome = ranks.run_well(case)
    assert outcome.first.waited == [False]
    assert "checkpoint was not saved; training continues: iteration=1" in outcome.first.log
    assert names_in(training) == []


@pytest.mark.parametrize("layout", [Layout(), TWO_STAGES], ids=str)
@pytest.mark.parametrize("action", ["copy", "write"])
def test_lack_of_memory_costs_a_checkpoint_and_nothing_else(
    ranks: CheckpointRanks,
    training: TrainingSpec,
    layout: Layout,
    action: Literal["copy", "write"],
) -> None:
    steps = [TRAIN, SAVE, TRAIN, SAVE]
    case = Case(training=training, layout=layout, steps=steps, lacks_memory_to=action)
    outcome = ranks.run_well(case)
    (missed,) = outcome.first.missed
    assert missed[0] == 1
    assert "MemoryError" in outcome.all[-1].log
    assert outcome.first.saved == [2]
    assert names_in(training) == ["iter_0000002"]


def test_rank_without_a_part_is_not_waited_for_for_ever(
    ranks: CheckpointRanks, training: TrainingSpec
) -> None:
    steps = [TRAIN, Step(do="begin", ranks=[0]), Step(do="wait", ranks=[0]), TRAIN, SAVE]
    case = Case(training=training, layout=TWO_STAGES, steps=steps, give_up_s=2)
    outcome = ranks.run_well(case)
    assert "checkpoint is given up: iteration=1 reason=no part of rank 1" in outcome.first.log
    assert outcome.first.saved == [2]
    assert names_in(training) == ["iter_0000002"]


def test_checkpoint_that_comes_too_soon_is_skipped(
    ranks: CheckpointRanks, training: TrainingSpec
) -> None:
    late = [Step(do="begin", ranks=[0]), TRAIN, Step(do="begin"), Step(do="wait"), TRAIN, SAVE]
    case = Case(training=training, layout=TWO_STAGES, steps=[TRAIN, *late], give_up_s=2)
    outcome = ranks.run_well(case)
    skipped = "checkpoint skipped, the last one is still being written: iteration=2 pending=1"
    assert skipped in outcome.first.log
    assert outcome.first.saved == [3]
    assert outcome.first.waited == [False, True]
    assert names_in(training) == ["iter_0000003"]


def test_unfinished_checkpoint_of_an_ended_generation_is_abandoned(
    ranks: CheckpointRanks, training: TrainingSpec
) -> None:
    steps = [TRAIN, Step(do="begin", ranks=[0]), Step(do="rejoin"), TRAIN, SAVE]
    outcome = ranks.run_well(Case(training=training, layout=TWO_STAGES, steps=steps))
    assert "checkpoint is abandoned with its generation: iteration=1" in outcome.first.log
    assert outcome.first.saved == [2]
    assert names_in(training) == ["iter_0000002"]
    assert load(ranks, training, generation=3) == 2


# --- refused -------------------------------------------------------------------------------------


def test_directory_that_is_none_gives_one_error_on_all_ranks(
    ranks: CheckpointRanks, training: TrainingSpec
) -> None:
    directory_of(training).write_text("a file")
    outcome = ranks.run(Case(training=training, layout=TWO_STAGES, steps=[LOAD]))
    for found in outcome.all:
        assert f"CheckpointError: {directory_of(training)} can't be read: Not a directory" in (
            found.error
        )
    outcome = ranks.run_well(Case(training=training, layout=TWO_STAGES, steps=[TRAIN, SAVE]))
    assert "checkpoint was not saved; training continues: iteration=1" in outcome.first.log


def test_another_model_or_seed_is_refused_by_name(
    ranks: CheckpointRanks, trained: TrainingSpec
) -> None:
    longer = trained.model.model_copy(update={"num_layers": 4})
    for what, change in (("seed", {"seed": 2}), ("model", {"model": longer})):
        other = trained.model_copy(update=change)
        outcome = ranks.run(Case(training=other, layout=TWO_STAGES, steps=[LOAD], generation=2))
        for found in outcome.all:
            assert (
                f"iter_0000003 was made with another {what}; use another checkpoint_dir"
                in found.error
            )
    assert load(ranks, trained, generation=3) == 3


def test_format_of_another_program_is_refused_by_name(
    ranks: CheckpointRanks, trained: TrainingSpec
) -> None:
    old = directory_of(trained) / "iter_0000009"
    old.mkdir()
    (old / "manifest.json").write_text('{"format": 1, "iteration": 9}')
    outcome = ranks.run(Case(training=trained, layout=TWO_STAGES, steps=[LOAD], generation=2))
    for found in outcome.all:
        assert f"{old} was written in format 1, and only format 2 can be read" in found.error


@pytest.mark.usefixtures("training_program")
@pytest.mark.filterwarnings("ignore")  # Megatron's own
def test_groups_of_the_optimizer_take_the_rates_of_the_checkpoint() -> None:
    """Megatron 0.19 finds a group by them: a changed learning rate would find none."""
    module = import_module("nodeagent.rank.checkpoint.whole_model")
    kinds = ({"wd_mult": 1.0, "lr_mult": 1.0}, {"wd_mult": 0.0, "lr_mult": 1.0})
    groups = [{**kind, "max_lr": 0.5, "min_lr": None} for kind in kinds]
    loaded: list[object] = []
    optimizer = SimpleNamespace(param_groups=groups, load_state_dict=loaded.append)
    state = module.WholeState(optimizer={"optimizer": {"param_groups": [dict(g) for g in groups]}})
    stored = [{**kind, "max_lr": 1e-3} for kind in reversed(kinds)]
    state.restore_shared(optimizer, {"optimizer": {"param_groups": stored}})
    assert [group["max_lr"] for group in groups] == [1e-3, 1e-3]
    assert [group["min_lr"] for group in groups] == [None, None]
    assert len(loaded) == 1
    state.restore_shared(optimizer, {"optimizer": {"param_groups": [{}, {}]}})
    assert [group["max_lr"] for group in groups] == [0.5, 0.5], "0.16 stores none: its own stay"
