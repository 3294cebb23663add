"""Gauges of the view of the cluster: what is so now. A pure function of the view."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric as MetricFamily

from controller.alerts.present_alerts import present_alerts
from controller.api.views import (
    ClusterView,
    IncidentState,
    NodeCondition,
    NodeView,
    PlanState,
    TaskPhase,
    TaskView,
)
from controller.metrics.metric_names import METRICS

_UPKEEP: Final = ("cordoned", "draining", "drained", "repair", "returning")
_STATES: Final = (
    *(each.value for each in NodeCondition if each is not NodeCondition.REMOVED),
    "isolated",
    *_UPKEEP,
)
_SEVERITIES: Final = ("SEV1", "SEV2", "SEV3")
_Samples = Iterable[tuple[tuple[str, ...], float | None]]


def view_metrics(view: ClusterView) -> Iterator[MetricFamily]:
    """Yield the gauges of a view."""
    yield from _of_controller(view)
    yield from _of_nodes(view.nodes)
    yield from _of_tasks(view.tasks)
    opened = Counter(
        each.severity for each in view.incidents if each.state is not IncidentState.RESOLVED
    )
    yield _gauge("unicron_incidents_open", (((name,), opened[name]) for name in _SEVERITIES))


def _gauge(name: str, samples: _Samples) -> GaugeMetricFamily:
    """Return a gauge. A value that is not known has no sample."""
    metric = METRICS[name]
    family = GaugeMetricFamily(name, metric.meaning, labels=metric.labels)
    for labels, value in samples:
        if value is not None:
            family.add_metric(labels, value)
    return family


def _of_controller(view: ClusterView) -> Iterator[MetricFamily]:
    alerts: Counter[str] = Counter(
        each.severity for each in present_alerts(view) if not each.is_over
    )
    found = view.controller
    single: dict[str, float | None] = {
        "unicron_controller_is_leader": 1,
        "unicron_controller_term": found.term if found else None,
        "unicron_controller_journal_bytes": found.journal_bytes if found else None,
        "unicron_automation_stopped": bool(view.automation_stopped),
        "unicron_plans_pending": sum(each.state is PlanState.PENDING for each in view.plans),
        "unicron_waf_flops_per_second": view.waf,
        "unicron_waf_full_flops_per_second": view.waf_full,
    }
    yield _gauge("unicron_build_info", [((version("unicron"),), 1)])
    for name, value in single.items():
        yield _gauge(name, [((), value)])
    severities = ("info", "warning", "critical")
    yield _gauge("unicron_alerts", (((name,), alerts[name]) for name in severities))


def _of_nodes(nodes: Iterable[NodeView]) -> Iterator[MetricFamily]:
    known = [node for node in nodes if node.condition is not NodeCondition.REMOVED]
    yield _gauge(
        "unicron_node_state",
        (
            ((node.node, state), state == now)
            for node in known
            for now in (_state(node),)
            for state in _STATES
        ),
    )
    yield _gauge("unicron_node_findings", (((node.node,), len(node.findings)) for node in known))
    workers = Counter(
        "busy" if slot.task is not None else "free" if _takes_new(node) and not slot.isolated
        else "unusable"
        for node in known
        for slot in node.workers
    )  # fmt: skip
    yield _gauge(
        "unicron_workers", (((name,), workers[name]) for name in ("busy", "free", "unusable"))
    )


def _state(node: NodeView) -> str:
    """Return the one state of a node that counts."""
    if node.isolated:
        return "isolated"
    if node.condition is NodeCondition.HEALTHY and node.upkeep is not None:
        return node.upkeep.state
    return node.condition.value


def _takes_new(node: NodeView) -> bool:
    return node.condition is NodeCondition.HEALTHY and not node.isolated and node.upkeep is None


def _of_tasks(tasks: list[TaskView]) -> Iterator[MetricFamily]:
    yield _gauge(
        "unicron_task_phase",
        (
            ((task.name, phase.value), task.phase is phase)
            for task in tasks
            for phase in TaskPhase
        ),
    )  # fmt: skip
    values: dict[str, Callable[[TaskView], float | None]] = {
        "unicron_task_workers": lambda task: task.workers,
        "unicron_task_weight": lambda task: task.weight,
        "unicron_task_iteration": lambda task: task.iteration,
        "unicron_task_checkpoint_iteration": lambda task: task.checkpoint_iteration,
        "unicron_task_loss": lambda task: math.nan if task.loss is None else task.loss,
        "unicron_task_flops_per_second": lambda task: task.flops_per_s,
        "unicron_task_tokens_per_second": lambda task: task.tokens_per_s,
    }
    for name, value in values.items():
        yield _gauge(name, (((task.name,), value(task)) for task in tasks))
