"""Ranks whose tensors are on a GPU; one is enough. Skipped where there is none.

All have passed on an H100 (docs/measurements.md). Not here: NCCL between ranks, which needs a GPU
for each.
"""

import os
import shutil
import signal
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from controller.core.rules.regroup.next_generation import decide
from controller.core.rules.regroup.parked import Parked
from nodeagent.probes.gpu import NvmlGpus
from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from nodeagent.protocol.regroup import RankRef, Resume
from profiles.layout import Layout
from tests.campaigns.matrix import Case, fault_at
from tests.campaigns.trial import Trials
from tests.fakes.directories import short_directory
from tests.fakes.rank_host import FAULTY_GPU_TEMPLATE, RankHost, launches, rank_host

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(300)]

_CONTEXT_BYTES = 100 << 20
"""Less than what a process that uses a GPU takes there at least."""


@pytest.fixture(autouse=True)
def gpu() -> None:
    if not import_module("torch").cuda.is_available():
        pytest.skip("torch finds no GPU")


def alone_on_a_gpu(training: TrainingSpec, task: str) -> list[RankLaunch]:
    return [
        launch.model_copy(update={"backend": "nccl"})
        for launch in launches(training, Layout(), task=task)
    ]


def test_rank_on_a_gpu_goes_on_with_the_losses_of_one_on_a_cpu(
    host: RankHost, training: TrainingSpec, tmp_path: Path
) -> None:
    # From one checkpoint: a GPU draws other random numbers, so its first parameters differ.
    three = training.model_copy(update={"num_iterations": 3})
    host.run(launches(three, Layout(), task="on-cpu"))
    elsewhere = training.model_copy(update={"checkpoint_dir": str(tmp_path / "of-gpu")})
    shutil.copytree(training.checkpoint_dir, elsewhere.checkpoint_dir)
    resume = {"resume": Resume(source="disk")}
    on_cpu, on_gpu = (
        host.run([one.model_copy(update=resume) for one in ranks], timeout_s=120).loss_by_iteration
        for ranks in (
            launches(training, Layout(), task="stays"),
            alone_on_a_gpu(elsewhere, "changes-over"),
        )
    )
    assert list(on_gpu) == [4, 5, 6]
    assert on_gpu == pytest.approx(on_cpu, rel=1e-3)


def test_rank_on_a_gpu_goes_on_from_the_disk(host: RankHost, training: TrainingSpec) -> None:
    host.run(alone_on_a_gpu(training, "ends"), timeout_s=120)
    longer = training.model_copy(update={"num_iterations": 8})
    going_on = [
        launch.model_copy(update={"resume": Resume(source="disk")})
        for launch in alone_on_a_gpu(longer, "goes-on")
    ]
    assert list(host.run(going_on, timeout_s=120).loss_by_iteration) == [7, 8]


def test_rank_with_nccl_goes_on_in_the_next_generation(
    host: RankHost, training: TrainingSpec, tmp_path: Path
) -> None:
    # No peer can be lost here. But each group is aborted at the halt, and made anew.
    slow = training.model_copy(update={"num_iterations": 8, "iteration_floor_s": 0.2})
    elsewhere = slow.model_copy(update={"checkpoint_dir": str(tmp_path / "whole")})
    whole = host.run(alone_on_a_gpu(elsewhere, "whole"), timeout_s=120).loss_by_iteration
    (parked,) = alone_on_a_gpu(slow, "halted")
    host.start([parked])
    host.wait_for(lambda: 3 in host.record(parked).loss_by_iteration, 60)
    host.halt([parked], [])
    position = host.wait_for_position(parked)
    standing = Parked(parked.layout, slow.num_micro_batches, {0: position})
    decision = decide(standing, parked.layout, {0: 0})
    continues = RankRef(generation=parked.generation, global_rank=0)
    update = {"generation": 2, "resume": decision.resume, "continues": continues}
    following = parked.model_copy(update=update)
    host.join(parked, following)
    assert host.wait_for_exit(parked, 60)["exit_code"] == 0, host.log(parked)
    assert [one.source for one in host.record(following).of_kind("rank_joined")] == ["own"]
    before = host.record(parked).loss_by_iteration
    assert before | host.record(following).loss_by_iteration == whole
    assert "abort of a process group failed" not in host.log(parked)


def test_the_flight_recorder_shows_the_collectives_of_nccl(
    host: RankHost, training: TrainingSpec
) -> None:
    endless = training.model_copy(update={"num_iterations": 1000, "checkpoint_interval": 1000})
    (launch,) = alone_on_a_gpu(endless, "recorded")
    host.start([launch])
    host.wait_for(lambda: 3 in host.record(launch).loss_by_iteration, 60)
    collectives = host.ask([launch])[0].collectives
    assert any(one.name.startswith("nccl:") for one in collectives), collectives


def test_copies_to_host_memory_hold_what_was_there_before_the_update() -> None:
    module: Any = import_module("nodeagent.rank.tensors.host_copy")
    torch = import_module("torch")
    source = torch.arange(1 << 26, dtype=torch.float32, device="cuda")
    expected = source.to("cpu", copy=True)
    target = torch.empty(source.size(), pin_memory=True)
    wait = module.copy_to_host([source], [target])
    module.wait_on_device()
    source.zero_()
    wait()
    assert torch.equal(target, expected)


@pytest.mark.parametrize(
    "case",
    [
        Case("dp2", (fault_at(1, "started", 3),)),
        Case("dp3", (fault_at(0, "forward", 2),)),
        Case("dp4", (fault_at(3, "in vote"),), "shrink"),
        Case("dp2", (fault_at(1, "sending"),), is_sharded=True),
        Case("dp2", (fault_at(1, "forward", 2, action="spin"),)),
    ],
    ids=str,
)
def test_run_with_a_fault_equals_the_run_without(case: Case, tmp_path: Path) -> None:
    with short_directory() as state_dir, rank_host(state_dir, FAULTY_GPU_TEMPLATE) as host:
        Trials(host, tmp_path).run(case)


def test_memory_of_a_killed_rank_is_free_when_its_process_has_ended(
    training: TrainingSpec,
) -> None:
    nvml: Any = import_module("pynvml")
    nvml.nvmlInit()
    device = nvml.nvmlDeviceGetHandleByIndex(0)

    def used_bytes() -> int:
        return int(nvml.nvmlDeviceGetMemoryInfo(device).used)

    with short_directory() as state_dir, rank_host(state_dir, FAULTY_GPU_TEMPLATE) as host:
        before = used_bytes()
        (launch,) = launches(training, Layout(), task="killed")
        host.plan("killed", [fault_at(0, "forward", 2, action="spin")])
        (pid,) = host.start([launch]).values()
        # The log comes into being a moment after the fork.
        host.wait_for(lambda: host.record(launch).hellos, 60)
        host.wait_for(lambda: "breaks: " in host.log(launch), 60)
        assert used_bytes() - before > _CONTEXT_BYTES
        os.kill(pid, signal.SIGKILL)
        assert host.wait_for_exit(launch, 60)["signal"] == signal.SIGKILL
        assert used_bytes() <= before


def test_every_gpu_has_a_reading() -> None:
    gpus = NvmlGpus()
    readings = gpus.read()
    assert gpus.state == f"{import_module('torch').cuda.device_count()} GPUs"
    for reading in readings:
        assert not reading.is_lost
        assert reading.temperature_c is not None
        assert reading.num_uncorrectable == 0
