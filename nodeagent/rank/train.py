"""The training loop of one rank: iterations, the vote that commits each, checkpoints, the stop.

An iteration runs Megatron's schedule over this replica's micro-batches (forward, backward, and the
reduction of the gradients), then the *vote*: one small all-reduce of our own over all ranks. It
carries the loss, the squared gradient norm and the wish to stop, so that every rank knows all three
and decides alike: step or raise, go on or stop after this iteration.

The global batch does not depend on the layout: replica r of dp computes the r-th block of
micro-batches, and loss and gradient are means over all of them.

Not here: who reports to whom (``link``), what happens to an exception (``main``).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import torch
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import param_is_not_tensor_parallel_duplicate
from megatron.core.transformer.module import param_is_not_shared

from nodeagent.protocol.observations import (
    AnyObservation,
    CheckpointLoaded,
    CheckpointSaved,
    IterationCommitted,
)
from nodeagent.protocol.training import RankLaunch
from nodeagent.rank.checkpoint import Checkpoints
from nodeagent.rank.data import MicroBatches
from nodeagent.rank.gpt import build_model, build_optimizer
from nodeagent.rank.parallel import Place
from nodeagent.rank.store import AgentStore

_MAX_GRAD_NORM: Final = 1.0
"""Gradients are scaled down to this L2 norm, the customary bound for GPT."""


class NonFiniteLossError(Exception):
    """The loss or the gradient of the global batch is NaN or infinite; nothing was updated."""


class DrillError(Exception):
    """Raised on an operator's request, to rehearse an exception in a rank."""


class Control(Protocol):
    """What the loop needs of the rank's link to its agent. ``link.ControlLink`` is the real one."""

    @property
    def is_stop_requested(self) -> bool:
        """Whether the ranks should stop after the running iteration."""

    def take_raise_request(self) -> bool:
        """Return whether a drill's exception is wanted, once per request."""

    def report(self, observation: AnyObservation) -> None:
        """Hand over a report; it is kept until the agent stored it."""

    def pulse(self, iteration: int, duration_s: float) -> None:
        """Tell that ``iteration`` is done; may be dropped."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The loop's only access to time."""

    monotonic_s: Callable[[], float]
    wait_s: Callable[[float], None]


@dataclass(frozen=True, slots=True)
class _Vote:
    """What all ranks agree on before they step."""

    loss: float
    grad_norm: float
    is_stop_wanted: bool


