"""From a cluster file to the controller config: the sibling of the demo's ``demo_config``."""

from dataclasses import replace

from controller.clusterfile.cluster_reader import Cluster
from controller.core.rules.policy import Policy
from controller.server.controller_config import ControllerConfig
from controller.server.profile_tasks import TrainingOptions, task_programs, task_spec


def cluster_config(cluster: Cluster, policy: Policy) -> ControllerConfig:
    """Return the controller config of a cluster file.

    Args:
        cluster: The file.
        policy: The policy that holds: the file's, perhaps with options of the command line.
    """
    training = TrainingOptions(cluster.checkpoints, cluster.data, cluster.seed, num_iterations=None)
    return ControllerConfig(
        addresses=[
            replace(node.address, has_template=cluster.has_template) for node in cluster.nodes
        ],
        tasks=[task_spec(task, None) for task in cluster.tasks],
        programs=task_programs(cluster.tasks, training),
        policy=policy,
        failure_domains={
            node.address.node: node.failure_domain for node in cluster.nodes if node.failure_domain
        },
        backend="nccl" if cluster.has_gpus else "gloo",
    )
