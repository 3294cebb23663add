"""What a GPU has to hold: weights, gradients, optimizer state and activations.

Activations follow Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
Models" (arXiv 2205.05198): a layer keeps s b h (34 + 5 a s / h) bytes, of which tensor parallelism
divides all but 10 s b h unless the sequence is divided too, selective recomputation (and flash
attention) drops the square, and full recomputation keeps 2 s b h.
"""

from typing import Final

from profiles.estimate.hardware import GIB, Gpu
from profiles.estimate.shape import DecoderShape
from profiles.estimate.training_setup import Recompute, Stack, TrainingSetup

_RESERVED: Final = 4.0 * GIB
"""Context, communication buffers and fragments, which no formula counts."""
_WEIGHT_AND_GRADIENT: Final = 6.0
"""Bytes of a parameter: two of bf16, four of the gradient in fp32."""
_OPTIMIZER: Final = 12.0
"""Bytes of a parameter: fp32 copy and two moments of Adam."""
_EAGER_STATE: Final = 16.0
"""Bytes of a parameter under PyTorch's FSDP: weight, gradient and two moments in fp32; weights in
bf16 exist only while a layer works."""
_SELECTIVE_EAGER: Final = 0.5
"""Share of a layer's activations that PyTorch's selective recomputation keeps."""
_LOGITS: Final = 8.0
"""Bytes of one logit: bf16, its fp32 copy, and the gradient in bf16."""


def stage_layers(layers: int, stages: int, virtual: int) -> int:
    """Return the layers of the fullest stage; stages may be uneven."""
    return virtual * -(-layers // (stages * virtual))


def stage_parameters(shape: DecoderShape, setup: TrainingSetup) -> float:
    """Return the parameters of one GPU of the fullest stage."""
    layout = setup.layout
    layers = stage_layers(shape.layers, layout.pp, setup.virtual)
    ends = 1 if layout.pp > 1 or shape.tied else 2
    return (layers * shape.layer_weights + ends * shape.embedding_weights) / layout.tp


def input_bytes(shape: DecoderShape, setup: TrainingSetup, stack: Stack) -> float:
    """Return what a layer keeps of one micro-batch where it is computed again in full, bytes."""
    whole = setup.layout.tp if stack.sequence_parallel else 1
    return 2.0 * setup.tokens(shape) * shape.hidden / whole


def layer_activation_bytes(
    shape: DecoderShape, setup: TrainingSetup, stack: Stack, *, is_fp8: bool = False
) -> float:
    """Return the bytes that a layer keeps of a micro-batch without full recomputation."""
    elements = setup.tokens(shape) * shape.hidden
    tp = setup.layout.tp
    whole = tp if stack.sequence_parallel else 1
    ffn = shape.ffn / shape.hidden
    # Two norms, the inputs of both blocks and the masks of both dropouts stay whole without
    # sequence parallelism; queries, keys, values and the feed-forward's middle are always divided.
    shared = 4 + 2 + 2 + 1 + 1
    divided = 2 + 4 * shape.kv_share + 2 + ffn * (6 if shape.gated else 4)
    if is_fp8:  # one byte less of the inputs of both blocks, and of the second product's
        shared, divided = shared - 2, divided - ffn
    square = 5.0 * shape.heads * shape.seq / shape.hidden
    if stack.flash or setup.recompute is Recompute.SELECTIVE:
        square = 0.0
    kept = _SELECTIVE_EAGER if setup.recompute is Recompute.SELECTIVE and stack.eager else 1.0
    return elements * kept * (shared / whole + (divided + square) / tp)


def needed_bytes(
    shape: DecoderShape,
    setup: TrainingSetup,
    stack: Stack,
    num_micro_batches: int,
    *,
    is_fp8: bool = False,
) -> float:
    """Return the memory that the fullest GPU needs, bytes."""
    layout = setup.layout
    shards = setup.state_shards(stack)
    if stack.fully_sharded:
        each = _EAGER_STATE if stack.eager else _WEIGHT_AND_GRADIENT + _OPTIMIZER
        state = stage_parameters(shape, setup) * each / shards
        # The layer at work and the one that is fetched meanwhile are whole.
        state += 2 * _WEIGHT_AND_GRADIENT * shape.layer_weights / layout.tp
    else:
        state = stage_parameters(shape, setup) * (_WEIGHT_AND_GRADIENT + _OPTIMIZER / shards)
    layers = stage_layers(shape.layers, layout.pp, setup.virtual)
    in_flight = float(layout.pp)
    if setup.virtual > 1:
        in_flight *= 1 + (layout.pp - 1) / (layout.pp * setup.virtual)
    in_flight = min(in_flight, num_micro_batches)
    recomputed, offloaded = setup.recomputed(layers), setup.offloaded(layers)
    whole = layer_activation_bytes(shape, setup, stack, is_fp8=is_fp8)
    kept = in_flight * (
        (layers - recomputed - offloaded) * whole + recomputed * input_bytes(shape, setup, stack)
    )
    at_work = 0.0
    if recomputed or offloaded:
        at_work = whole  # the layer that is being computed again, or is on its way
    logits = _LOGITS * setup.tokens(shape) * shape.vocab / layout.tp if layout.pp == 1 else 0.0
    return state + kept + max(at_work, logits)  # logits are freed before the first layer works


def offloaded_bytes(
    shape: DecoderShape, setup: TrainingSetup, stack: Stack, *, is_fp8: bool = False
) -> float:
    """Return what a stage's GPU keeps in the host's memory of one micro-batch, bytes."""
    layers = setup.offloaded(stage_layers(shape.layers, setup.layout.pp, setup.virtual))
    return layers * layer_activation_bytes(shape, setup, stack, is_fp8=is_fp8)


def available_bytes(gpu: Gpu) -> float:
    """Return the memory that a training process can fill, bytes."""
    return gpu.memory_bytes - _RESERVED


def memory_excess(needed: float, gpu: Gpu) -> str:
    """Return the words for a setup that does not fit into memory."""
    usable = available_bytes(gpu) / GIB
    return f"needs at least {needed / GIB:.0f} GiB per GPU, of which {usable:.0f} GiB are usable"
