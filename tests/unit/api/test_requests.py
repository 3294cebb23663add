"""Commands of clients and the events that they become."""

from dataclasses import fields
from typing import get_args

import pytest

from controller.api import wire
from controller.api.requests import EVENT_BY_COMMAND, NAME_ON_WIRE, event_of
from controller.core.events import (
    DrillRequested,
    FileReloaded,
    PlanRejected,
    Request,
    TaskSubmitted,
)
from nodeagent.protocol.ids import NodeId


@pytest.mark.parametrize("command", EVENT_BY_COMMAND, ids=lambda kind: kind.__name__)
def test_a_command_and_its_event_have_the_same_fields(command: type[wire.ClientCommand]) -> None:
    names = [field.name for field in fields(EVENT_BY_COMMAND[command])]
    known = {NAME_ON_WIRE.get(name, name) for name in names}
    assert known == command.model_fields.keys() - {"kind"}


def test_every_request_of_the_core_has_its_command() -> None:
    # Files are read at the edge; the core gets what is in them.
    read = {TaskSubmitted, FileReloaded}
    assert {*EVENT_BY_COMMAND.values(), *read} == set(get_args(Request))


def test_values_are_taken_over_and_empty_targets_are_left_to_the_core() -> None:
    rejected = wire.RejectPlan(request_id="r", actor="ann", plan="P-1", revision=2)
    assert event_of(rejected) == PlanRejected("r", "ann", "P-1", 2, "")
    drill = wire.RunDrill(
        request_id="r", actor="ann", drill="kill-rank", task="", rank=0, node="n1"
    )
    assert event_of(drill) == DrillRequested("r", "ann", "kill-rank", None, 0, NodeId("n1"))
