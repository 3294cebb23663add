"""From task profiles to a controller's tasks: the core's spec, and the program of the ranks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from controller.core.specs import TaskSpec
from controller.server.rank_launches import CommandLaunch, TaskProgram
from nodeagent.protocol.ids import TaskId
from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.task_profiles import TaskProfile
from profiles.training_settings import TrainingSettings


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


def task_programs(
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
