"""Time of an iteration: the slowest stage, the bubble, and the work between iterations.

One forward, one backward (1F1B), with m micro-batches: the slowest stage works m times and waits
for the others once; interleaving shortens that wait. Then gradients are reduced over the replicas,
the optimizer steps, and sharded weights are gathered.
"""

import math
from typing import Final

from profiles.estimate.gpu_memory import (
    offloaded_bytes,
    stage_layers,
    stage_parameters,
)
from profiles.estimate.layer import GpuSpeed
from profiles.estimate.replica_exchange import exchange_s
from profiles.estimate.shape import DecoderShape
from profiles.estimate.training_setup import Recompute, Stack, TrainingSetup

_ADAM_BYTES: Final = 30.0
"""Of a parameter: a gradient, the fp32 weight and two moments are read, all but the gradient
written, and the weight once more in bf16."""
_SELECTIVE_EAGER: Final = 0.5
"""Share of the products and elementwise work that PyTorch's selective recomputation repeats: it
keeps attention and every other product (torchtitan, activation checkpointing mode "op")."""


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
