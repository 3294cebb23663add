"""The built-in training program: a GPT on bytes of a text, as a ``Loop``."""

from collections.abc import Iterator
from typing import Any

import torch

from nodeagent.rank.program.gpt import build_model, build_optimizer
from nodeagent.rank.program.loop import Context, Loop, LossFunction
from nodeagent.rank.program.micro_batches import MicroBatches

_MAX_GRAD_NORM = 1.0
"""The usual bound for GPT."""


def build_loop(context: Context) -> Loop:
    """Return the program of this rank."""
    spec, place = context.training, context.place
    model = build_model(spec.model, place, spec.seed, bucket_size=spec.bucket_size)
    return Loop(
        chunks=[model],
        optimizer=build_optimizer(model, spec.learning_rate),
        forward_step=_forward_step,
        micro_batch=MicroBatches(spec, place.device).get,
        num_micro_batches=spec.num_micro_batches,
        micro_batch_size=spec.micro_batch_size,
        seq_length=spec.model.seq_length,
        reseed=context.reseed,
        max_grad_norm=_MAX_GRAD_NORM,
    )


def _forward_step(
    batches: Iterator[Any], model: torch.nn.Module
) -> tuple[torch.Tensor, LossFunction]:
    batch = next(batches)
    return model(batch.tokens, batch.position_ids, None, labels=batch.labels), _mean_loss


def _mean_loss(loss_per_token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    loss = loss_per_token.mean()
    return loss, loss.detach()
