"""A few seconds of ``make scale``, with fewer nodes: the limits of time are the campaign's."""

import pytest

from tests.campaigns.scale import measure

pytestmark = [pytest.mark.ssh, pytest.mark.timeout(120)]


async def test_a_fleet_attaches_trains_and_recovers_a_killed_rank() -> None:
    found = await measure(num_nodes=150, num_tasks=10, seconds=5.0)
    kinds = found.announcements
    assert kinds["node_attached"] == 150, "no session was lost"
    assert kinds["rank_started"] == 150 * 8 + 120, "the ranks of one task go on in a new generation"
    assert (kinds["fault_seen"], kinds["incident"], kinds["regroup"]) == (1, 1, 1)
    assert kinds.keys().isdisjoint({"unreachable", "plan", "stall", "late", "straggler"})
    # An event and a line of the journal for each iteration, and next to nothing else.
    assert 0.9 * found.tasks <= found.events_per_s <= 1.5 * found.tasks
