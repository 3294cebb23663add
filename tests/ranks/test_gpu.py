"""Ranks whose tensors are on a GPU; one is enough.

Skipped where there is none, and not run on one yet.

Not here: NCCL between ranks, which needs a GPU for each.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from nodeagent.protocol.regroup import Resume
from profiles.layout import Layout
from tests.campaigns.matrix import Case, fault_at
from tests.campaigns.trial import Trials
from tests.fakes.directories import short_directory
from tests.fakes.rank_host import FAULTY_GPU_TEMPLATE, RankHost, launches, rank_host

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def gpu() -> None:
    if not import_module("torch").cuda.is_available():
        pytest.skip("torch finds no GPU")


def alone_on_a_gpu(training: TrainingSpec, task: str) -> list[RankLaunch]:
    return [
        launch.model_copy(update={"backend": "nccl"})
        for launch in launches(training, Layout(), task=task)
    ]


def test_rank_on_a_gpu_has_the_losses_of_one_on_a_cpu(
    host: RankHost, training: TrainingSpec, tmp_path: Path
) -> None:
    on_gpu = host.run(alone_on_a_gpu(training, "on-gpu"), timeout_s=120).loss_by_iteration
    elsewhere = training.model_copy(update={"checkpoint_dir": str(tmp_path / "of-cpu")})
    on_cpu = host.run(launches(elsewhere, Layout(), task="on-cpu")).loss_by_iteration
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
    ],
    ids=str,
)
def test_run_with_a_fault_equals_the_run_without(case: Case, tmp_path: Path) -> None:
    with short_directory() as state_dir, rank_host(state_dir, FAULTY_GPU_TEMPLATE) as host:
        Trials(host, tmp_path).run(case)
