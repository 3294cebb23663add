"""Losses tell when a checkpoint that looks intact holds another state.

The next older one is used.
"""

import io
import json
import os
import shutil
import signal
import zlib
from pathlib import Path
from typing import Any

import pytest

from controller.core.rules.regroup.next_generation import decide
from controller.core.rules.regroup.parked import Parked
from nodeagent.protocol.ids import Generation
from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from nodeagent.protocol.regroup import RankRef
from profiles.layout import Layout
from tests.fakes.fault_points import lingering
from tests.fakes.rank_host import RankHost, launches

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(120)]


def pass_off_as(older: Path, newer: Path, iteration: int) -> None:
    """Put the checkpoint ``older`` in the place of ``newer``, with all checksums in order."""
    shutil.rmtree(newer)
    shutil.copytree(older, newer)
    manifest = json.loads((newer / "manifest.json").read_text()) | {"iteration": iteration}
    content = json.dumps(manifest).encode()
    (newer / "manifest.json").write_bytes(content)
    (newer / "manifest.crc32").write_text(f"{zlib.crc32(content):08x}")


def fill_with_nan(checkpoint: Path) -> None:
    """Replace one tensor of a checkpoint by NaN, with all checksums in order."""
    import torch

    manifest: dict[str, Any] = json.loads((checkpoint / "manifest.json").read_text())
    block = next(one for one in manifest["blocks"] if one["key"].startswith("decoder.final"))
    file = checkpoint / block["file"]
    content, begin = bytearray(file.read_bytes()), block["position"]
    end = begin + block["num_bytes"]
    tensor = torch.load(io.BytesIO(content[begin:end]), weights_only=True).fill_(float("nan"))
    archive = io.BytesIO()
    torch.save(tensor, archive)
    assert len(archive.getvalue()) == block["num_bytes"]
    content[begin:end] = archive.getvalue()
    file.write_bytes(content)
    for one in manifest["files"]:
        if one["name"] == block["file"]:
            one["crc32"] = zlib.crc32(content)
    text = json.dumps(manifest).encode()
    (checkpoint / "manifest.json").write_bytes(text)
    (checkpoint / "manifest.crc32").write_text(f"{zlib.crc32(text):08x}")


def again(ranks: list[RankLaunch], generation: int) -> list[RankLaunch]:
    """Return the next generation in the same processes, from the disk."""
    return [
        launch.model_copy(
            update={
                "generation": Generation(generation),
                "continues": RankRef(generation=launch.generation, global_rank=launch.global_rank),
            }
        )
        for launch in ranks
    ]


def train_and_spoil(host: RankHost, spec: TrainingSpec, task: str) -> dict[int, float]:
    """Train beyond iteration 9, lose all ranks, and leave checkpoint 6 with the state after 3."""
    directory = Path(spec.checkpoint_dir)
    endless = spec.model_copy(update={"num_iterations": None, "checkpoints_kept": 1000})
    first = launches(endless, Layout(dp=2), task=task)
    pids = host.start(first)
    record = host.record(first[0])
    # The losses up to it are written before it is.
    host.wait_for((directory / "iter_0000009").exists)
    for launch in first:
        os.kill(pids[launch.global_rank], signal.SIGKILL)
        host.wait_for_exit(launch)
    for path in directory.glob("iter_*"):
        if path.name > "iter_0000006":
            shutil.rmtree(path)
    pass_off_as(directory / "iter_0000003", directory / "iter_0000006", 6)
    return record.loss_by_iteration


def check_refused(
    host: RankHost, ranks: list[RankLaunch], words: str, error: str = "SuspectStateError"
) -> None:
    """All ranks refuse their state, the first one for the reason that has these words."""
    for launch in ranks:
        raised = host.wait_for_raise(launch)
        assert raised.exception_type == error
        assert launch.global_rank > 0 or words in raised.message
        assert raised.position is not None
        assert not raised.position.has_state


