"""Real ranks report what they do, and a hanging rank is found from that, in every layout."""

from importlib import import_module
from statistics import median

import pytest

from controller.core.rules.hang import Hang, find_hang
from nodeagent.protocol.rank_launch import TrainingSpec
from nodeagent.protocol.standing import Standing
from profiles.layout import Layout
from tests.campaigns.matrix import fault_at
from tests.fakes.fault_points import Fault
from tests.fakes.rank_host import RankHost
from tests.fakes.rank_task import RankTask

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(120)]

_PATIENCE_S = 1.0


def explain(task: RankTask) -> tuple[Hang, dict[int, Standing]]:
    """Ask the ranks until it is clear who hangs."""
    launches = [member.launch for member in task.members.values()]

    def explained() -> tuple[Hang, dict[int, Standing]] | None:
        standings = task.host.ask(launches)
        hang = find_hang(standings, task.layout, patience_s=_PATIENCE_S, is_complete=True)
        return (hang, standings) if hang is not None and hang.reasons else None

    return task.host.wait_for(explained)


@pytest.mark.parametrize(
    ("layout", "fault", "waits_in"),
    [
        (Layout(dp=3), fault_at(1, "forward", action="sleep"), "_wait ("),
        (Layout(dp=3), fault_at(2, "voting", action="sleep"), "_sum_over_all ("),
        (Layout(dp=3), fault_at(0, "voting", action="receive"), "_sum_over_all ("),
        (Layout(tp=2, dp=2), fault_at(3, "backward", 2, action="sleep"), ""),
        (Layout(pp=2, dp=2), fault_at(1, "forward", 2, action="sleep"), ""),
    ],
    ids=["in a micro-batch", "before the vote", "in another collective", "tensor", "pipeline"],
)
def test_hanging_rank_is_found_and_replaced(
    faulty_host: RankHost, training: TrainingSpec, layout: Layout, fault: Fault, waits_in: str
) -> None:
    name = f"stands-{layout.tp}-{layout.pp}-{fault.point}-{fault.action}"
    task = RankTask(faulty_host, training, layout, name)
    task.start([fault])
    task.wait_for_fault(fault)
    hang, standings = explain(task)
    assert set(hang.reasons) == {fault.global_rank}, standings
    assert waits_in in hang.summary
    own = standings[fault.global_rank]
    assert own.where == ("collective" if fault.action == "receive" else "computing")
    assert "_break (" in own.stack
    assert own.iteration == fault.iteration
    assert all(one.collectives for one in standings.values())
    # Stages wait for one another in exchanges, which the recorder does not number.
    if layout.pp == 1:
        assert "has not entered gloo:" in hang.reasons[fault.global_rank]
    task.park({fault.global_rank})
    task.regroup()
    task.finish()
    assert set(task.losses) == set(range(1, 7))


def test_ranks_measure_their_own_computing_without_the_floor(
    host: RankHost, training: TrainingSpec
) -> None:
    spec = training.model_copy(update={"iteration_floor_s": 0.4})
    task = RankTask(host, spec, Layout(dp=2), "busy")
    task.start()
    task.finish()
    for member in task.members.values():
        pulses = host.record(member.launch).pulses[1:]
        assert pulses
        assert all(0 < pulse.busy_s < pulse.duration_s for pulse in pulses)
        # Each of the two micro-batches is begun no sooner than the floor allows.
        assert median(pulse.duration_s - pulse.busy_s for pulse in pulses) > 0.2


def test_ring_that_is_too_long_is_not_read_and_that_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = import_module(
        "nodeagent.rank.agent_link.flight_recorder"
    )  # with torch: collecting stays fast
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "2000")
    recorder._is_short.cache_clear()
    try:
        for _ in range(2):
            assert recorder.recorded_collectives(0) == ()
    finally:
        recorder._is_short.cache_clear()
    (said,) = caplog.messages
    assert said.endswith("TORCH_FR_BUFFER_SIZE=2000 max_entries=512")
