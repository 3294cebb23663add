"""The real template with ranks that break at exact points and record their reductions.

    python -m tests.fakes.faulty_template --state-dir DIR

The functions of ``nodeagent.rank`` are wrapped once, before any rank is forked. Their
results are unchanged. State travels in small pieces, so that a fault can strike in the middle, and
in-memory copies are complete before training continues.
"""

import functools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.rank.process import template
from nodeagent.rank.process.warm_imports import import_training_program
from tests.fakes.fault_points import (
    Contribution,
    Fault,
    FaultPlan,
    Point,
    contributions_path,
    plan_path,
)

if TYPE_CHECKING:
    from nodeagent.rank.state.memory_checkpoints import MemoryCheckpoints

_CHUNK_BYTES: Final = 16 * 1024
_LOOK_S: Final = 0.001
_NUM_LOOKS: Final = 5000
_FOR_EVER_S: Final = 3600.0


class InjectedError(RuntimeError):
    """A fault that was asked for."""


class _Rank:
    """What the present process knows of itself, and which faults wait for it."""

    def __init__(self) -> None:
        self._num_passed: dict[Fault, int] = {}
        self._generation = 0
        self._global_rank = 0
        self._contributions = Path()
        self.iterations: Any = None
        self.dependencies: Any = None

    def enter(self, state_dir: Path, launch: RankLaunch) -> None:
        """Be the rank of ``launch``."""
        plan = plan_path(state_dir, launch.task)
        faults = FaultPlan.model_validate_json(plan.read_bytes()).faults if plan.exists() else ()
        self._num_passed = {
            fault: 0
            for fault in faults
            if (fault.generation, fault.global_rank) == (launch.generation, launch.global_rank)
        }
        self._generation = launch.generation
        self._global_rank = launch.global_rank
        self._contributions = contributions_path(state_dir, launch.task)

    def passes(self, point: Point, iteration: int | None = None) -> None:
        """Break here if that is wanted."""
        if iteration is None and self.iterations is not None:
            iteration = self.iterations._ledger.iteration
        for fault, num_passed in self._num_passed.items():
            if fault.point == point and fault.iteration in {None, iteration}:
                self._num_passed[fault] = num_passed + 1
                if num_passed + 1 == fault.count:
                    _break(fault)

    def contributes(self, bucket: str) -> None:
        """Write down what goes into ``bucket``, before it does."""
        iterations = self.iterations
        ledger, place = iterations._ledger, iterations.place
        if bucket in ledger.reduced or iterations.reduction._failure is not None:
            return
        under_way = iterations._accumulation._under_way
        contribution = Contribution(
            generation=self._generation,
            iteration=ledger.iteration,
            tp_rank=place.tp_rank,
            pp_rank=place.pp_rank,
            dp_rank=place.dp_rank,
            bucket=bucket,
            micro_batches=tuple(sorted({*ledger.loss_by_micro_batch, *under_way})),
        )
        with self._contributions.open("a") as file:
            file.write(contribution.model_dump_json() + "\n")


_RANK: Final = _Rank()


def _break(fault: Fault) -> None:
    sys.stderr.write(f"breaks: {fault}\n")
    sys.stderr.flush()
    if fault.action == "raise":
        raise InjectedError(f"{fault.point} {fault.count}")
    if fault.action == "sleep":
        time.sleep(_FOR_EVER_S)
    if fault.action == "receive":
        _receive_nothing()
    if fault.action == "spin":
        _wait_for_endless_kernel()
    if fault.action == "linger":
        _linger()
        return
    os.kill(os.getpid(), signal.SIGKILL if fault.action == "kill" else signal.SIGSTOP)


def _linger() -> None:
    around = _RANK.dependencies
    while not (around.halted.is_set() or around.control.is_park_requested):
        time.sleep(_LOOK_S)


def _receive_nothing() -> None:
    import torch
    from torch import distributed

    peer = (distributed.get_rank() + 1) % distributed.get_world_size()
    distributed.recv(torch.zeros(1), src=peer)


def _wait_for_endless_kernel() -> None:
    import torch

    sleep_for_cycles: Callable[[int], None] = torch.cuda._sleep
    sleep_for_cycles(1 << 62)
    torch.cuda.synchronize()


