"""Plain Megatron: what a training loop on megatron-core does without Unicron.

Its own DDP with overlapped reduction, its own ``finalize_model_grads``, its schedules and its
optimizer, in the order of Megatron-LM's ``train_step``. Only what ``ChainedOptimizer.step`` does
between ``prepare_grads`` and ``step_with_ready_grads`` is written out: its clipping asserts CUDA
tensors, and its norm without Apex is slower than torch's, which Unicron uses.
"""

import dataclasses
import itertools
import math
import time
from collections.abc import Iterator
from typing import Any, Final

import torch  # noqa: TID253
from megatron.core import parallel_state  # noqa: TID253
from megatron.core.distributed import finalize_model_grads  # noqa: TID253
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: TID253
from megatron.core.tensor_parallel import param_is_not_tensor_parallel_duplicate  # noqa: TID253
from megatron.core.transformer.module import param_is_not_shared  # noqa: TID253
from torch import distributed  # noqa: TID253

from nodeagent.protocol.rank_launch import TrainingSpec
from nodeagent.protocol.regroup import even_shares
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.program.gpt import build_model, build_optimizer, transformer_config
from nodeagent.rank.program.micro_batches import MicroBatches

_MAX_GRAD_NORM: Final = 1.0


class PlainMegatron:
    """One rank's plain loop over the same model and the same micro-batches as Unicron's."""

    def __init__(self, spec: TrainingSpec, place: Place) -> None:
        # A mean over tokens and micro-batches, Megatron's default.
        config = dataclasses.replace(
            transformer_config(spec.model, place), calculate_per_token_loss=False
        )
        self._model: Any = build_model(
            spec.model, place, spec.seed, bucket_size=spec.bucket_size, config=config
        )
        config.finalize_model_grads_func = finalize_model_grads
        self._optimizer = build_optimizer(self._model, spec.learning_rate)
        self._micro_batches = MicroBatches(spec, place.device)
        self._share = even_shares(spec.num_micro_batches, place.layout.dp)[place.dp_rank]
        self._spec = spec
        self._place = place
        self._iteration = 0
        self._losses: list[torch.Tensor] = []

    @property
    def losses(self) -> list[float]:
        """Mean loss of the global batch by iteration; on ranks that compute one."""
        return [float(loss) for loss in self._losses]

    @property
    def iteration(self) -> int:
        """The newest iteration."""
        return self._iteration

    @property
    def newest_loss(self) -> float | None:
        """The loss of the newest iteration; None on ranks that compute none."""
        return float(self._losses[-1]) if self._losses else None

    def run_block(self, num_iterations: int) -> list[float]:
        """Train ``num_iterations`` more and return how long each took, seconds."""
        stamps = [time.perf_counter()]
        for _ in range(num_iterations):
            self._iterate()
            stamps.append(time.perf_counter())
        return [end - begin for begin, end in itertools.pairwise(stamps)]

    def _iterate(self) -> None:
        self._iteration += 1
        self._model.zero_grad_buffer()
        self._optimizer.zero_grad()
        losses = get_forward_backward_func()(
            forward_step_func=self._forward_step,
            data_iterator=iter(self._share),
            model=[self._model],
            num_microbatches=len(self._share),
            seq_length=self._spec.model.seq_length,
            micro_batch_size=self._spec.micro_batch_size,
            forward_only=False,
        )
        self._optimizer.prepare_grads()
        norm = self._grad_norm()
        if norm > _MAX_GRAD_NORM:
            self._model.scale_gradients(_MAX_GRAD_NORM / norm)
        self._optimizer.step_with_ready_grads()
        if self._place.is_last_stage:
            loss = torch.stack(losses).sum()
            distributed.all_reduce(loss, group=parallel_state.get_data_parallel_group())
            self._losses.append(loss / self._spec.num_micro_batches)

    def _forward_step(self, indices: Iterator[int], model: torch.nn.Module) -> tuple[Any, Any]:
        batch = self._micro_batches.get(self._iteration, next(indices))
        return model(batch.tokens, batch.position_ids, None, labels=batch.labels), _mean_loss

    def _grad_norm(self) -> float:
        """As ``get_grad_norm_fp32``: the norm on this rank, then over the model-parallel group."""
        norms = [
            torch.linalg.vector_norm(parameter.grad)
            for parameter in self._model.module.parameters()
            if param_is_not_shared(parameter) and param_is_not_tensor_parallel_duplicate(parameter)
        ]
        total = torch.stack(norms).square().sum()
        distributed.all_reduce(total, group=parallel_state.get_model_parallel_group())
        return math.sqrt(float(total))


def _mean_loss(loss_per_token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    loss = loss_per_token.mean()
    return loss, loss.detach().clone()
