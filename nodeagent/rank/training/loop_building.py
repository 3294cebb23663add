"""Checks the settings of a launch, and builds the loop of a rank from them."""

from dataclasses import replace
from typing import NamedTuple

from megatron.core.optimizer import MegatronOptimizer

from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.program.loop import Context, Loop
from nodeagent.rank.program.program_loading import build_loop, restart_reasons
from nodeagent.rank.state.optimizers import UnsupportedOptimizerError
from nodeagent.rank.state.sharded_adam import ShardedOptimizer


class LaunchError(ValueError):
    """The settings contradict each other: the layout does not fit the model or the global batch."""


class Built(NamedTuple):
    """The loop of a rank, and the names of the settings that prevent recovery in process."""

    loop: Loop
    unsupported: tuple[str, ...]


def check_launch(launch: RankLaunch) -> None:
    """Refuse a launch that no program can train.

    Raises:
        LaunchError: The text has the numbers that contradict each other.
    """
    layout, training = launch.layout, launch.settings
    if launch.global_rank >= layout.num_workers:
        raise LaunchError(f"rank {launch.global_rank} of a world of {layout.num_workers}")
    misfit = training.model.misfit(layout) if training.program is None else None
    if misfit is not None:
        raise LaunchError(misfit)
    if training.num_micro_batches < layout.dp:
        raise LaunchError(
            f"num_micro_batches {training.num_micro_batches} is less than dp {layout.dp}"
        )


def build(training: TrainingSpec, place: Place) -> Built:
    """Build the loop with the task's program, and shard its optimizer if the task asks for it.

    Raises:
        LaunchError: The optimizer can't be sharded.
        ProgramError: The program can't be used.
        Exception: The program raised it.
    """
    loop = build_loop(Context(training, place))
    reasons = restart_reasons(loop)
    return Built(_with_sharded_optimizer(loop) if training.shard_optimizer else loop, reasons)


def _with_sharded_optimizer(loop: Loop) -> Loop:
    assert isinstance(loop.optimizer, MegatronOptimizer)
    try:
        return replace(loop, optimizer=ShardedOptimizer(loop.optimizer))
    except UnsupportedOptimizerError as error:
        raise LaunchError(f"shard_optimizer: {error}; set it to false") from error
