"""What is counted while a controller runs: iterations, lost worker-seconds, phases of incidents."""

import pytest

from controller.api.views import (
    ClusterView,
    IncidentState,
    OrderView,
    RehearsedCureView,
    StepView,
    TaskPhase,
    TransitionView,
)
from controller.core.instructions import Announce
from controller.metrics.metric_names import LOST_TO
from controller.metrics.run_counters import RunCounters
from tests.fakes import cluster_views

CALM = cluster_views.calm(100.0)


def value(counters: RunCounters, name: str, *labels: str) -> float:
    """Return a value; 0 if nothing was counted."""
    for family in counters.families():
        for sample in family.samples:
            if sample.name == name and tuple(sample.labels.values()) == labels:
                return sample.value
    return 0.0


def iteration(task: str, duration_s: float | None, *, is_rerun: bool = False) -> Announce:
    facts = (("duration_s", duration_s), ("is_rerun", is_rerun))
    return Announce(1, "trace", "iteration", task, "iteration", facts)


def with_task(now: float, phase: TaskPhase, **changes: object) -> ClusterView:
    first, *others = CALM.tasks
    task = first.model_copy(update={"phase": phase, **changes})
    return CALM.model_copy(update={"now": now, "tasks": [task, *others], "incidents": []})


def test_new_iterations_are_productive_and_others_are_lost() -> None:
    counters = RunCounters()
    counters.observe(99.0, iteration("gpt-a", 50.0))  # before the first look nothing counts
    counters.look(CALM)
    counters.observe(101.0, iteration("gpt-a", 2.0))
    counters.observe(103.0, iteration("gpt-a", 3.0))
    counters.observe(104.0, iteration("gpt-a", 0.5, is_rerun=True))
    counters.observe(104.0, iteration("gpt-a", None))
    counters.look(CALM.model_copy(update={"now": 110.0}))
    assert value(counters, "unicron_task_productive_seconds_total", "gpt-a") == 5.0
    assert value(counters, "unicron_task_wall_seconds_total", "gpt-a") == 10.0
    assert value(counters, "unicron_task_ettr_ratio", "gpt-a") == 0.5
    assert value(counters, "unicron_task_iterations_total", "gpt-a", "new") == 3
    assert value(counters, "unicron_task_iterations_total", "gpt-a", "rerun") == 1
    assert value(counters, "unicron_lost_gpu_seconds_total", "gpt-a", "recomputation") == 2.0
    assert value(counters, "unicron_task_iteration_seconds_count", "gpt-a") == 3


@pytest.mark.parametrize(
    ("phase", "state", "bucket"),
    [
        (TaskPhase.HELD, None, "waiting_for_person"),
        (TaskPhase.PARKING, IncidentState.DETECTED, "diagnosis"),
        (TaskPhase.PARKING, IncidentState.ACTING, "recovery"),
        (TaskPhase.STARTING, None, "recovery"),
        (TaskPhase.PARKING, IncidentState.HELD, "waiting_for_person"),
        (TaskPhase.STOPPED, None, "waiting_for_capacity"),
    ],
)
def test_time_without_training_is_lost_to_something(
    phase: TaskPhase, state: IncidentState | None, bucket: str
) -> None:
    counters = RunCounters()
    counters.look(CALM)
    view = with_task(103.0, phase, workers=0)
    if state is not None:
        incident = cluster_views.killed_rank(resolved_at=None)
        incidents = [incident.model_copy(update={"state": state})]
        view = view.model_copy(update={"incidents": incidents})
    counters.look(view)
    found = {b: value(counters, "unicron_lost_gpu_seconds_total", "gpt-a", b) for b in LOST_TO}
    assert found == {each: 12.0 if each == bucket else 0.0 for each in LOST_TO}


def test_a_task_that_waits_for_an_approval_waits_for_a_person() -> None:
    counters = RunCounters()
    counters.look(cluster_views.calm(120.0))
    counters.look(cluster_views.waiting(131.0))
    assert value(counters, "unicron_lost_gpu_seconds_total", "gpt-b", "waiting_for_person") == 44.0


