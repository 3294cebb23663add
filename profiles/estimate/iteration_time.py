"""Time of an iteration: the slowest stage, the bubble, and the work between iterations.

One forward, one backward (1F1B), with m micro-batches: the slowest stage works m times and waits
for the others once; interleaving shortens that wait. Then gradients are reduced over the replicas,
the optimizer steps, and sharded weights are gathered.
"""

import math
from typing import Final

from profiles.estimate.gpu_memory import stage_layers, stage_parameters
from profiles.estimate.layer import GpuSpeed
from profiles.estimate.shape import DecoderShape
from profiles.estimate.training_setup import Recompute, Stack, TrainingSetup

_HOP_S: Final = 1e-3
"""What a micro-batch loses at each virtual stage: latency, and stages that are not in step."""
_ADAM_BYTES: Final = 30.0
"""Of a parameter: a gradient, the fp32 weight and two moments are read, all but the gradient
written, and the weight once more in bf16."""
_WEIGHT_BYTES: Final = 2.0


def iteration_s(
    shape: DecoderShape, setup: TrainingSetup, stack: Stack, gpu_speed: GpuSpeed, global_batch: int
) -> float:
    """Return the seconds of one iteration."""
    constants = gpu_speed.constants
    num_micro_batches = setup.num_micro_batches(global_batch)
    seconds = _pipeline_s(shape, setup, stack, gpu_speed, num_micro_batches)
    num_nodes = max(setup.layout.num_workers / gpu_speed.gpu.node_gpus, 1.0)
    seconds *= 1 + constants.straggle * math.log2(num_nodes)
    if stack.is_deepspeed:
        seconds *= constants.deepspeed
    exchange = _exchange_s(shape, setup, stack, gpu_speed)
    if stack.overlaps:
        # Gradients leave beside the last micro-batch's backward pass, weights come beside the next
        # iteration's first forward pass: one micro-batch is all there is to hide behind.
        exchange -= min(constants.hidden_data * exchange, seconds / num_micro_batches)
    shards = setup.layout.dp if setup.sharded else 1
    step = gpu_speed.sweep_s(_ADAM_BYTES * stage_parameters(shape, setup) / shards)
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
    if setup.recompute is Recompute.SELECTIVE and not stack.flash:
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
    ordinary = stage_s(shape.layers / pp) + hop
    return num_micro_batches * slowest + (pp - 1) * ordinary / setup.virtual


def _hop_s(shape: DecoderShape, setup: TrainingSetup, stack: Stack, gpu_speed: GpuSpeed) -> float:
    """Return the seconds that a stage loses to its neighbours, per micro-batch."""
    if setup.layout.pp == 1:
        return 0.0
    # Each rank of a tensor-parallel group sends its share, forward and backward.
    num_bytes = 2 * 2 * setup.tokens(shape) * shape.hidden / setup.layout.tp
    sending = gpu_speed.exposed(num_bytes / gpu_speed.net_bytes_per_s, stack)
    return setup.virtual * (sending + _HOP_S)


def _exchange_s(
    shape: DecoderShape, setup: TrainingSetup, stack: Stack, gpu_speed: GpuSpeed
) -> float:
    """Return the seconds of reducing gradients and gathering weights, nothing hidden."""
    layout, gpu = setup.layout, gpu_speed.gpu
    if layout.dp == 1:
        return 0.0
    gathered = _WEIGHT_BYTES if setup.sharded else stack.gradient_bytes
    num_bytes = stage_parameters(shape, setup) * (stack.gradient_bytes + gathered)
    rate = gpu_speed.link_bytes_per_s
    if layout.num_workers > gpu.node_gpus:
        # Replicas in one node share the adapters of all of them.
        num_inside = max(1, min(layout.dp, gpu.node_gpus // layout.tp))
        rate = min(rate, gpu_speed.net_bytes_per_s * num_inside)
    return num_bytes * (layout.dp - 1) / layout.dp / rate
