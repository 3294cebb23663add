"""Time of an iteration: the slowest stage, the bubble, and the work between iterations.

One forward, one backward (1F1B), with m micro-batches: the slowest stage works m times and waits
for the others once; interleaving shortens that wait. Then gradients are reduced over the replicas,
the optimizer steps, and sharded weights are gathered.

Computation hides part of what replicas send each other. Replicas that hold all weights exchange
once an iteration. Fully sharded ones (FSDP) gather the weights of each layer and scatter its
gradients in every micro-batch.
"""

import math
from typing import Final

from profiles.estimate.gpu_memory import (
    offloaded_bytes,
    stage_layers,
    stage_parameters,
)
from profiles.estimate.layer import GpuSpeed
from profiles.estimate.shape import DecoderShape
from profiles.estimate.training_setup import Recompute, Stack, TrainingSetup

_ADAM_BYTES: Final = 30.0
"""Of a parameter: a gradient, the fp32 weight and two moments are read, all but the gradient
written, and the weight once more in bf16."""
_SELECTIVE_EAGER: Final = 0.5
"""Share of the products and elementwise work that PyTorch's selective recomputation repeats: it
keeps attention and every other product (torchtitan, activation checkpointing mode "op")."""

_WEIGHT_BYTES: Final = 2.0
_FP8_WEIGHT_BYTES: Final = 1.0
"""Weights are gathered in the precision of the products that need them, but not by PyTorch."""


def iteration_s(
    shape: DecoderShape, setup: TrainingSetup, stack: Stack, gpu_speed: GpuSpeed, global_batch: int
) -> float:
    """Return the seconds of one iteration."""
    constants = gpu_speed.constants
    num_micro_batches = setup.num_micro_batches(global_batch)
    seconds = _pipeline_s(shape, setup, stack, gpu_speed, num_micro_batches)
    num_nodes = max(setup.num_workers / gpu_speed.gpu.node_gpus, 1.0)
    seconds *= 1 + constants.straggle * math.log2(num_nodes)
    if stack.is_deepspeed:
        seconds *= constants.deepspeed
    exchange = exchange_s(shape, setup, stack, gpu_speed, seconds, num_micro_batches)
    held = stage_parameters(shape, setup) / setup.state_shards(stack)
    step = gpu_speed.sweep_s(_ADAM_BYTES * held)
    return seconds + exchange + step + constants.fixed_s


def flops_per_s(shape: DecoderShape, global_batch: int, seconds: float) -> float:
    """Return T: model FLOP/s of all GPUs together, recomputation not counted."""
    return shape.flops_per_sample * global_batch / seconds


def _pipeline_s(
    shape: DecoderShape,
    setup: TrainingSetup,
    stack: Stack,
    gpu_speed: GpuSpeed,
    num_micro_batches: int,
) -> float:
    pp = setup.layout.pp
    time = gpu_speed.layer(shape, setup, stack)
    layer = time.forward_s + time.backward_s + 2 * time.collective_s
    if setup.recompute is Recompute.SELECTIVE:
        if stack.eager:
            layer += _SELECTIVE_EAGER * (time.forward_s - time.attention_s)
        elif not stack.flash:
            layer += time.attention_s
    if stack.is_deepspeed:
        layer += gpu_speed.constants.deepspeed_layer_s
    again = time.forward_s + time.collective_s

    def stage_s(layers: float) -> float:
        return layers * layer + setup.recomputed(layers) * again

    fullest = stage_layers(shape.layers, pp, setup.virtual)
    # Where stages are uneven, the one with the output layer has the fewest layers.
    last = max(0, shape.layers - (pp - 1) * fullest)
    hop = _hop_s(shape, setup, stack, gpu_speed)
    slowest = max(stage_s(fullest), stage_s(last) + gpu_speed.output_s(shape, setup)) + hop
    slowest += _offload_s(shape, setup, stack, gpu_speed, fullest * layer)
    ordinary = stage_s(shape.layers / pp) + hop
    return num_micro_batches * slowest + (pp - 1) * ordinary / setup.virtual


def _offload_s(
    shape: DecoderShape, setup: TrainingSetup, stack: Stack, gpu_speed: GpuSpeed, compute_s: float
) -> float:
    """Return what a stage waits for activations on their way to the host and back."""
    num_bytes = offloaded_bytes(shape, setup, stack, is_fp8=gpu_speed.is_fp8)
    rate = gpu_speed.gpu.host_bytes_per_s
    # Without such a link nothing is offloaded unless a point says so: then at the network's rate.
    return max(0.0, 2 * num_bytes / (rate or gpu_speed.net_bytes_per_s) - compute_s)


