"""Ranks whose tensors are on a GPU; one is enough. Skipped where there is none.

The cases with faults and the copies to host memory have passed on an H100; the other tests here
have not been run on a GPU since they were last changed (docs/measurements.md).

Not here: NCCL between ranks, which needs a GPU for each.
"""

import os
import shutil
import signal
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from nodeagent.probes.gpu import NvmlGpus
from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from nodeagent.protocol.regroup import Resume
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