def _wrap(
    owner: object,
    name: str,
    *,
    before: Callable[..., object] = lambda *_: None,
    after: Callable[..., object] = lambda *_: None,
) -> None:
    """Have ``before`` and ``after`` called with the arguments of ``owner.name``, around it."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: object, **kwargs: object) -> object:
        before(*args)
        result = original(*args, **kwargs)
        after(*args)
        return result

    setattr(owner, name, wrapped)


def _here(point: Point) -> Callable[..., None]:
    return lambda *_: _RANK.passes(point)


def _pass_if(point: Point, is_so: bool) -> None:
    if is_so:
        _RANK.passes(point)


def _wait_for_copies(memory: "MemoryCheckpoints", *_: object) -> None:
    """Have the copies complete before the next iteration, so that a case is always the same."""
    for _look in range(_NUM_LOOKS):
        # Where a transfer failed the thread has ended, and more will not come.
        if not memory.is_busy or not (memory._thread and memory._thread.is_alive()):
            return
        time.sleep(_LOOK_S)


def _plant_in_iteration() -> None:
    from megatron.core.distributed import DistributedDataParallel
    from megatron.core.optimizer import ChainedOptimizer

    from nodeagent.rank.iteration import (  # noqa: PLC0415
        accumulation,
        iteration_phases,
        ledger,
        reduction,
    )
    from nodeagent.rank.state import sharded_adam  # noqa: PLC0415

    iterations, buckets = iteration_phases.Iterations, reduction.Reduction
    _wrap(iterations, "__init__", after=lambda made, *_: setattr(_RANK, "iterations", made))
    _wrap(
        accumulation.Accumulation, "_forward_step", before=_here("forward"), after=_here("backward")
    )
    _wrap(ledger.Ledger, "count", after=_here("counted"))
    _wrap(
        buckets,
        "_start",
        before=lambda _, bucket: _RANK.contributes(bucket.name),
        after=lambda _, bucket: _pass_if("started", bucket.work is not None),
    )
    _wrap(
        buckets,
        "_wait",
        after=lambda made, bucket: _pass_if("reduced", bucket.name in made._ledger.reduced),
    )
    _wrap(buckets, "restore", after=_here("restored"))
    finalise = functools.partial(accumulation.finalise_in_replica, after_step=_here("finalised"))
    setattr(iteration_phases, "finalise_in_replica", finalise)  # noqa: B010 - it is not exported there
    _wrap(iterations, "_sum_over_all", before=_here("voting"), after=_here("voted"))
    _wrap(iteration_phases, "wait_unless_halted", before=_here("in vote"))
    _wrap(
        iterations,
        "step",
        before=_here("stepping"),
        after=lambda _, vote: _RANK.passes("committed", vote.iteration),
    )
    _wrap(sharded_adam.ShardedOptimizer, "step_with_ready_grads", after=_here("stepped"))
    _wrap(
        sharded_adam.ShardedOptimizer,
        "gather",
        after=lambda *_: _RANK.passes("gathered", _RANK.iterations._ledger.committed),
    )
    _wrap(DistributedDataParallel, "scale_gradients", after=_here("scaled"))
    _wrap(ChainedOptimizer, "step_with_ready_grads", after=_here("stepped"))


def _plant_around_it() -> None:
    from nodeagent.rank import checkpoint  # noqa: PLC0415
    from nodeagent.rank.agent_link import rendezvous_store  # noqa: PLC0415
    from nodeagent.rank.checkpoint import checkpoint_directory, saving  # noqa: PLC0415
    from nodeagent.rank.groups import parallel_groups  # noqa: PLC0415
    from nodeagent.rank.iteration import reduction  # noqa: PLC0415
    from nodeagent.rank.process import rank_main  # noqa: PLC0415
    from nodeagent.rank.state import memory_checkpoints, rank_state, shard_distribution  # noqa: PLC0415
    from nodeagent.rank.training import training_loop  # noqa: PLC0415

    _wrap(
        rank_main._Process,
        "run_generation",
        before=lambda process, launch: _RANK.enter(process._socket_path.parent, launch),
    )
    _wrap(
        checkpoint.Checkpoints,
        "save",
        before=lambda _, iteration, *__: _RANK.passes("saving", iteration),
        after=lambda _, iteration, *__: _RANK.passes("copied", iteration),
    )
    _wrap(saving, "write_part", after=_here("written"))
    _wrap(checkpoint_directory.CheckpointDirectory, "publish", before=_here("publishing"))
    _wrap(parallel_groups.ParallelGroups, "_make", before=_here("forming"))
    _wrap(rendezvous_store.AgentStore, "set", after=_here("introduced"))
    _wrap(parallel_groups.ParallelGroups, "form", after=_here("formed"))
    rank_state._CHUNK_BYTES = _CHUNK_BYTES  # type: ignore[misc]
    shard_distribution._PIECE_BYTES = _CHUNK_BYTES  # type: ignore[misc]
    chunks = rank_state._chunks

    def chunks_with_points(tensors: Iterable[Any]) -> Iterator[list[Any]]:
        for chunk in chunks(tensors):
            _RANK.passes("transfer")
            yield chunk
        _RANK.passes("transferred")

    rank_state._chunks = chunks_with_points
    _wrap(rank_state.TrainingState, "take", before=_here("transfer"))
    _wrap(memory_checkpoints.MemoryCheckpoints, "take", after=_wait_for_copies)
    _wrap(
        memory_checkpoints.MemoryCheckpoints,
        "_carry_out",
        before=lambda _, transfer, __: _RANK.passes("sending", transfer.iteration),
    )
    _wrap(reduction.Reduction, "share", before=_here("sharing"))
    _wrap(training_loop, "resume_from_peers", after=_here("resumed"))
    _wrap(
        training_loop.Training,
        "__init__",
        after=lambda _, __, dependencies: setattr(_RANK, "dependencies", dependencies),
    )


def plant() -> None:
    """Wrap everything, before any rank is forked."""
    import_training_program()
    _plant_in_iteration()
    _plant_around_it()


if __name__ == "__main__":
    plant()
    sys.exit(template.main())
