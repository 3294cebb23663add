"""What the model says of a published measurement, at the layout that it names.

A point states part of the truth only. What is open is searched: the fastest that fits into memory.
What the software could do then follows from its name and its time (``stack_of``).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from profiles.estimate.constants import Constants
from profiles.estimate.gpu_memory import available_bytes, memory_excess, needed_bytes
from profiles.estimate.hardware import GPU_BY_NAME, Gpu, find_gpu, unmeasured
from profiles.estimate.iteration_time import flops_per_s, iteration_s
from profiles.estimate.layer import GpuSpeed
from profiles.estimate.layout_search import LayoutRequest, best
from profiles.estimate.points import Point
from profiles.estimate.shape import DecoderShape
from profiles.estimate.training_setup import (
    CLASSIC,
    CORE,
    CORE_FSDP,
    DEEPSPEED,
    FSDP,
    HSDP,
    PTD,
    Recompute,
    Stack,
    TrainingSetup,
)
from profiles.layout import Layout
from profiles.records import RecordError

_SHARDING: Final = (
    (re.compile(r"hsdp|hybrid.?shard"), HSDP),
    (re.compile(r"fsdp|fully.?shard|torchtitan|llm-?foundry|composer|zero-?3"), FSDP),
)
_OLD: Final = re.compile(r"ptd|megatron-lm(?!.*core)|nemo megatron|fastertransformer")
"""Software of before Megatron-Core. All other software is taken for today's, on an A100 too."""
_PRECISIONS: Final = ("bf16", "fp16", "fp8")

_KNOWN: Final[dict[str, dict[tuple[int, int, int], tuple[int, int, bool]]]] = {
    "llama3": {
        (32, 4096, 32): (8, 14336, True),
        (80, 8192, 64): (8, 28672, True),
        (126, 16384, 128): (8, 53248, True),
    },
    "llama2": {
        (32, 4096, 32): (32, 11008, True),
        (40, 5120, 40): (40, 13824, True),
        (80, 8192, 64): (8, 28672, True),
    },
    "nemotron4": {(32, 6144, 48): (8, 24576, False), (96, 18432, 96): (8, 73728, False)},
}
"""Models by name and (layers, hidden, heads): kv heads, width of the feed-forward, gate.
Llama 3: arXiv 2407.21783; Llama 2: arXiv 2307.09288; Nemotron-4: arXiv 2402.16819 and
2406.11704."""


@dataclass(frozen=True, slots=True)
class PredictionCase:
    """A point made ready: everything that a prediction needs.

    Attributes:
        point: The point.
        shape: Its model.
        gpu: Its hardware.
        stack: Abilities of its software.
        request: The part of its setup that it states.
    """

    point: Point
    shape: DecoderShape
    gpu: Gpu
    stack: Stack
    request: LayoutRequest

    @property
    def series(self) -> str:
        """Points of one source and software version."""
        return self.point.series or self.point.id

    @property
    def measured_flops_per_s(self) -> float | None:
        """What all GPUs together were measured to achieve, by Megatron's count."""
        tflops = self.point.model_tflops_per_gpu
        if tflops is None:
            return None
        return tflops * 1e12 * self.request.workers / self.counted_share

    @property
    def counted_share(self) -> float:
        """Operations that the source counts over those that Megatron counts."""
        if self.point.flops != "causal":
            return 1.0
        return self.shape.causal_flops_per_sample / self.shape.flops_per_sample

    @property
    def unmeasured(self) -> list[str]:
        """Name what no published point has that the constants are fitted on."""
        return unmeasured(self.gpu, is_fp8=self.is_fp8, cp=self.request.cp)

    @property
    def is_fp8(self) -> bool:
        """Whether the layers' products are in fp8."""
        return "fp8" in (self.point.precision or "").lower()

    def misfit(self, setup: TrainingSetup, constants: Constants) -> str:
        """Return why a setup does not fit: its memory, or too few samples."""
        gpu_speed = self.gpu_speed(constants)
        count = setup.num_micro_batches(self.request.global_batch)
        needed = needed_bytes(self.shape, setup, self.stack, count, is_fp8=gpu_speed.is_fp8)
        if needed <= available_bytes(self.gpu):
            return "every layout has more replicas than the batch has samples"
        return memory_excess(needed, self.gpu)

    def gpu_speed(self, constants: Constants) -> GpuSpeed:
        """Return the hardware with these constants."""
        return GpuSpeed(self.gpu, constants, is_fp8=self.is_fp8)

    def setup(self, constants: Constants) -> tuple[TrainingSetup, bool]:
        """Return the fastest way to train that the point leaves open, and whether it fits."""
        found = best(self.shape, self.request, self.stack, self.gpu_speed(constants))
        if found is None:  # more workers than samples: most of them idle
            return TrainingSetup(Layout(dp=self.request.workers)), False
        return found.setup, found.fits

    def flops_per_s(self, setup: TrainingSetup, constants: Constants) -> float:
        """Return T of all GPUs together."""
        batch = self.request.global_batch
        seconds = iteration_s(self.shape, setup, self.stack, self.gpu_speed(constants), batch)
        return flops_per_s(self.shape, batch, seconds)


