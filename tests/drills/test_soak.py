"""A quarter of a minute of ``make soak``: the controller is killed under training and faults."""

import argparse
from pathlib import Path

import pytest

from tests.campaigns.soak import Soak, calm_losses
from tests.fakes.cluster_runs import end_everything_of
from tests.fakes.playgrounds import playground

pytestmark = [pytest.mark.drill, pytest.mark.ranks, pytest.mark.ssh, pytest.mark.timeout(240)]


def test_nothing_is_lost_or_done_twice_when_the_controller_dies_again_and_again(
    short_tmp: Path,
) -> None:
    options = argparse.Namespace(seed=43, pause_s=3.0, kill_every=4.0)
    (short_tmp / "t").mkdir()
    sizes = ("--nodes", "4", "--workers-per-node", "2")
    try:
        with playground(short_tmp / "t", short_tmp / "play", *sizes) as nodes:
            soak = Soak(nodes, short_tmp, options)
            ends = soak.run(15.0)
            losses = soak.losses()
            end_everything_of(short_tmp, "soak")
            expected = calm_losses(nodes, short_tmp, ends)
    finally:
        end_everything_of(short_tmp, "soak", "calm")
    assert soak.faults["kill controller"] >= 2
    for task, of_task in losses.items():
        for iteration in range(1, ends[task] + 1):
            assert of_task[iteration] == pytest.approx(expected[task][iteration], abs=1e-6)
