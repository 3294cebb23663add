"""Small clusters for tests of the core."""

from collections.abc import Mapping

from controller.core.cluster_spec import ClusterSpec
from controller.core.machine import Machine
from controller.core.membership.file_changes import WantedCluster
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.layout import Layout
from profiles.task_profiles import default_task_profiles
from profiles.throughput import ThroughputPoint, ThroughputTable


def table(rate_by_size: dict[int, float], tp: int = 1) -> ThroughputTable:
    """Return a throughput table with data-parallel layouts on top of ``tp``."""
    return ThroughputTable(
        points=tuple(
            ThroughputPoint(workers=size, flops_per_s=rate, layout=Layout(tp=tp, dp=size // tp))
            for size, rate in rate_by_size.items()
        )
    )


def wanted_of(machine: Machine) -> WantedCluster:
    """Return what a machine was made of."""
    state = machine.state
    return WantedCluster(
        nodes={name: node.spec for name, node in state.nodes.items()},
        tasks={name: task.spec for name, task in state.tasks.items()},
        policy=machine.policy,
    )


def spec_of(machine: Machine) -> ClusterSpec:
    """Return the same as a cluster spec."""
    wanted = wanted_of(machine)
    nodes, tasks = tuple(wanted.nodes.values()), tuple(wanted.tasks.values())
    return ClusterSpec(nodes, tasks, wanted.policy)


def demo_machine(
    *,
    is_auto_heal: bool = True,
    num_nodes: int = 4,
    policy: Policy | None = None,
    num_iterations: int | None = None,
    is_sharded: bool = False,
    makes_copies: bool = True,
    failure_domains: Mapping[str, str] | None = None,
) -> Machine:
    """Return a machine over the demo's tasks and nodes ``n1``.. of two workers."""
    return Machine(
        [
            NodeSpec(
                NodeId(f"n{i}"),
                f"127.0.0.1:{2200 + i}",
                2,
                (failure_domains or {}).get(f"n{i}", ""),
            )
            for i in range(1, num_nodes + 1)
        ],
        [
            TaskSpec(
                task=TaskId(profile.name),
                weight=profile.weight,
                workers=profile.workers,
                min_workers=profile.min_workers,
                table=profile.throughput,
                flops_per_iteration=1e9,
                num_iterations=num_iterations,
                num_micro_batches=profile.num_micro_batches,
                is_sharded=is_sharded,
                makes_copies=makes_copies,
            )
            for profile in default_task_profiles()
        ],
        policy or Policy(is_auto_heal=is_auto_heal),
    )
