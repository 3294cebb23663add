"""What replicas send each other: gradients and weights, and how much of that computation hides.

Replicas that hold all weights exchange once an iteration. Fully sharded ones (FSDP) gather the
weights of each layer and scatter its gradients in every micro-batch.
"""

from typing import Final

from profiles.estimate.gpu_memory import stage_parameters
from profiles.estimate.layer import GpuSpeed
from profiles.estimate.shape import DecoderShape
from profiles.estimate.training_setup import Stack, TrainingSetup

_WEIGHT_BYTES: Final = 2.0
_FP8_WEIGHT_BYTES: Final = 1.0
"""Weights are gathered in the precision of the products that need them, but not by PyTorch."""


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
