"""Some seconds of ``make soak``: the controller is killed under training and faults."""

import argparse
import tempfile
from pathlib import Path

import pytest

from tests.campaigns.soak import Soak, calm_losses
from tests.fakes.cluster_runs import end_everything_of
from tests.fakes.playgrounds import playground

pytestmark = [pytest.mark.drill, pytest.mark.ranks, pytest.mark.ssh, pytest.mark.timeout(600)]


@pytest.mark.thorough  # test_takeover kills a controller under training, test_demo breaks training
def test_nothing_is_lost_or_done_twice_when_the_controller_dies_again_and_again() -> None:
    options = argparse.Namespace(seed=43, pause_s=1.5, kill_every=3.0)
    sizes, task = ("--nodes", "2", "--workers-per-node", "4"), "gpt-a"
    with tempfile.TemporaryDirectory(prefix="ut-", dir="/tmp") as name:
        directory = Path(name)
        (directory / "t").mkdir()
        try:
            with playground(directory / "t", directory / "play", *sizes) as nodes:
                soak = Soak(nodes, directory, options, task)
                ends = soak.run(3.0)
                losses = soak.losses(ends)
                end_everything_of(directory, "soak")
                expected = calm_losses(nodes, directory, ends, task)
        finally:
            end_everything_of(directory, "soak", "calm")
    assert soak.faults["kill controller"] == 1
    for task, of_task in losses.items():
        assert soak.unreported[task] < ends[task] / 2
        for iteration in of_task.keys() & expected[task].keys():
            assert of_task[iteration] == pytest.approx(expected[task][iteration], abs=2e-6)