def test_a_rehearsed_cure_waits_for_a_person_until_it_is_approved() -> None:
    counters = RunCounters()
    counters.look(CALM)
    for at, approved_at, bucket in (
        (103.0, None, "waiting_for_person"),
        (106.0, 104.0, "diagnosis"),
    ):
        rehearsed = RehearsedCureView(
            at=101.0, action="restart", reason="x", approved_at=approved_at
        )
        incident = cluster_views.killed_rank(resolved_at=None).model_copy(
            update={"state": IncidentState.DETECTED, "rehearsed": rehearsed}
        )
        view = with_task(at, TaskPhase.PARKING).model_copy(update={"incidents": [incident]})
        counters.look(view)
        assert value(counters, "unicron_lost_gpu_seconds_total", "gpt-a", bucket) == 12.0


def test_what_an_operator_has_stopped_is_no_loss() -> None:
    counters = RunCounters()
    counters.look(CALM)
    order = OrderView(what="stopped", by="eve", since=100.0)
    counters.look(with_task(200.0, TaskPhase.STOPPED, orders=[order]))
    counters.look(with_task(300.0, TaskPhase.FINISHED))
    assert value(counters, "unicron_task_wall_seconds_total", "gpt-a") == 0.0
    for bucket in LOST_TO:
        assert value(counters, "unicron_lost_gpu_seconds_total", "gpt-a", bucket) == 0.0


def test_a_start_without_a_fault_is_start_up() -> None:
    counters = RunCounters()
    counters.look(with_task(0.0, TaskPhase.STARTING))
    counters.look(with_task(5.0, TaskPhase.STARTING))
    assert value(counters, "unicron_lost_gpu_seconds_total", "gpt-a", "start_up") == 20.0


def test_an_incident_is_counted_once_and_not_if_it_was_there_before() -> None:
    counters = RunCounters()
    old = cluster_views.killed_rank()
    first = CALM.model_copy(update={"incidents": [old]})
    counters.look(first)
    new = cluster_views.lost_node(state=IncidentState.RESOLVED)
    new = new.model_copy(update={"decided_at": 128.6, "acting_at": 138.6, "resolved_at": 140.6})
    for now in (150.0, 151.0):
        counters.look(first.model_copy(update={"now": now, "incidents": [old, new]}))
    labels = ("gpt-b", "SEV1")
    assert value(counters, "unicron_incidents_total", *labels, "lost connection") == 1
    assert value(counters, "unicron_incidents_total", "gpt-a", "SEV2", "exited abnormally") == 0
    for phase, expected in (("detect", 5.6), ("decide", 1.0), ("wait", 10.0), ("act", 2.0)):
        total = value(counters, "unicron_incident_phase_seconds_sum", *labels, phase)
        assert total == pytest.approx(expected)
        assert value(counters, "unicron_incident_phase_seconds_count", *labels, phase) == 1


def test_a_transition_is_compared_with_its_prediction_once() -> None:
    steps = [StepView(name="form", predicted_s=2.0, actual_s=3.0)]
    done = TransitionView(kind="restart", steps=steps, predicted_s=2.0, actual_s=3.0, is_done=True)
    counters = RunCounters()
    counters.look(CALM)
    for now in (101.0, 102.0):
        counters.look(with_task(now, TaskPhase.RUNNING, transition=done))
    assert value(counters, "unicron_plan_prediction_error_ratio_count", "restart") == 1
    name = "unicron_plan_prediction_error_ratio_bucket"
    assert value(counters, name, "restart", "0.25") == 0
    assert value(counters, name, "restart", "0.5") == 1


def test_a_task_that_leaves_takes_its_ratio_along() -> None:
    counters = RunCounters()
    counters.look(CALM)
    counters.look(CALM.model_copy(update={"now": 101.0}))
    counters.look(CALM.model_copy(update={"now": 102.0, "tasks": CALM.tasks[1:]}))
    names = {
        sample.labels["task"]
        for family in counters.families()
        if family.name == "unicron_task_ettr_ratio"
        for sample in family.samples
    }
    assert names == {"gpt-b"}
