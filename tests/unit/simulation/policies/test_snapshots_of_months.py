"""A snapshot anywhere in months of faults, with the events after it, gives the state at the end."""

import json

import pytest

from controller.core.events import Event
from controller.core.instructions import Instruction
from controller.core.machine import Machine
from controller.simulation.policies.unicron_core import run_unicron
from controller.simulation.scenarios.scenario_file import load_scenario
from controller.simulation.world.event_sequence import draw_events
from controller.simulation.world.initial_setup import setup_of
from controller.store.replay import ReplayedRun
from controller.store.snapshots import saved_state
from controller.store.state_codec import decode_state, encode_state

_SEED = 1
_NUM_SNAPSHOTS = 8


@pytest.mark.parametrize(
    "scenario",
    [
        "trace-a",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ("trace-b", "stepfun")),
    ],
)
def test_a_snapshot_of_simulated_months_goes_on_like_the_run(
    monkeypatch: pytest.MonkeyPatch, scenario: str
) -> None:
    """Eight weeks with 43 faults; thorough: a week with 106, and 348 days of 400 servers."""
    loaded = load_scenario(scenario)
    sequence = draw_events(loaded, _SEED)
    setup = setup_of(loaded, sequence)
    handle = Machine.handle
    events: list[Event] = []
    answers: list[list[Instruction]] = []
    machines: list[Machine] = []

    def recorded(machine: Machine, event: Event) -> list[Instruction]:
        machines[:] = [machine]
        events.append(event)
        answers.append(handle(machine, event))
        return answers[-1]

    with monkeypatch.context() as patch:
        patch.setattr(Machine, "handle", recorded)
        run_unicron(setup, sequence, _SEED)
        every = len(events) // _NUM_SNAPSHOTS
        texts: dict[int, str] = {}

        def photographed(machine: Machine, event: Event) -> list[Instruction]:
            done = handle(machine, event)
            if event.number % every == 0:
                texts[event.number] = _text_of(machine)
            return done

        patch.setattr(Machine, "handle", photographed)
        run_unicron(setup, sequence, _SEED)
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert len(texts) >= _NUM_SNAPSHOTS
    for number, text in texts.items():
        restored = decode_state(json.loads(text)).machine()
        following = slice(number, number + every)
        for event, answer in zip(events[following], answers[following], strict=True):
            assert handle(restored, event) == answer
        if number + every in texts:
            assert _text_of(restored) == texts[number + every]
        else:
            assert restored.state == machines[0].state


def _text_of(machine: Machine) -> str:
    return json.dumps(encode_state(saved_state(machine, ReplayedRun())))
