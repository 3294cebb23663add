"""One replica's share of an iteration: accumulate, clip, step; and breaking on purpose on the way.

How gradients are reduced over the replicas and when an update is committed belongs to the caller.
"""
# ruff: noqa: TID253 - only rank processes import this

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from megatron.core.pipeline_parallel import get_forward_backward_func

from peers.machine.peer_nodes import lose_own_node
from peers.runs.peer_rank_records import JournalWriter
from peers.runs.workload_plan import NODE_KINDS, PlannedFault, RunPlan
from peers.training.replica_model import ReplicaMicroBatches, build_model, build_optimizer

_MAX_GRAD_NORM = 1.0


class InjectedError(Exception):
    """The exception that the plan wants."""


class Replica:
    """Model, optimizer and data of one rank, in the parallel state of the moment."""

    def __init__(self, plan: RunPlan, global_rank: int, journal: JournalWriter) -> None:
        self._plan = plan
        self._global_rank = global_rank
        self._journal = journal
        self._micro_batches = ReplicaMicroBatches(plan.workload)
        self._forward_backward = get_forward_backward_func()
        self._iteration = 0
        self._num_done = 0
        self.model = build_model(plan.workload)
        self.optimizer = build_optimizer(self.model, plan.workload)

    def accumulate(self, iteration: int, indices: Sequence[int]) -> float:
        """Run Megatron's schedule over the micro-batches and return the sum of their losses.

        The model holds the mean gradient over ``indices``, reduced as its wrapper does.
        """
        self._iteration, self._num_done = iteration, 0
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad()
        losses: list[torch.Tensor] = self._forward_backward(
            forward_step_func=self._forward_step,
            data_iterator=iter(indices),
            model=self.model,
            num_microbatches=len(indices),
            seq_length=self._plan.workload.seq_length,
            micro_batch_size=self._plan.workload.micro_batch_size,
            forward_only=False,
        )
        self._journal.computed(iteration, indices[-1])
        return float(torch.stack(losses).double().sum())

    def step(self) -> None:
        """Clip the gradient, which all replicas hold alike, and apply the update."""
        norms = [
            torch.linalg.vector_norm(parameter.main_grad)
            for parameter in self.model.module.parameters()
        ]
        norm = float(torch.stack(norms).double().square().sum().sqrt())
        if norm > _MAX_GRAD_NORM:
            self.model.scale_gradients(_MAX_GRAD_NORM / norm)
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """Return parameters and optimizer state."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def _forward_step(
        self, indices: Iterator[int], model: torch.nn.Module
    ) -> tuple[torch.Tensor, Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]]:
        index = next(indices)
        # The schedule asks for the next micro-batch when the one before is done.
        if self._num_done:
            self._journal.computed(self._iteration, index - 1)
        tokens, positions, labels = self._micro_batches.get(self._iteration, index)
        output = model(tokens, positions, None, labels=labels)
        self._break_where_planned(index)
        self._num_done += 1
        return output, _mean_loss

    def _break_where_planned(self, index: int) -> None:
        for number, fault in enumerate(self._plan.faults):
            if self._is_due(fault) and _is_first(Path(self._plan.directory) / f"fault-{number}"):
                self._journal.fault(self._iteration, index)
                self._break(fault)

    def _break(self, fault: PlannedFault) -> None:
        if fault.kind in NODE_KINDS:
            lose_own_node(fault.kind)
        if fault.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault.kind == "exception":
            raise InjectedError(f"planned for iteration {self._iteration}")
        # A hang: every thread of the process stands still.
        os.kill(os.getpid(), signal.SIGSTOP)

    def _is_due(self, fault: PlannedFault) -> bool:
        place = (self._iteration, self._global_rank, self._num_done)
        return place == (fault.iteration, fault.global_rank, fault.num_done)


def _is_first(marker: Path) -> bool:
    """Return whether ``marker`` was not there before; it is now."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _mean_loss(loss_per_token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    loss = loss_per_token.mean()
    return loss, loss.detach().clone()