def stack_of(gpu: Gpu, framework: str, precision: str, recompute: Recompute | None) -> Stack:
    """Return what the software of a published point could do."""
    name = framework.lower()
    for pattern, stack in _SHARDING:
        if pattern.search(name):
            is_megatron = "core" in name or "megatron" in name or "nemo" in name
            return CORE_FSDP if is_megatron and stack is FSDP else stack
    if "deepspeed" in name:
        return DEEPSPEED
    if gpu.generation != "ampere" or not _OLD.search(name):
        return CORE
    if "ptd" in name or ("fp16" in precision.lower() and recompute is Recompute.FULL):
        return PTD
    return CLASSIC


def case_of(point: Point) -> PredictionCase | None:
    """Return the case of a point, or None where the point lacks what it needs.

    Raises:
        RecordError: The point names an unknown GPU or precision.
    """
    if (
        not (point.layers and point.hidden and point.heads and point.seq and point.vocab)
        or not (point.gpus and point.global_batch)
        or point.gpu_type is None
    ):
        return None
    gpu = find_gpu(point.gpu_type)
    if gpu is None:
        raise RecordError(
            f"gpu_type: {point.gpu_type!r:.80} is not known; known: {', '.join(GPU_BY_NAME)}"
        )
    if "fp8" in (point.precision or "").lower() and not gpu.has_fp8:
        raise RecordError(f"precision: {gpu.name} has no fp8")
    if point.precision is not None and not any(
        each in point.precision.lower() for each in _PRECISIONS
    ):
        raise RecordError(
            f"precision: {point.precision!r:.80} is not known; known: {', '.join(_PRECISIONS)}"
        )
    stack = stack_of(gpu, point.framework or "", point.precision or "bf16", point.recompute)
    kv_heads, ffn, gated = _unstated(point, point.layers, point.hidden, point.heads)
    shape = DecoderShape(
        layers=point.layers, hidden=point.hidden, heads=point.heads, seq=point.seq,
        vocab=point.vocab, kv_heads=point.kv_heads or kv_heads, ffn=point.ffn or ffn,
        gated=gated if point.gated is None else point.gated,
    )  # fmt: skip
    request = _request_of(point, stack, point.gpus, point.global_batch)
    return PredictionCase(point, shape, gpu, stack, request)


def _unstated(point: Point, layers: int, hidden: int, heads: int) -> tuple[int, int, bool]:
    """Return kv heads, width and gate of the feed-forward as the model's name gives them."""
    name = "".join(char for char in (point.model or "").lower() if char.isalnum())
    for known, shapes in _KNOWN.items():
        if known in name and (layers, hidden, heads) in shapes:
            return shapes[layers, hidden, heads]
    return heads, 4 * hidden, False


def _request_of(point: Point, stack: Stack, gpus: int, global_batch: int) -> LayoutRequest:
    return LayoutRequest(
        workers=gpus,
        global_batch=global_batch,
        tp=point.tp,
        pp=point.pp,
        virtual=point.virtual_stages,
        cp=point.cp or 1,
        micro_batch=point.micro_batch,
        recompute=point.recompute,
        sharded=True if stack is DEEPSPEED else None,
    )


def error_of(predicted: float, measured: float) -> float:
    """Return the relative error, signed."""
    return predicted / measured - 1


def spread(errors: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 90th percentile of the errors' sizes; at least one."""
    sizes = np.abs(np.asarray(errors))
    return float(np.median(sizes)), float(np.quantile(sizes, 0.9))
