"""The tables of states are total and lead somewhere."""

from collections.abc import Mapping
from enum import StrEnum

import pytest

from controller.core.state.phases import (
    INCIDENT_CHANGES,
    NODE_CHANGES,
    PLAN_CHANGES,
    TASK_CHANGES,
    IncidentState,
    InvariantViolationError,
    NodeCondition,
    PlanState,
    TaskPhase,
    advance,
)

TABLES = [
    (NODE_CHANGES, NodeCondition),
    (TASK_CHANGES, TaskPhase),
    (INCIDENT_CHANGES, IncidentState),
    (PLAN_CHANGES, PlanState),
]


@pytest.mark.parametrize(("table", "states"), TABLES)
def test_every_table_is_total_over_its_states(
    table: Mapping[StrEnum, frozenset[StrEnum]], states: type[StrEnum]
) -> None:
    assert set(table) == set(states)


@pytest.mark.parametrize(("table", "states"), TABLES)
def test_every_state_can_be_reached_from_the_first(
    table: Mapping[StrEnum, frozenset[StrEnum]], states: type[StrEnum]
) -> None:
    reached = {next(iter(states))}
    while more := {then for state in reached for then in table[state]} - reached:
        reached |= more
    assert reached == set(states)


def test_a_healthy_node_is_never_lost_without_being_unreachable_first() -> None:
    with pytest.raises(InvariantViolationError, match="n2 can't go from healthy to lost"):
        advance(NODE_CHANGES, NodeCondition.HEALTHY, NodeCondition.LOST, "n2")


def test_a_resolved_incident_stays_resolved() -> None:
    with pytest.raises(InvariantViolationError):
        advance(INCIDENT_CHANGES, IncidentState.RESOLVED, IncidentState.ACTING, "I-1")
