"""What the demo's controller is made for: its nodes, and the tasks of the profiles."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from controller.core.state.task import TaskSpec
from controller.demo.demo_options import DemoOptions
from controller.localcluster.local_node import LocalNode
from controller.server.controller import ControllerConfig
from controller.server.rank_launches import CommandLaunch, TaskProgram
from nodeagent.protocol.ids import TaskId
from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.task_profiles import TaskProfile


def controller_config(
    options: DemoOptions, nodes: Sequence[LocalNode], root: Path
) -> ControllerConfig:
    """Return the charter of a demo over ``nodes``; its checkpoints lie below ``root``."""
    checkpoints = root / "checkpoints"
    forks = any(profile.command is None for profile in options.profiles)
    return ControllerConfig(
        addresses=[replace(node.address, has_template=forks) for node in nodes],
        tasks=[_task_spec(profile, options.num_iterations) for profile in options.profiles],
        programs={
            TaskId(profile.name): _program(profile, options, checkpoints)
            for profile in options.profiles
        },
        policy=options.policy,
        tables=options.tables,
        failure_domains=options.failure_domains,
    )


def _task_spec(profile: TaskProfile, num_iterations: int | None) -> TaskSpec:
    model, command = profile.model, profile.command
    num_samples = profile.num_micro_batches * profile.micro_batch_size
    return TaskSpec(
        task=TaskId(profile.name),
        weight=profile.weight,
        workers=profile.workers,
        min_workers=profile.min_workers,
        table=profile.throughput,
        flops_per_iteration=model.flops_per_sample() * num_samples if model else 0.0,
        # A command ends when it likes.
        num_iterations=num_iterations if command is None else None,
        num_micro_batches=profile.num_micro_batches,
        is_sharded=profile.shard_optimizer,
        makes_copies=profile.memory_interval > 0,
        is_command=command is not None,
        start_limit_s=command.start_limit_s if command else None,
        stop_limit_s=command.stop_limit_s if command else None,
        hang_limit_s=command.hang_limit_s if command else 0.0,
        has_floor=profile.iteration_floor_s > 0,
        long_intervals=_long_intervals(profile),
    )


def _long_intervals(profile: TaskProfile) -> tuple[int, ...]:
    own = () if profile.command is not None else (profile.checkpoint_interval,)
    return (*own, *profile.long_intervals)


def _program(profile: TaskProfile, options: DemoOptions, checkpoints: Path) -> TaskProgram:
    if profile.command is not None:
        return CommandLaunch(profile.command, str(checkpoints / profile.name))
    assert profile.model is not None, "a profile has a command or a model"
    return TrainingSpec(
        model=profile.model,
        program=profile.program,
        data_path=options.data_path,
        checkpoint_dir=str(checkpoints / profile.name),
        checkpoint_interval=profile.checkpoint_interval,
        checkpoints_kept=profile.checkpoints_kept,
        num_micro_batches=profile.num_micro_batches,
        micro_batch_size=profile.micro_batch_size,
        learning_rate=profile.learning_rate,
        seed=options.seed,
        num_iterations=options.num_iterations,
        iteration_floor_s=profile.iteration_floor_s,
        shard_optimizer=profile.shard_optimizer,
        memory_interval=profile.memory_interval,
    )
