"""The gauges of the scripted cluster, and that all metrics are in the one table."""

import math
import re
from pathlib import Path

import pytest

from controller.alerts.present_alerts import present_alerts
from controller.api.views import ClusterView, TaskPhase, UpkeepView
from controller.metrics.metric_names import LOST_TO, METRICS
from controller.metrics.run_counters import RunCounters
from controller.metrics.view_metrics import view_metrics
from tests.fakes import cluster_views

PAGE = Path(__file__).parents[3] / "docs" / "operations" / "metrics.md"


def samples(view: ClusterView) -> dict[tuple[str, ...], float]:
    """Return the values by name and labels."""
    return {
        (each.name, *each.labels.values()): each.value
        for family in view_metrics(view)
        for each in family.samples
    }


def test_a_lost_node_shows_in_the_gauges() -> None:
    view = cluster_views.waiting()
    found = samples(view)
    assert found["unicron_node_state", "n4", "lost"] == 1
    assert found["unicron_node_state", "n4", "healthy"] == 0
    assert found["unicron_node_state", "n1", "healthy"] == 1
    assert found["unicron_plans_pending",] == 1
    assert found["unicron_incidents_open", "SEV1"] == 1
    assert found["unicron_incidents_open", "SEV2"] == 0
    assert found["unicron_alerts", "critical"] == 1
    assert found["unicron_task_iteration", "gpt-a"] == 139
    assert found["unicron_waf_flops_per_second",] == 2.0e9
    assert (found["unicron_workers", "busy"], found["unicron_workers", "unusable"]) == (6, 2)


@pytest.mark.parametrize("view", [cluster_views.calm(), cluster_views.waiting()])
def test_each_node_has_one_state_and_each_task_one_phase(view: ClusterView) -> None:
    found = samples(view)
    for node in view.nodes:
        values = [v for key, v in found.items() if key[:2] == ("unicron_node_state", node.node)]
        assert sorted(values) == [0] * (len(values) - 1) + [1]
    for task in view.tasks:
        values = [v for key, v in found.items() if key[:2] == ("unicron_task_phase", task.name)]
        assert sum(values) == 1
        assert len(values) == len(TaskPhase)


def test_upkeep_is_the_state_of_a_node_in_contact() -> None:
    calm = cluster_views.calm()
    drained = calm.nodes[0].model_copy(
        update={"upkeep": UpkeepView(state="drained", by="eve", since=1.0), "workers": []}
    )
    found = samples(calm.model_copy(update={"nodes": [drained, *calm.nodes[1:]]}))
    assert found["unicron_node_state", "n1", "drained"] == 1
    assert found["unicron_node_state", "n1", "healthy"] == 0


def test_what_is_not_known_has_no_sample_and_a_loss_may_be_nan() -> None:
    calm = cluster_views.calm()
    task = calm.tasks[0].model_copy(update={"flops_per_s": None, "loss": float("nan")})
    found = samples(calm.model_copy(update={"tasks": [task]}))
    assert ("unicron_task_flops_per_second", "gpt-a") not in found
    assert math.isnan(found["unicron_task_loss", "gpt-a"])


def test_the_table_has_every_metric_and_no_other() -> None:
    families = [*view_metrics(cluster_views.waiting()), *RunCounters().families()]
    assert {family.name for family in families} == METRICS.keys()
    for family in families:
        metric = METRICS[family.name]
        assert family.documentation == metric.meaning
        assert family.type == metric.kind
        for sample in family.samples:
            assert tuple(name for name in sample.labels if name != "le") == metric.labels


def test_the_page_has_the_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [
        (each.exported_name, each.kind, ", ".join(f"`{n}`" for n in each.labels), each.meaning)
        for each in METRICS.values()
    ]
    buckets = re.findall(r"^\| `(\w+)` \| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE)
    assert dict(buckets) == LOST_TO


def test_alerts_are_counted_as_they_are_shown() -> None:
    view = cluster_views.waiting()
    shown = [each.severity for each in present_alerts(view) if not each.is_over]
    found = samples(view)
    for severity in ("info", "warning", "critical"):
        assert found["unicron_alerts", severity] == shown.count(severity)
