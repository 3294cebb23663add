"""Runs that start with a copy of a real cluster: its nodes, its tasks, and its policy.

A scenario gives the faults and all durations. Without one, nodes fail at the rate that the
cluster's policy assumes, for four weeks, with the durations of ``trace-a``.
"""

from typing import Final

from controller.core.cluster_spec import ClusterSpec
from controller.core.specs import TaskSpec
from controller.simulation.policies.baselines import BASELINES
from controller.simulation.policies.comparison import APPROVED, UNICRON
from controller.simulation.scenarios.estimated_tables import Profile
from controller.simulation.scenarios.scenario import FaultRates, Scenario, ScenarioTask, Values
from controller.simulation.scenarios.scenario_file import load_scenario
from controller.simulation.world.initial_setup import InitialSetup
from profiles.records import RecordError

POLICIES_OF_CLUSTERS: Final = (UNICRON, APPROVED)
"""The default policies for a cluster."""

_WITH_ITS_TABLES: Final = ("megatron", "megatron-standby", "megatron-elastic")
"""Baselines that need only a cluster's throughput tables. They assign whole nodes."""

_DAYS: Final = 28.0
_PER_SEV1: Final = {"node_lost": 0.5, "hardware": 0.5, "process": 0.8, "network": 2.5}
"""Faults of each kind per SEV1 fault, as in ``trace-a``."""


def setup_of_cluster(scenario: Scenario | None, spec: ClusterSpec) -> InitialSetup:
    """Return the setup of runs that start with a cluster.

    Args:
        scenario: The faults and durations; None for the cluster's own fault rate.
        spec: The present cluster.

    Raises:
        RecordError: The cluster has no task or no node, nodes of several sizes, or tasks that do
            not fit.
    """
    sizes = sorted({node.num_workers for node in spec.nodes})
    if not spec.tasks or not sizes:
        raise RecordError("the cluster: no task trains there now, so there is nothing to simulate")
    if len(sizes) > 1:
        words = ", ".join(map(str, sizes))
        raise RecordError(
            f"the cluster: its nodes have {words} workers; all must have the same number"
        )
    try:
        spec.machine()
    except ValueError as error:
        raise RecordError(
            f"the cluster: {error}; if a plan waits for approval, apply it first"
        ) from error
    base = scenario or _own_faults(load_scenario("trace-a"), spec)
    return InitialSetup(
        scenario=_on_cluster(base, spec),
        profiles=tuple(sorted(map(_profile, spec.tasks), key=lambda each: each.task.name)),
        split={str(task.task): task.workers for task in spec.tasks},
        policy=spec.policy,
    )


def check_policies(policies: list[str], setup: InitialSetup) -> None:
    """Refuse policies that can't run with a cluster's tables.

    Raises:
        RecordError: One of the policies can't.
    """
    per_node = setup.scenario.values.workers_per_node
    for name in policies:
        if name not in BASELINES:
            continue
        if name not in _WITH_ITS_TABLES:
            known = ", ".join((*POLICIES_OF_CLUSTERS, *_WITH_ITS_TABLES))
            raise RecordError(f"--policy {name}: needs models; with a cluster use one of {known}")
        for task, size in setup.split.items():
            if size % per_node:
                raise RecordError(
                    f"--policy {name}: assigns whole nodes, but {task} has {size} workers on nodes of"
                    f" {per_node}; leave out this policy"
                )


def _own_faults(base: Scenario, spec: ClusterSpec) -> Scenario:
    """Return a scenario in which nodes fail at the rate that the policy assumes."""
    per_worker_hour = 3600.0 / spec.policy.worker_mtbf_s
    per_node = 24_000.0 * spec.nodes[0].num_workers * per_worker_hour
    faults = FaultRates(kind="rates", **{kind: n * per_node for kind, n in _PER_SEV1.items()})
    values = base.values.model_copy(update={"days": _DAYS, "faults": faults})
    origins = base.origins | {"days": "ours", "faults": "cluster"}
    title = "four weeks of faults at the rate of its policy"
    return base.model_copy(
        update={"name": "cluster", "title": title, "values": values, "origins": origins}
    )


def _on_cluster(base: Scenario, spec: ClusterSpec) -> Scenario:
    own = {
        "nodes": len(spec.nodes),
        "standby_nodes": 0,
        "workers_per_node": spec.nodes[0].num_workers,
        "gpus_per_worker": 1,
        "tasks": [_task(task) for task in spec.tasks],
        "worker_mtbf_hours": spec.policy.worker_mtbf_s / 3600.0,
    }
    values: Values = base.values.model_copy(update=own)
    return base.model_copy(
        update={
            "title": f"{base.title}; on the {len(spec.nodes)} nodes of the cluster",
            "values": values,
            "origins": base.origins | dict.fromkeys(own, "cluster"),
        }
    )


def _task(spec: TaskSpec) -> ScenarioTask:
    return ScenarioTask(
        name=spec.task,
        model="of the cluster",
        weight=spec.weight,
        min_workers=spec.min_workers,
        keeps_running=spec.keeps_running,
        global_batch=spec.num_micro_batches,
    )


def _profile(spec: TaskSpec) -> Profile:
    # Only the rate of a command task is known, so its iterations are assumed to last a second.
    flops = spec.flops_per_iteration or spec.table.flops_per_s(spec.workers)
    return Profile(_task(spec), spec.table, flops)
