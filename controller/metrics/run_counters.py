"""Counts what happens while a controller runs: iterations, incidents, lost worker-seconds.

``observe`` gets every announcement, and ``look`` the view of the cluster about once a second. What
lies between two looks is charged to the later one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.metrics_core import Metric as MetricFamily
from typing_extensions import override

from controller.api.views import (
    ClusterView,
    IncidentState,
    IncidentView,
    PlanState,
    TaskPhase,
    TaskView,
)
from controller.core.instructions import Announce
from controller.metrics.metric_names import LOST_TO, METRICS
from controller.server.announcements import AnnouncementObserver

_ITERATION_BUCKETS: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
_PHASE_BUCKETS: Final = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800, 3600)
_ERROR_BUCKETS: Final = (-0.9, -0.5, -0.25, -0.1, 0.0, 0.1, 0.25, 0.5, 1, 2, 5)
_NONE: Final = "none"

# When a counter was created is nothing that anybody here asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]


@dataclass(slots=True)
class _TaskTimes:
    """What is kept of one task between looks."""

    workers: int = 0
    productive_s: float = 0.0
    wall_s: float = 0.0
    has_trained: bool = False


class RunCounters(AnnouncementObserver):
    """The counters of one controller's run, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._iterations = self._counter("unicron_task_iterations")
        self._iteration_s = self._histogram("unicron_task_iteration_seconds", _ITERATION_BUCKETS)
        self._productive_s = self._counter("unicron_task_productive_seconds")
        self._wall_s = self._counter("unicron_task_wall_seconds")
        self._ettr = Gauge(*_head("unicron_task_ettr_ratio"), registry=self.registry)
        self._lost_s = self._counter("unicron_lost_gpu_seconds")
        self._incidents = self._counter("unicron_incidents")
        self._phase_s = self._histogram("unicron_incident_phase_seconds", _PHASE_BUCKETS)
        self._error = self._histogram("unicron_plan_prediction_error_ratio", _ERROR_BUCKETS)
        self._tasks: dict[str, _TaskTimes] = {}
        self._at: float | None = None
        self._named: set[str] = set()
        self._resolved: set[str] = set()
        self._done: dict[str, object] = {}

    def _counter(self, name: str) -> Counter:
        return Counter(*_head(name), registry=self.registry)

    def _histogram(self, name: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(*_head(name), registry=self.registry, buckets=buckets)

    def families(self) -> Iterator[MetricFamily]:
        """Yield the metrics as they are now."""
        yield from self.registry.collect()

    @override
    def observe(self, at: float, announcement: Announce) -> None:
        """Count an iteration; other announcements say nothing here."""
        if announcement.kind != "iteration" or self._at is None:
            return  # nothing is charged before the first look either
        facts, task = dict(announcement.facts), announcement.source
        duration_s = facts.get("duration_s")
        is_rerun = bool(facts.get("is_rerun"))
        self._iterations.labels(task, "rerun" if is_rerun else "new").inc()
        if not isinstance(duration_s, float):
            return  # a vote has none
        self._iteration_s.labels(task).observe(duration_s)
        times = self._tasks.setdefault(task, _TaskTimes())
        if is_rerun:
            self._lost_s.labels(task, "recomputation").inc(duration_s * times.workers)
        else:
            self._productive_s.labels(task).inc(duration_s)
            times.productive_s += duration_s

    def look(self, view: ClusterView) -> None:
        """Charge the time since the last look, and count what has happened since."""
        is_first = self._at is None
        passed_s = 0.0 if self._at is None else max(0.0, view.now - self._at)
        self._at = view.now
        for task in view.tasks:
            self._charge(view, task, passed_s)
            self._count_transition(task, is_first=is_first)
        for incident in view.incidents:
            self._count_incident(incident, is_first=is_first)
        self._forget(view)

    def _charge(self, view: ClusterView, task: TaskView, passed_s: float) -> None:
        times = self._tasks.setdefault(task.name, _TaskTimes())
        if task.phase is TaskPhase.RUNNING:
            times.workers, times.has_trained = task.workers, True
        elif not times.workers:
            times.workers = task.workers
        if task.phase is TaskPhase.FINISHED or _is_stopped_by_order(task):
            return
        times.wall_s += passed_s
        self._wall_s.labels(task.name).inc(passed_s)
        if times.wall_s > 0:
            self._ettr.labels(task.name).set(min(1.0, times.productive_s / times.wall_s))
        if task.phase is not TaskPhase.RUNNING:
            bucket = _bucket(view, task, has_trained=times.has_trained)
            self._lost_s.labels(task.name, bucket).inc(passed_s * times.workers)

    def _count_transition(self, task: TaskView, *, is_first: bool) -> None:
        """Count a transition that has ended; each once."""
        found = task.transition
        if found is None or not found.is_done or self._done.get(task.name) == found:
            return
        self._done[task.name] = found
        if not is_first and found.predicted_s > 0:
            error = (found.actual_s - found.predicted_s) / found.predicted_s
            self._error.labels(found.kind).observe(error)

    def _count_incident(self, incident: IncidentView, *, is_first: bool) -> None:
        task = incident.task or _NONE
        if incident.decided_at is not None and incident.id not in self._named:
            self._named.add(incident.id)
            if not is_first:
                self._incidents.labels(task, incident.severity, incident.status).inc()
        if incident.state is not IncidentState.RESOLVED or incident.id in self._resolved:
            return
        self._resolved.add(incident.id)
        if is_first:
            return
        for phase, duration_s in incident_phases(incident):
            self._phase_s.labels(task, incident.severity, phase).observe(duration_s)

    def _forget(self, view: ClusterView) -> None:
        """Drop what is kept of incidents and tasks that the view does not show any more."""
        shown = {incident.id for incident in view.incidents}
        self._named &= shown
        self._resolved &= shown
        names = {task.name for task in view.tasks}
        for name in self._tasks.keys() - names:
            del self._tasks[name]
            self._done.pop(name, None)
            self._ettr.remove(name)


def incident_phases(incident: IncidentView) -> Iterator[tuple[str, float]]:
    """Yield the phases of a resolved incident, and how long each lasted, in seconds."""
    yield "detect", max(0.0, incident.detected_at - incident.fault_at)
    decided_at = incident.decided_at
    if decided_at is None:
        return
    yield "decide", max(0.0, decided_at - incident.detected_at)
    if incident.acting_at is None:
        return
    yield "wait", max(0.0, incident.acting_at - decided_at)
    if incident.resolved_at is not None:
        yield "act", max(0.0, incident.resolved_at - incident.acting_at)


def _head(name: str) -> tuple[str, str, tuple[str, ...]]:
    metric = METRICS[name]
    return (name, metric.meaning, metric.labels)


def _is_stopped_by_order(task: TaskView) -> bool:
    return task.phase is TaskPhase.STOPPED and any(order.what == "stopped" for order in task.orders)


def _bucket(view: ClusterView, task: TaskView, *, has_trained: bool) -> str:
    """Return what a task that does not train loses its time to: a key of ``LOST_TO``."""
    if task.phase is TaskPhase.HELD:
        return _known("waiting_for_person")
    open_states = {
        incident.state
        for incident in view.incidents
        if incident.task == task.name and incident.state is not IncidentState.RESOLVED
    }
    waits = any(
        plan.state is PlanState.PENDING
        and any(change.task == task.name and change.moves for change in plan.changes)
        for plan in view.plans
    )
    asks = any(
        incident.task == task.name
        and incident.state is not IncidentState.RESOLVED
        and incident.rehearsed is not None
        and incident.rehearsed.approved_at is None
        for incident in view.incidents
    )
    if waits or asks or IncidentState.HELD in open_states:
        return _known("waiting_for_person")
    if task.phase is TaskPhase.STOPPED:
        return _known("waiting_for_capacity")
    if IncidentState.DETECTED in open_states:
        return _known("diagnosis")
    return _known("recovery" if open_states or has_trained else "start_up")


def _known(bucket: str) -> str:
    assert bucket in LOST_TO
    return bucket
