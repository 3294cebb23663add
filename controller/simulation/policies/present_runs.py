"""Runs that begin with a real cluster as it is now: its nodes, its tasks at their present sizes, and its policy.

What breaks, and how long everything takes, is a scenario's. Where none is given, nodes break as often as the policy
tells the planner that they do, for four weeks, with the times of ``trace-a``.
"""

from typing import Final

from controller.core.cluster_spec import ClusterSpec
from controller.core.state.task import TaskSpec
from controller.simulation.policies.baselines import BASELINES
from controller.simulation.policies.comparison import APPROVED, UNICRON
from controller.simulation.scenarios.estimated_tables import Profile
from controller.simulation.scenarios.scenario import FaultRates, Scenario, ScenarioTask, Values
from controller.simulation.scenarios.scenario_file import load_scenario
from controller.simulation.world.initial_setup import InitialSetup
from profiles.records import RecordError

POLICIES_OF_CLUSTERS: Final = (UNICRON, APPROVED)
"""Those that are run where none is named."""

_WITH_ITS_TABLES: Final = ("megatron", "megatron-standby", "megatron-elastic")
"""Baselines that know of a task what a cluster's table tells; they give whole nodes."""

_DAYS: Final = 28.0
_PER_SEV1: Final = {"node_lost": 0.5, "hardware": 0.5, "process": 0.8, "network": 2.5}
"""Faults of each kind to one of SEV1, as in ``trace-a``."""


def setup_of_cluster(scenario: Scenario | None, spec: ClusterSpec) -> InitialSetup:
    """Return what runs of a cluster begin with.

    Args:
        scenario: What breaks, and how long everything takes.
        spec: The cluster as it is now.

    Raises:
        RecordError: It has no task or no node, nodes of several sizes, or tasks that do not fit.
    """
    sizes = sorted({node.num_workers for node in spec.nodes})
    if not spec.tasks or not sizes:
        raise RecordError("the cluster: nothing trains there now; there is nothing to rehearse")
    if len(sizes) > 1:
        words = ", ".join(map(str, sizes))
        raise RecordError(f"the cluster: its nodes have {words} workers; they must be alike")
    try:
        spec.machine()
    except ValueError as error:
        raise RecordError(
            f"the cluster: {error}; have its plan applied first, if one waits"
        ) from error
    base = scenario or _own_faults(load_scenario("trace-a"), spec)
    return InitialSetup(
        scenario=_on_cluster(base, spec),
        profiles=tuple(sorted(map(_profile, spec.tasks), key=lambda each: each.task.name)),
        split={str(task.task): task.workers for task in spec.tasks},
        policy=spec.policy,
    )


def check_policies(policies: list[str], setup: InitialSetup) -> None:
    """Refuse policies that can't be run with a cluster's tables.

    Raises:
        RecordError: One of them can't.
    """
    per_node = setup.scenario.values.workers_per_node
    for name in policies:
        if name not in BASELINES:
            continue
        if name not in _WITH_ITS_TABLES:
            known = ", ".join((*POLICIES_OF_CLUSTERS, *_WITH_ITS_TABLES))
            raise RecordError(f"--policy {name}: needs models; with a cluster there are {known}")
        for task, size in setup.split.items():
            if size % per_node:
                raise RecordError(
                    f"--policy {name}: gives whole nodes, and {task} has {size} workers on nodes of"
                    f" {per_node}"
                )


def _own_faults(base: Scenario, spec: ClusterSpec) -> Scenario:
    """Return a scenario in which nodes break as often as the policy says."""
    per_worker_hour = 3600.0 / spec.policy.worker_mtbf_s
    per_node = 24_000.0 * spec.nodes[0].num_workers * per_worker_hour
    faults = FaultRates(kind="rates", **{kind: n * per_node for kind, n in _PER_SEV1.items()})
    values = base.values.model_copy(update={"days": _DAYS, "faults": faults})
    origins = base.origins | {"days": "ours", "faults": "cluster"}
    title = "four weeks of faults as often as its policy says"
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
        global_batch=spec.num_micro_batches,
    )


def _profile(spec: TaskSpec) -> Profile:
    # Of a command nothing is known but its rate; its iterations are taken to last a second.
    flops = spec.flops_per_iteration or spec.table.flops_per_s(spec.workers)
    return Profile(_task(spec), spec.table, flops)
