"""Sweeps that are left out after quiet events would have done nothing."""

import pytest

from controller.simulation.policies.comparison import prepared
from controller.simulation.policies.unicron_core import run_unicron
from controller.simulation.scenarios.scenario_file import load_scenario
from controller.simulation.world.event_sequence import draw_events


@pytest.mark.parametrize(("name", "days"), [("trace-b", 1.0), ("spot-g4dn", 2.0)])
def test_leaving_sweeps_out_after_quiet_events_changes_no_result(name: str, days: float) -> None:
    scenario = load_scenario(name)
    values = scenario.values.model_copy(update={"days": days})
    scenario = scenario.model_copy(update={"values": values})
    setup, events = prepared(scenario), draw_events(scenario, 1)
    fast = run_unicron(setup, events, 1)
    assert fast == run_unicron(setup, events, 1, is_checked=True)
    assert fast.num_incidents > 0
