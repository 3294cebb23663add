"""From a cluster file to the controller config."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from controller.clusterfile.cluster_reader import Cluster
from controller.clusterfile.file_mistakes import ClusterFileError
from controller.clusterfile.task_file import tasks_of
from controller.core.rules.policy import Policy
from controller.core.specs import TaskSpec
from controller.server.compactor import Retention
from controller.server.controller_config import ControllerConfig
from controller.server.profile_tasks import TrainingOptions, task_programs, task_spec
from controller.server.server_hooks import SubmissionError
from controller.workdirs.workdir_store import NAME, WorkdirStore
from controller.workdirs.workdir_version import WorkdirError, WorkdirVersion, read_version


def take_workdirs(cluster: Cluster) -> dict[str, WorkdirVersion]:
    """Read the folders of tasks that are copied to nodes; return a version of each.

    Raises:
        WorkdirError: A folder can't be copied. The text begins with the task's name.
    """
    found: dict[str, WorkdirVersion] = {}
    for task in cluster.tasks:
        if task.workdir and not task.shared and task.workdir not in found:
            try:
                found[task.workdir] = read_version(Path(task.workdir))
            except WorkdirError as error:
                raise WorkdirError(f"task {task.name}: {error}") from error
    return found


def keep_workdirs(cluster: Cluster) -> dict[str, str]:
    """Keep the folders that ``take_workdirs`` reads in the run directory; return their versions.

    Raises:
        WorkdirError: A folder can't be copied.
        OSError: The run directory can't be written.
    """
    store = WorkdirStore(cluster.run_dir / NAME)
    versions = {}
    for folder, version in take_workdirs(cluster).items():
        store.keep(version)
        versions[folder] = version.digest
    return versions


def submitted_specs(cluster: Cluster, path: Path, text: str) -> list[TaskSpec]:
    """Return the tasks of a submitted file, whose folders are kept in the run directory.

    Args:
        cluster: The cluster file that the controller runs.
        path: Where the file is, or was.
        text: What it says.

    Raises:
        SubmissionError: Something is wrong with it; the text has a line for each mistake.
    """
    try:
        further = replace(cluster, tasks=tuple(tasks_of(path, text)))
        config = cluster_config(further, cluster.policy, keep_workdirs(further))
    except (ClusterFileError, WorkdirError, OSError) as error:
        raise SubmissionError(str(error)) from error
    return list(config.wanted().tasks.values())


def cluster_config(
    cluster: Cluster, policy: Policy, workdirs: Mapping[str, str] | None = None
) -> ControllerConfig:
    """Return the controller config of a cluster file.

    Args:
        cluster: The file.
        policy: The policy that holds: the file's, perhaps with options of the command line.
        workdirs: By folder, the version that is copied to nodes (``keep_workdirs``).
    """
    training = TrainingOptions(cluster.checkpoints, cluster.data, cluster.seed, num_iterations=None)
    return ControllerConfig(
        addresses=[
            replace(node.address, has_template=cluster.has_template) for node in cluster.nodes
        ],
        tasks=[task_spec(task, None) for task in cluster.tasks],
        programs=task_programs(cluster.tasks, training, workdirs),
        policy=policy,
        failure_domains={
            node.address.node: node.failure_domain for node in cluster.nodes if node.failure_domain
        },
        backend="nccl" if cluster.has_gpus else "gloo",
        retention=Retention(cluster.keep_mb, cluster.keep_days),
    )