class Training:
    """One rank's share of a task's training in one generation."""

    def __init__(self, launch: RankLaunch, place: Place, control: Control, clocks: Clocks) -> None:
        self._launch = launch
        self._spec = launch.training
        self._place = place
        self._control = control
        self._clocks = clocks
        self._micro_batches = MicroBatches(self._spec, place.device)
        self._model = build_model(self._spec.model, place, self._spec.seed)
        self._optimizer = build_optimizer(self._model, self._spec.learning_rate)
        self._checkpoints = Checkpoints(launch, place)
        self._forward_backward = get_forward_backward_func()
        self.iteration = 0
        """The iteration that runs or was finished last; 0 before the first."""

    def resume(self, store: AgentStore) -> None:
        """Load the newest usable checkpoint, the same one on all ranks; else keep the seed's."""
        began = self._clocks.monotonic_s()
        self.iteration = self._checkpoints.load(self._model, self._optimizer, store)
        if self._place.global_rank == 0:
            duration_s = self._clocks.monotonic_s() - began
            self._report(CheckpointLoaded, iteration=self.iteration, duration_s=duration_s)

    def run(self) -> Literal["stopped", "finished"]:
        """Train until the task is finished or all ranks agreed to stop; both save a checkpoint.

        Raises:
            NonFiniteLossError: On all ranks alike.
            DrillError: On the rank that was asked to.
        """
        last = self._spec.num_iterations
        while last is None or self.iteration < last:
            self.iteration += 1
            is_stop_wanted = self._iterate()
            is_last = self.iteration == last
            if is_stop_wanted or is_last or self.iteration % self._spec.checkpoint_interval == 0:
                self._save()
            if is_stop_wanted and not is_last:
                return "stopped"
        return "finished"

    def _iterate(self) -> bool:
        """Run one iteration and return whether the ranks agreed to stop after it."""
        began = self._clocks.monotonic_s()
        self._model.zero_grad_buffer()
        self._optimizer.zero_grad()
        loss_sum = self._accumulate_and_reduce()
        elapsed_s = self._clocks.monotonic_s() - began
        # Before the vote, so that the update is committed when the iteration ends, not earlier.
        self._clocks.wait_s(self._spec.iteration_floor_s - elapsed_s)
        vote = self._vote(loss_sum)
        if vote.grad_norm > _MAX_GRAD_NORM:
            self._model.scale_gradients(_MAX_GRAD_NORM / vote.grad_norm)
        self._optimizer.step()
        self._announce(vote, self._clocks.monotonic_s() - began)
        return vote.is_stop_wanted

    def _accumulate_and_reduce(self) -> float:
        """Leave the gradient of the global batch in the model; return this rank's sum of losses."""
        num_local = self._spec.num_micro_batches // self._place.layout.dp
        first = self._place.dp_rank * num_local
        losses: list[torch.Tensor] = self._forward_backward(
            forward_step_func=self._forward_step,
            data_iterator=iter(range(first, first + num_local)),
            model=self._model,
            num_microbatches=num_local,
            seq_length=self._spec.model.seq_length,
            micro_batch_size=self._spec.micro_batch_size,
            forward_only=False,
        )
        # Only the last stage has losses, and each of its tensor-parallel ranks has the same ones.
        if not losses or self._place.tp_rank != 0:
            return 0.0
        return float(torch.stack(losses).double().sum())

    def _forward_step(
        self, indices: Iterator[int], model: torch.nn.Module
    ) -> tuple[torch.Tensor, Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]]:
        index = next(indices)
        if self._control.take_raise_request():
            raise DrillError(f"drill: exception in micro-batch {index}")
        batch = self._micro_batches.get(self.iteration, index)
        output = model(batch.tokens, batch.position_ids, None, labels=batch.labels)
        return output, _mean_loss

    def _vote(self, loss_sum: float) -> _Vote:
        wishes_stop = float(self._control.is_stop_requested)
        total_loss, squared_norm, num_wishes = self._place.sum_over_all(
            [loss_sum, self._squared_norm(), wishes_stop]
        )
        # NaN and infinity survive a sum, so every rank sees what any rank saw.
        if not math.isfinite(total_loss + squared_norm):
            raise NonFiniteLossError(
                f"iteration {self.iteration}: loss sum {total_loss}, squared norm {squared_norm}"
            )
        loss = total_loss / self._spec.num_micro_batches
        return _Vote(loss, math.sqrt(squared_norm), num_wishes > 0)

    def _squared_norm(self) -> float:
        """Return this rank's part of the squared gradient norm; each shard counts once."""
        if self._place.dp_rank != 0:
            return 0.0
        norms = [
            torch.linalg.vector_norm(parameter.main_grad)
            for parameter in self._model.module.parameters()
            if param_is_not_shared(parameter) and param_is_not_tensor_parallel_duplicate(parameter)
        ]
        return float(torch.stack(norms).double().square().sum()) if norms else 0.0

    def _announce(self, vote: _Vote, duration_s: float) -> None:
        self._control.pulse(self.iteration, duration_s)
        if self._place.global_rank == 0:
            spec = self._spec
            self._report(
                IterationCommitted,
                iteration=self.iteration,
                loss=vote.loss,
                duration_s=duration_s,
                num_tokens=spec.num_micro_batches * spec.micro_batch_size * spec.model.seq_length,
                grad_norm=vote.grad_norm,
            )

    def _save(self) -> None:
        began = self._clocks.monotonic_s()
        num_bytes = self._checkpoints.save(self.iteration, self._model, self._optimizer)
        if self._place.global_rank == 0:
            self._report(
                CheckpointSaved,
                iteration=self.iteration,
                duration_s=self._clocks.monotonic_s() - began,
                num_bytes=num_bytes,
            )

    def _report(self, kind: Callable[..., AnyObservation], **fields: float) -> None:
        launch = self._launch
        self._control.report(
            kind(
                task=launch.task,
                generation=launch.generation,
                global_rank=launch.global_rank,
                **fields,
            )
        )


def _mean_loss(loss_per_token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # Megatron divides the first by the replica's micro-batches and its DDP by the replicas.
    loss = loss_per_token.mean()
    return loss, loss.detach().clone()