def _hop_s(shape: DecoderShape, setup: TrainingSetup, stack: Stack, gpu_speed: GpuSpeed) -> float:
    """Return the seconds that a stage loses to its neighbours, per micro-batch."""
    if setup.layout.pp == 1:
        return 0.0
    # Each rank of a tensor-parallel group sends its share, forward and backward.
    num_bytes = 2 * 2 * setup.tokens(shape) * shape.hidden / setup.layout.tp
    sending = gpu_speed.exposed(num_bytes / gpu_speed.net_bytes_per_s, stack)
    return setup.virtual * (sending + gpu_speed.constants.hop_s)


def exchange_s(
    shape: DecoderShape,
    setup: TrainingSetup,
    stack: Stack,
    gpu_speed: GpuSpeed,
    compute_s: float,
    num_micro_batches: int,
) -> float:
    """Return the seconds of an iteration's exchange that its ``compute_s`` do not hide."""
    if setup.copies == 1:
        return 0.0
    constants = gpu_speed.constants
    if stack.fully_sharded:
        micro_batch_s = compute_s / num_micro_batches
        gathering = _sharded_s(shape, setup, stack, gpu_speed)
        exposed = gathering - min(constants.hidden_sharded * gathering, micro_batch_s)
        return num_micro_batches * exposed + _between_groups_s(shape, setup, stack, gpu_speed)
    gathered = _weight_bytes(stack, gpu_speed) if setup.sharded else stack.gradient_bytes
    num_bytes = stage_parameters(shape, setup) * (stack.gradient_bytes + gathered)
    seconds = _ring_s(num_bytes, setup.copies, setup, gpu_speed)
    if not stack.overlaps:
        return seconds
    window_s = _window_s(setup, compute_s, num_micro_batches)
    return seconds - min(constants.hidden_data * seconds, window_s)


def _window_s(setup: TrainingSetup, compute_s: float, num_micro_batches: int) -> float:
    """Return the time that gradients and weights can travel beside.

    Gradients leave beside the last micro-batch's backward pass, weights come beside the first one's
    forward pass: together one micro-batch. Interleaved stages end one by one, each after a round of
    one micro-batch per stage: all but one of a stage's parts have the rest of the round.
    """
    micro_batch_s = compute_s / num_micro_batches
    round_size = min(setup.layout.pp, num_micro_batches)
    return micro_batch_s * max(1.0, round_size * (1 - 1 / setup.virtual))


def _sharded_s(
    shape: DecoderShape, setup: TrainingSetup, stack: Stack, gpu_speed: GpuSpeed
) -> float:
    """Return the seconds of a micro-batch's gathers, forward and backward, and of its scatter."""
    num_bytes = stage_parameters(shape, setup) * (
        2 * _weight_bytes(stack, gpu_speed) + stack.gradient_bytes
    )
    return _ring_s(num_bytes, setup.state_shards(stack), setup, gpu_speed)


def _between_groups_s(
    shape: DecoderShape, setup: TrainingSetup, stack: Stack, gpu_speed: GpuSpeed
) -> float:
    """Return the seconds in which groups that each hold all state (HSDP) add their gradients."""
    shards = setup.state_shards(stack)
    groups = setup.copies // shards
    num_bytes = 2 * stack.gradient_bytes * stage_parameters(shape, setup) / shards
    return num_bytes * (groups - 1) / groups / gpu_speed.net_bytes_per_s


def _ring_s(num_bytes: float, size: int, setup: TrainingSetup, gpu_speed: GpuSpeed) -> float:
    """Return the seconds of reducing or gathering in rings of ``size`` replicas."""
    gpu, tp = gpu_speed.gpu, setup.layout.tp
    rate = gpu_speed.link_bytes_per_s
    is_inside = size * tp <= gpu.node_gpus and setup.layout.pp == 1
    if not is_inside and setup.num_workers > gpu.node_gpus:
        # Replicas in one node share the adapters of all of them.
        num_inside = max(1, min(size, gpu.node_gpus // tp))
        rate = min(rate, gpu_speed.net_bytes_per_s * num_inside)
    return num_bytes * (size - 1) / size / rate


def _weight_bytes(stack: Stack, gpu_speed: GpuSpeed) -> float:
    return _FP8_WEIGHT_BYTES if gpu_speed.is_fp8 and not stack.eager else _WEIGHT_BYTES
