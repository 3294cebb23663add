"""From a cluster file to the controller config.

A task profile becomes a task of the controller: the core's spec, and the program of the ranks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from controller.clusterfile.cluster_reader import Cluster
from controller.clusterfile.file_mistakes import ClusterFileError
from controller.clusterfile.task_collection import tasks_of
from controller.core.rules.policy import Policy
from controller.core.specs import TaskSpec
from controller.server.compactor import Retention
from controller.server.controller_config import ControllerConfig
from controller.server.rank_launches import CommandLaunch, TaskProgram
from controller.server.server_hooks import SubmissionError
from controller.workdirs.workdir_store import NAME, WorkdirStore
from controller.workdirs.workdir_version import WorkdirError, WorkdirVersion, read_version
from nodeagent.protocol.ids import TaskId
from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.task_profiles import TaskProfile
from profiles.training_program import TrainingSettings


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
        programs=_task_programs(cluster.tasks, training, workdirs),
        policy=policy,
        failure_domains={
            node.address.node: node.failure_domain for node in cluster.nodes if node.failure_domain
        },
        backend="nccl" if cluster.has_gpus else "gloo",
        retention=Retention(cluster.keep_mb, cluster.keep_days),
    )


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Options that hold for every task of a run.

    Attributes:
        checkpoints: Directory of the checkpoints, shared by all nodes; each task has a folder in
            it.
        data_path: Text to train on; empty for the built-in one.
        seed: Seed of weights and data.
        num_iterations: A training loop ends after this many iterations, whatever its profile says;
            None leaves it to the profile. A command decides by itself when it ends.
    """

    checkpoints: Path
    data_path: str
    seed: int
    num_iterations: int | None


def task_spec(profile: TaskProfile, num_iterations: int | None) -> TaskSpec:
    """Return a task as the core knows it."""
    model, command = profile.model, profile.command
    num_samples = profile.num_micro_batches * profile.micro_batch_size
    return TaskSpec(
        task=TaskId(profile.name),
        weight=profile.weight,
        workers=profile.workers,
        min_workers=profile.min_workers,
        table=profile.throughput,
        flops_per_iteration=model.flops_per_sample() * num_samples if model else 0.0,
        num_iterations=_last_iteration(profile, num_iterations),
        num_micro_batches=profile.num_micro_batches,
        is_sharded=profile.shard_optimizer,
        makes_copies=profile.memory_interval > 0,
        is_command=command is not None,
        start_limit_s=command.start_limit_s if command else None,
        stop_limit_s=command.stop_limit_s if command else None,
        hang_limit_s=command.hang_limit_s if command else 0.0,
        keeps_running=profile.keeps_running,
        has_floor=profile.iteration_floor_s > 0,
        long_intervals=_long_intervals(profile),
    )


def _last_iteration(profile: TaskProfile, num_iterations: int | None) -> int | None:
    if profile.command is not None:
        return None
    return profile.num_iterations if num_iterations is None else num_iterations


def _long_intervals(profile: TaskProfile) -> tuple[int, ...]:
    own = () if profile.command is not None else (profile.checkpoint_interval,)
    return (*own, *profile.long_intervals)


def _task_programs(
    profiles: Iterable[TaskProfile],
    options: TrainingOptions,
    workdirs: Mapping[str, str] | None = None,
) -> dict[TaskId, TaskProgram]:
    """Return the program of each task's ranks.

    Args:
        profiles: The tasks.
        options: What holds for all of them.
        workdirs: By folder, the version that is copied to nodes. Others are there already.
    """
    versions = workdirs or {}
    return {
        TaskId(profile.name): _program(profile, options, versions.get(profile.workdir, ""))
        for profile in profiles
    }


def _program(profile: TaskProfile, options: TrainingOptions, version: str) -> TaskProgram:
    directory = profile.checkpoint_dir or str(options.checkpoints / profile.name)
    if profile.command is not None:
        cwd = _inside(profile.workdir, profile.command.cwd) if version else profile.command.cwd
        command = profile.command.model_copy(update={"cwd": cwd})
        return CommandLaunch(command, directory, profile.num_micro_batches, version)
    program = profile.program
    if program is not None and version:
        inner = _inside(profile.workdir, program.directory)
        program = program.model_copy(update={"directory": inner})
    assert profile.model is not None, "a profile has a command or a model"
    settings = {key: getattr(profile, key) for key in TrainingSettings.model_fields}
    own = {"program": program, "num_iterations": _last_iteration(profile, options.num_iterations)}
    return TrainingSpec(
        **(settings | own),
        model=profile.model,
        data_path=profile.data or options.data_path,
        checkpoint_dir=directory,
        seed=options.seed,
        workdir=version,
    )


def _inside(workdir: str, path: str) -> str:
    return str(Path(path).relative_to(workdir))