def test_a_wrong_checkpoint_is_found_by_its_losses_and_quarantined(
    host: RankHost, training: TrainingSpec
) -> None:
    spec = training.model_copy(
        update={"num_iterations": 12, "iteration_floor_s": 0.1, "learning_rate": 0.01}
    )
    directory = Path(spec.checkpoint_dir)
    before = train_and_spoil(host, spec, "suspect")
    second = launches(spec, Layout(dp=2), task="suspect", generation=2)
    host.start(second)
    check_refused(host, second, "iteration 7")
    assert list(directory.glob("*iter_0000006*distrusted*"))

    third = again(second, 3)
    for parked, launch in zip(second, third, strict=True):
        host.join(parked, launch)
    for launch in second:
        assert host.wait_for_exit(launch, 60)["exit_code"] == 0
    joined = host.record(third[0]).of_kind("rank_joined")
    assert [(one.source, one.iteration) for one in joined] == [("disk", 3)]
    losses = host.record(third[0]).loss_by_iteration
    common = before.keys() & losses.keys()
    assert len(common) >= 4
    assert {i: losses[i] for i in common} == {i: before[i] for i in common}


def test_a_checkpoint_of_nan_is_quarantined_like_one_of_another_state(
    host: RankHost, training: TrainingSpec
) -> None:
    spec = training.model_copy(update={"num_iterations": 12, "iteration_floor_s": 0.1})
    directory = Path(spec.checkpoint_dir)
    train_and_spoil(host, spec, "not-finite")
    fill_with_nan(directory / "iter_0000006")
    second = launches(spec, Layout(dp=2), task="not-finite", generation=2)
    host.start(second)
    check_refused(host, second, "loss nan")
    assert list(directory.glob("*iter_0000006*distrusted*"))


def test_the_only_checkpoint_is_left_to_a_person(host: RankHost, training: TrainingSpec) -> None:
    spec = training.model_copy(update={"num_iterations": 12, "iteration_floor_s": 0.1})
    directory = Path(spec.checkpoint_dir)
    train_and_spoil(host, spec, "the-only")
    shutil.rmtree(directory / "iter_0000003")
    fill_with_nan(directory / "iter_0000006")
    second = launches(spec, Layout(dp=2), task="the-only", generation=2)
    host.start(second)
    check_refused(host, second, "loss nan", "CheckpointError")
    assert [path.name for path in directory.glob("iter_*")] == ["iter_0000006"]


def test_a_fault_right_after_the_load_does_not_hide_a_wrong_checkpoint(
    host: RankHost, training: TrainingSpec
) -> None:
    spec = training.model_copy(
        update={"num_iterations": 12, "iteration_floor_s": 0.1, "learning_rate": 0.01}
    )
    train_and_spoil(host, spec, "hidden")
    slow = spec.model_copy(update={"iteration_floor_s": 2.0})
    second = launches(slow, Layout(dp=2), task="hidden", generation=2)
    host.start(second)
    host.wait_for(lambda: all(host.record(launch).of_kind("rank_joined") for launch in second))
    host.halt(second, [])
    positions = {launch.global_rank: host.wait_for_position(launch) for launch in second}
    parked = Parked(Layout(dp=2), spec.num_micro_batches, positions)
    decision = decide(parked, Layout(dp=2), {0: 0, 1: 1})
    third = [launch.model_copy(update={"resume": decision.resume}) for launch in again(second, 3)]
    for old, launch in zip(second, third, strict=True):
        host.join(old, launch)
    for launch in third:
        assert host.wait_for_raise(launch).exception_type == "SuspectStateError"
    assert [one.source for one in host.record(third[0]).of_kind("rank_joined")] == ["own"]
    assert list(Path(spec.checkpoint_dir).glob("*iter_0000006*distrusted*"))


def test_without_a_usable_checkpoint_a_process_begins_from_the_seed(
    faulty_host: RankHost, training: TrainingSpec
) -> None:
    host = faulty_host
    spec = training.model_copy(update={"num_iterations": 4, "checkpoint_interval": 1000})
    first = launches(spec, Layout(dp=2), task="afresh")
    host.plan("afresh", [lingering(3)])
    host.start(first)
    record = host.record(first[0])
    host.wait_for(lambda: 2 in record.loss_by_iteration)
    host.halt(first, [])
    for launch in first:
        assert host.wait_for_position(launch).committed >= 2
    second = again(first, 2)
    for parked, launch in zip(first, second, strict=True):
        host.join(parked, launch)
    for launch in first:
        assert host.wait_for_exit(launch, 60)["exit_code"] == 0
    losses = host.record(second[0]).loss_by_iteration
    before = record.loss_by_iteration
    assert sorted(losses) == [1, 2, 3, 4]
    assert {i: losses[i] for i in before} == before
