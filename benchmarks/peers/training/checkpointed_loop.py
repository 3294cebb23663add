"""Training as it is usually written: all ranks in step, a checkpoint now and then.

This is what a restart from disk protects: on a fault the whole function is called again, in new
processes or in the same ones, and goes on from the newest checkpoint.
"""
# ruff: noqa: TID253 - only rank processes import this

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import distributed

from peers.runs.peer_rank_records import JournalWriter
from peers.runs.workload_plan import RunPlan
from peers.training.replica import Replica
from peers.training.replica_model import form_parallel_state


def train(
    plan: RunPlan,
    attempt: int,
    *,
    timeout_s: float,
    beat: Callable[[], None] = lambda: None,
    saving: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
) -> None:
    """Train to the end, in the world of ``torch.distributed``.

    Args:
        plan: The run.
        attempt: How often it was taken up before.
        timeout_s: Bound on each collective.
        beat: Called after every iteration.
        saving: Guards the writing of a checkpoint.
    """
    form_parallel_state(timeout_s)
    workload, rank = plan.workload, distributed.get_rank()
    journal = JournalWriter(plan.journal, rank, attempt)
    replica = Replica(plan, rank, journal)
    iteration = _load(plan, replica)
    num_local = workload.num_micro_batches // distributed.get_world_size()
    indices = range(rank * num_local, (rank + 1) * num_local)
    while iteration < workload.num_iterations:
        iteration += 1
        loss_sum = torch.tensor(replica.accumulate(iteration, indices), dtype=torch.float64)
        distributed.all_reduce(loss_sum)
        replica.step()
        if rank == 0:
            loss = float(loss_sum) / workload.num_micro_batches
            journal.committed(iteration, loss, workload.num_micro_batches)
        beat()
        if iteration % workload.checkpoint_interval == 0 and rank == 0:
            with saving():
                _save(plan, replica, iteration)


def _save(plan: RunPlan, replica: Replica, iteration: int) -> None:
    incomplete = plan.checkpoint.with_suffix(".tmp")
    torch.save({"iteration": iteration, "replica": replica.state_dict()}, incomplete)
    incomplete.rename(plan.checkpoint)


def _load(plan: RunPlan, replica: Replica) -> int:
    """Load the newest checkpoint and return its iteration; without one, 0."""
    if not plan.checkpoint.exists():
        return 0
    # Our own file; Megatron's optimizer state is more than plain tensors.
    saved = torch.load(plan.checkpoint, weights_only=False)
    replica.load_state_dict(saved["replica"])
    iteration: int = saved["iteration"]
    return iteration
