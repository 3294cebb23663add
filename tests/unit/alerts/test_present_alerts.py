"""What a person is told of a cluster, from the views of the scripted cluster."""

from dataclasses import replace
from typing import Any

import pytest

from controller.alerts.present_alerts import harmless, present_alerts
from controller.api.views import (
    ClusterView,
    IncidentState,
    IncidentView,
    NodeCondition,
    OrderView,
    TaskPhase,
    UpkeepView,
)
from tests.fakes import cluster_views

CALM = cluster_views.calm()


def found(view: ClusterView) -> dict[str, str]:
    """Return the severities of the alerts that are not over, by key, in their order."""
    return {each.key: each.severity for each in present_alerts(view) if not each.is_over}


def with_node(**changes: object) -> ClusterView:
    first, *others = CALM.nodes
    return CALM.model_copy(update={"nodes": [first.model_copy(update=changes), *others]})


def with_task(**changes: object) -> ClusterView:
    first, *others = CALM.tasks
    return CALM.model_copy(update={"tasks": [first.model_copy(update=changes), *others]})


def with_incidents(*incidents: IncidentView) -> ClusterView:
    return CALM.model_copy(update={"incidents": list(incidents)})


def test_a_cured_fault_is_over() -> None:
    (alert,) = present_alerts(CALM)
    assert (alert.key, alert.severity, alert.is_over) == ("incident INC-1", "info", True)
    assert dict(alert.facts)["done"] == "cured by restart"
    assert dict(alert.facts)["since"] == "2025-12-31 14:00:37 UTC, found after 0.3 s"


def test_a_lost_node_whose_plan_waits_has_all_that_a_person_needs() -> None:
    view = cluster_views.waiting()
    assert found(view) == {
        "plan P-2:1": "critical",
        "lost n4": "warning",
        "incident INC-2": "warning",
    }
    plan = present_alerts(view)[0]
    assert plan.title == "plan P-2:1 waits for an approval"
    facts = dict(plan.facts)
    assert facts["what"] == "gpt-b 4 -> 2 workers"
    assert "n4 is lost" in facts["why"]
    assert facts["needs"].startswith("your decision")
    assert plan.commands == (
        "unicron explain P-2",
        "unicron approve P-2:1",
        "unicron reject P-2:1",
    )


def test_a_plan_that_counts_down_pages_nobody() -> None:
    plan = cluster_views.plan(apply_at=CALM.now + 60)
    view = CALM.model_copy(update={"plans": [plan]})
    assert found(view) == {"plan P-2:1": "warning"}
    assert present_alerts(view)[0].title == "plan P-2:1 is applied at 2025-12-31 14:02:40 UTC"


def test_an_incident_that_waits_for_a_person_is_critical_and_one_that_is_cured_is_not() -> None:
    acting = cluster_views.killed_rank(resolved_at=None)
    held = acting.model_copy(update={"state": IncidentState.HELD})
    drill = held.model_copy(update={"is_drill": True})
    unnamed = acting.model_copy(update={"state": IncidentState.DETECTED})
    assert found(with_incidents(acting)) == {"incident INC-1": "info"}
    assert found(with_incidents(held)) == {"incident INC-1": "critical"}
    assert found(with_incidents(drill)) == {"incident INC-1": "info"}
    assert found(with_incidents(unnamed)) == {}


def test_a_held_task_is_told_once_with_the_way_out() -> None:
    held = with_task(phase=TaskPhase.HELD, note="three restarts did not help")
    assert found(held)["task gpt-a held"] == "critical"
    incident = cluster_views.killed_rank(resolved_at=None)
    incident = incident.model_copy(update={"state": IncidentState.HELD})
    both = held.model_copy(update={"incidents": [incident]})
    assert found(both) == {"incident INC-1": "critical"}
    assert present_alerts(both)[0].commands[-1] == "unicron start gpt-a"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"isolated": "INC-7: two GPUs lost"}, {"isolated n1": "warning"}),
        (
            {"isolated": "INC-7", "upkeep": UpkeepView(state="repair", by="eve", since=1.0)},
            {},
        ),
        ({"asked_at": 90.0}, {"question n1": "critical"}),
        ({"findings": ["disk: /ckpt has 2 % free"]}, {"findings n1": "warning"}),
        ({"condition": NodeCondition.LOST}, {"lost n1": "warning"}),
        ({"condition": NodeCondition.UNREACHABLE}, {}),
    ],
)
def test_a_node_is_told_of_when_somebody_has_to_look(
    changes: dict[str, Any], expected: dict[str, str]
) -> None:
    assert found(with_node(**changes)) == expected


def test_a_gpu_that_is_isolated_alone_is_named() -> None:
    slots = list(CALM.nodes[0].workers)
    slots[1] = replace(slots[1], isolated="INC-9: illegal memory access, twice")
    alert = next(each for each in present_alerts(with_node(workers=slots)) if not each.is_over)
    assert alert.title == "GPU n1:1 is isolated"
    assert alert.commands == ("unicron uncordon n1:1",)


def test_a_stopped_task_is_told_of_unless_somebody_ordered_it() -> None:
    assert found(with_task(phase=TaskPhase.STOPPED)) == {"task gpt-a stopped": "warning"}
    order = OrderView(what="stopped", by="eve", since=3.0)
    assert found(with_task(phase=TaskPhase.STOPPED, orders=[order])) == {}
    assert found(with_task(phase=TaskPhase.FINISHED)) == {"task gpt-a finished": "info"}


def test_a_storm_comes_first() -> None:
    view = cluster_views.waiting().model_copy(update={"automation_stopped": "9 nodes in an hour"})
    assert list(found(view))[:2] == ["automation", "plan P-2:1"]
    assert present_alerts(view)[0].commands[-1] == "unicron resume"


def test_words_of_ranks_are_harmless() -> None:
    incident = cluster_views.killed_rank(resolved_at=None)
    nasty = incident.model_copy(update={"reason": "@everyone <!channel>\x1b[2J\n" + "x" * 9000})
    what = dict(present_alerts(with_incidents(nasty))[0].facts)["what"]
    assert what.isprintable()
    assert "@" not in what
    assert "<!" not in what
    assert len(what) < 500
    assert harmless("loss is NaN") == "loss is NaN"
