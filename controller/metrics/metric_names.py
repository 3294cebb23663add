"""All metrics that a controller exports: name, kind, labels and meaning.

Names follow Prometheus: base units, ``_total`` for counters, and no label for a rank. Counters
begin at 0 with each controller, which Prometheus takes for a reset.
"""

from dataclasses import dataclass
from typing import Final, Literal

MetricKind = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. The name of a counter is written without its ``_total``."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    meaning: str

    @property
    def exported_name(self) -> str:
        """The name in Prometheus."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


def _table(*metrics: Metric) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics}


METRICS: Final = _table(
    Metric("unicron_build_info", "gauge", ("version",), "always 1"),
    Metric(
        "unicron_controller_is_leader", "gauge", (), "1: this controller holds the lock of its run"
    ),
    Metric("unicron_controller_term", "gauge", (), "number of this controller in its run"),
    Metric("unicron_controller_journal_bytes", "gauge", (), "size of the journal"),
    Metric("unicron_automation_stopped", "gauge", (), "1: a storm has stopped automation"),
    Metric("unicron_alerts", "gauge", ("severity",), "alerts that are not over"),
    Metric("unicron_plans_pending", "gauge", (), "plans that wait for a decision"),
    Metric("unicron_waf_flops_per_second", "gauge", (), "weighted FLOP/s of the running ranks"),
    Metric("unicron_waf_full_flops_per_second", "gauge", (), "the same with all tasks at full size"),
    Metric(
        "unicron_node_state", "gauge", ("node", "state"),
        "1 for the state of a node, 0 for all others",
    ),
    Metric("unicron_node_findings", "gauge", ("node",), "present findings of its probes"),
    Metric("unicron_workers", "gauge", ("state",), "workers: `busy`, `free` or `unusable`"),
    Metric(
        "unicron_task_phase", "gauge", ("task", "phase"), "1 for the phase of a task, 0 for others"
    ),
    Metric("unicron_task_workers", "gauge", ("task",), "workers of a task"),
    Metric("unicron_task_weight", "gauge", ("task",), "its weight in the WAF"),
    Metric("unicron_task_iteration", "gauge", ("task",), "newest committed iteration"),
    Metric("unicron_task_checkpoint_iteration", "gauge", ("task",), "that of its newest checkpoint"),
    Metric("unicron_task_loss", "gauge", ("task",), "newest loss"),
    Metric("unicron_task_flops_per_second", "gauge", ("task",), "achieved model FLOP/s"),
    Metric("unicron_task_tokens_per_second", "gauge", ("task",), "tokens per second"),
    Metric("unicron_incidents_open", "gauge", ("severity",), "incidents that are not resolved"),
    Metric(
        "unicron_task_iterations", "counter", ("task", "kind"),
        "committed iterations: `new`, or `rerun` if committed before",
    ),
    Metric("unicron_task_iteration_seconds", "histogram", ("task",), "duration of an iteration"),
    Metric(
        "unicron_task_productive_seconds", "counter", ("task",), "duration of its new iterations"
    ),
    Metric(
        "unicron_task_wall_seconds", "counter", ("task",),
        "time in which it was to train: not while an operator has stopped it",
    ),
    Metric(
        "unicron_task_ettr_ratio", "gauge", ("task",),
        "effective training time ratio since this controller began: productive by wall seconds",
    ),
    Metric(
        "unicron_lost_gpu_seconds", "counter", ("task", "bucket"),
        "worker-seconds without new iterations, by what they were lost to",
    ),
    Metric(
        "unicron_incidents", "counter", ("task", "severity", "status"), "incidents with a cause"
    ),
    Metric(
        "unicron_incident_phase_seconds", "histogram", ("task", "severity", "phase"),
        "of resolved incidents: `detect`, `decide`, `wait` (for an approval), `act`",
    ),
    Metric(
        "unicron_plan_prediction_error_ratio", "histogram", ("kind",),
        "of transitions: actual less predicted time, by the predicted one",
    ),
)  # fmt: skip
"""All metrics by name."""

LOST_TO: Final = {
    "diagnosis": "a fault was found, and its cause is not named",
    "waiting_for_person": "a plan waits for a decision, or the task is held",
    "recovery": "the task is being recovered",
    "start_up": "the task starts without a fault before",
    "waiting_for_capacity": "no workers are left for the task",
    "recomputation": "iterations that were committed before run again",
}
"""Buckets of lost worker-seconds, and their meanings."""
