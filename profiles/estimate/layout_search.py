"""The fastest way to train that fits into memory.

Every choice that is not given is tried: tensor and pipeline sizes, virtual stages, micro-batch,
recomputation, distributed optimizer. If nothing fits, the choice of least memory is returned.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from profiles.estimate.gpu_memory import (
    available_bytes,
    needed_bytes,
    offloaded_bytes,
    stage_layers,
)
from profiles.estimate.iteration_time import iteration_s
from profiles.estimate.layer import GpuSpeed
from profiles.estimate.shape import DecoderShape
from profiles.estimate.training_setup import Recompute, Stack, TrainingSetup
from profiles.layout import Layout

_MICRO_BATCHES: Final = (1, 2, 4, 8, 16)
_LIMITED: Final = (Recompute.FULL, Recompute.OFFLOAD)
_TENSOR_SIZES: Final = (1, 2, 4, 8)
"""Megatron's usual ones; larger groups than a node are never the best."""


@dataclass(frozen=True, slots=True)
class LayoutRequest:
    """What is fixed before the search; None leaves it open."""

    workers: int
    global_batch: int
    tp: int | None = None
    pp: int | None = None
    virtual: int | None = None
    micro_batch: int | None = None
    recompute: Recompute | None = None
    sharded: bool | None = None
    cp: int = 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A way to train.

    Attributes:
        setup: The way.
        iteration_s: Seconds of an iteration.
        needed_bytes: Memory of the fullest GPU.
        fits: Whether the GPU has that much.
    """

    setup: TrainingSetup
    iteration_s: float
    needed_bytes: float
    fits: bool


def best(
    shape: DecoderShape, request: LayoutRequest, stack: Stack, gpu_speed: GpuSpeed
) -> Estimate | None:
    """Return the fastest setup that fits, else the one that needs least memory.

    Ties go to the setup that is tried first: few tensor ranks, few stages, nothing recomputed. None
    only where the workers can't be divided as the request says.
    """
    limit = available_bytes(gpu_speed.gpu)
    fastest: Estimate | None = None
    smallest: tuple[float, TrainingSetup] | None = None
    for tried in setups(shape, request, stack, offloads=gpu_speed.gpu.host_bytes_per_s > 0):
        count = tried.num_micro_batches(request.global_batch)
        needed = needed_bytes(shape, tried, stack, count, is_fp8=gpu_speed.is_fp8)
        if needed > limit:
            if smallest is None or needed < smallest[0]:
                smallest = needed, tried
            continue
        setup = tried
        if tried.recompute in _LIMITED and request.recompute is None:
            setup = _with_fewest_recomputed(shape, tried, stack, count, gpu_speed)
            needed = needed_bytes(shape, setup, stack, count, is_fp8=gpu_speed.is_fp8)
        if _exceeds_host(shape, setup, stack, gpu_speed) and request.recompute is None:
            continue
        seconds = iteration_s(shape, setup, stack, gpu_speed, request.global_batch)
        if fastest is None or seconds < fastest.iteration_s:
            fastest = Estimate(setup, seconds, needed, fits=True)
    if fastest is not None or smallest is None:
        return fastest
    seconds = iteration_s(shape, smallest[1], stack, gpu_speed, request.global_batch)
    return Estimate(smallest[1], seconds, smallest[0], fits=False)


def setups(
    shape: DecoderShape, request: LayoutRequest, stack: Stack, *, offloads: bool = False
) -> Iterator[TrainingSetup]:
    """Yield every way to train that the request, the stack and the link to the host allow."""
    modes = [request.recompute] if request.recompute else list(Recompute)
    if stack.flash and not request.recompute:
        modes.remove(Recompute.SELECTIVE)  # flash attention computes its square again anyway
    if not (offloads and stack.overlaps) and not request.recompute:
        modes.remove(Recompute.OFFLOAD)
    for layout in layouts(shape, request):
        samples = -(-request.global_batch // layout.dp)
        sizes = [size for size in _MICRO_BATCHES if samples % size == 0]
        shards = [True, False] if stack.shards_optimizer and layout.dp * request.cp > 1 else [False]
        for micro_batch in [request.micro_batch] if request.micro_batch else sizes:
            counts = _virtual_counts(shape, layout, -(-samples // micro_batch), stack.max_virtual)
            for virtual in [request.virtual] if request.virtual else counts:
                for recompute in modes:
                    for sharded in shards if request.sharded is None else [request.sharded]:
                        yield TrainingSetup(
                            layout, virtual, micro_batch, recompute, sharded, cp=request.cp
                        )


def layouts(shape: DecoderShape, request: LayoutRequest) -> Iterator[Layout]:
    """Yield every layout of the request's workers, those with uneven stages included.

    A context group counts as one worker of a layout.
    """
    workers = max(1, request.workers // request.cp)
    if request.tp and request.pp:
        yield Layout(request.tp, request.pp, max(1, workers // (request.tp * request.pp)))
        return
    for tp in [request.tp] if request.tp else _TENSOR_SIZES:
        if not request.tp and (shape.heads % tp or workers % tp):
            continue
        rest = max(1, workers // tp)
        for pp in [request.pp] if request.pp else range(1, min(shape.layers, rest) + 1):
            dp = max(1, rest // pp)
            if request.pp or (rest % pp == 0 and dp <= request.global_batch):
                yield Layout(tp, pp, dp)


def _exceeds_host(
    shape: DecoderShape, setup: TrainingSetup, stack: Stack, gpu_speed: GpuSpeed
) -> bool:
    """Say whether what the stages offload of all micro-batches in flight exceeds the host."""
    waiting = offloaded_bytes(shape, setup, stack, is_fp8=gpu_speed.is_fp8)
    return waiting * setup.layout.pp > gpu_speed.gpu.host_bytes


def _with_fewest_recomputed(
    shape: DecoderShape,
    setup: TrainingSetup,
    stack: Stack,
    num_micro_batches: int,
    gpu_speed: GpuSpeed,
) -> TrainingSetup:
    """Return the setup with as few layers computed again or offloaded as fit; all of them do."""
    limit = available_bytes(gpu_speed.gpu)
    layers = stage_layers(shape.layers, setup.layout.pp, setup.virtual)
    one, every = (
        needed_bytes(
            shape,
            replace(setup, recompute_layers=count),
            stack,
            num_micro_batches,
            is_fp8=gpu_speed.is_fp8,
        )
        for count in (1, layers)
    )
    if one <= limit:
        return replace(setup, recompute_layers=1)
    # Memory falls by the same amount with each layer.
    count = 1 + math.ceil((one - limit) / (one - every) * (layers - 1))
    return replace(setup, recompute_layers=min(count, layers))


def _virtual_counts(
    shape: DecoderShape, layout: Layout, num_micro_batches: int, limit: int
) -> list[int]:
    # Megatron interleaves where micro-batches come in whole rounds of the pipeline.
    if layout.pp == 1 or num_micro_batches % layout.pp:
        return [1]
    per_stage = -(-shape.layers // layout.pp)
    return [count for count in range(1, min(per_stage, limit) + 1) if per_stage % count == 0]
