"""Time of one transformer layer, and of the output layer, for one micro-batch on one GPU.

A matrix product takes its operations at a share of the peak, plus the traffic of its operands:
small ones are slow because of the second term. Everything else in a layer is bound by memory and
counted in passes over the activations. Tensor-parallel collectives are counted as rings.
"""

from dataclasses import dataclass
from typing import Final

from profiles.estimate.constants import Constants
from profiles.estimate.hardware import Gpu
from profiles.estimate.shape import DecoderShape
from profiles.estimate.training_setup import Stack, TrainingSetup

_FLASH_SHARE: Final = 0.45
"""Share of the peak that flash attention reaches, forward and backward (Dao, arXiv 2307.08691,
figures 4 to 6), of the causal half of the square; Megatron's formula counts the whole."""
_FLASH_SHARE_2: Final = 0.35
"""The same of FlashAttention-2, which PyTorch has, on Hopper and later (arXiv 2407.08608)."""
_NET_SHARE: Final = 0.9
"""Share of the adapters' rate that large transfers reach."""
_LAUNCH_S: Final = 1e-5
"""Start of one kernel, as far as nothing hides it."""
_ODD_HEAD: Final = 3.0
"""Factor of time of attention's products where a head's size is no multiple of eight: tensor cores
want rows of 16 bytes (NVIDIA, "Matrix Multiplication Background User's Guide")."""
_CAST_INPUT: Final = 2.0
"""Bytes of an input of a product in fp8: it is written twice, straight and transposed, by the
kernel that makes it (Transformer Engine)."""
_CAST_EAGER: Final = 4.0
"""The same where a kernel of its own reads it for that."""
_CAST_GRADIENT: Final = 4.0
"""Bytes of a gradient of a product in fp8: it is read in bf16, and written twice."""


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Seconds of one layer and micro-batch.

    Attributes:
        forward_s: Forward computation.
        attention_s: The part of it that selective recomputation repeats.
        backward_s: Backward computation, nothing recomputed.
        collective_s: Tensor-parallel collectives of one direction, forward or backward.
    """

    forward_s: float
    attention_s: float
    backward_s: float
    collective_s: float


class GpuSpeed:
    """How fast one kind of GPU works, with its links, for given constants."""

    def __init__(self, gpu: Gpu, constants: Constants, *, is_fp8: bool = False) -> None:
        self.gpu = gpu
        self.constants = constants
        self.net_bytes_per_s = gpu.net_bytes_per_s * _NET_SHARE
        self.link_bytes_per_s = gpu.link_bytes_per_s * constants.link
        self._flops_per_s = gpu.peak_flops_per_s * constants.matmul(gpu.generation)
        self.is_fp8 = is_fp8

    def matmul_s(self, m: float, n: float, k: float, *, is_fp8: bool = False) -> float:
        """Return the seconds of an [m, k] by [k, n] product with a result in bf16."""
        speed = self.constants.fp8 if is_fp8 else 1.0
        num_bytes = (1 if is_fp8 else 2) * (m * k + k * n) + 2 * m * n
        return (
            2 * m * n * k / (self._flops_per_s * speed)
            + num_bytes / self.gpu.memory_bytes_per_s
            + _LAUNCH_S
        )

    def sweep_s(self, num_bytes: float) -> float:
        """Return the seconds of memory-bound work that moves ``num_bytes``."""
        return num_bytes / (self.gpu.memory_bytes_per_s * self.constants.memory)

    def exposed(self, seconds: float, stack: Stack) -> float:
        """Return the part of tensor or pipeline traffic that computation does not hide."""
        return seconds * (1 - self.constants.hidden_tensor) if stack.overlaps else seconds

    def layer(self, shape: DecoderShape, setup: TrainingSetup, stack: Stack) -> LayerTime:
        """Return the time of one layer."""
        tp, tokens, hidden = setup.layout.tp, setup.tokens(shape), shape.hidden
        products = self._products_s(shape, tp, tokens)
        whole = tp if stack.sequence_parallel else 1
        # Passes of two bytes: norms read and write (4), dropout and residual (7), the layout of
        # queries, keys and values (6 with as many kv heads), activation of the feed-forward.
        middle = (3 if shape.gated else 2) * shape.ffn / hidden
        passes = 11 / whole + (2 + 4 * shape.kv_share + middle) / tp
        eager = self.constants.eager if stack.eager else 1.0
        sweep = self.sweep_s(2 * tokens * hidden * passes * eager)
        cast, cast_back = self._casts_s(shape, tp, tokens, stack) if self.is_fp8 else (0.0, 0.0)
        attention, attention_back = self._attention_s(shape, setup, stack)
        # One all-reduce after each of the two blocks, or its halves with sequence parallelism.
        collective = self._all_reduce_s(2 * 2 * tokens * hidden, tp)
        return LayerTime(
            forward_s=products + sweep + cast + attention,
            attention_s=attention,
            backward_s=2 * (products + sweep) + cast_back + attention_back,
            collective_s=self.exposed(collective, stack),
        )

    def output_s(self, shape: DecoderShape, setup: TrainingSetup) -> float:
        """Return the seconds of logits and loss, forward and backward."""
        tokens, vocab = setup.tokens(shape), shape.vocab / setup.layout.tp
        # Logits are written, and read in fp32 for the maximum, the sum and the gradient.
        return 3 * self.matmul_s(tokens, vocab, shape.hidden) + self.sweep_s(16 * tokens * vocab)

    def _products_s(self, shape: DecoderShape, tp: int, tokens: float) -> float:
        return sum(self.matmul_s(tokens, n, k, is_fp8=self.is_fp8) for n, k in _widths(shape, tp))

    def _casts_s(
        self, shape: DecoderShape, tp: int, tokens: float, stack: Stack
    ) -> tuple[float, float]:
        """Return the seconds of making operands in fp8, forward and backward."""
        outputs, inputs = (sum(each) for each in zip(*_widths(shape, tp), strict=True))
        forward = self.sweep_s((_CAST_EAGER if stack.eager else _CAST_INPUT) * tokens * inputs)
        return forward, self.sweep_s(_CAST_GRADIENT * tokens * outputs)

    def _attention_s(
        self, shape: DecoderShape, setup: TrainingSetup, stack: Stack
    ) -> tuple[float, float]:
        heads = shape.heads * setup.micro_batch / setup.layout.tp
        square = heads * shape.seq**2 / setup.cp
        if stack.flash:
            causal_flops = 2 * square * shape.head_size
            is_second = stack.eager and self.gpu.generation != "ampere"
            share = _FLASH_SHARE_2 if is_second else _FLASH_SHARE
            forward = causal_flops / (self.gpu.peak_flops_per_s * share)
            ring = self._ring_s(shape, setup)
            # Keys and values travel beside the computation; backward, so do their gradients.
            waits = max(0.0, ring - forward), max(0.0, 2 * ring - 2.5 * forward)
            return forward + waits[0], 2.5 * forward + waits[1]
        product = 2 * heads * self.matmul_s(shape.seq, shape.seq, shape.head_size)
        if shape.head_size % 8:
            product *= _ODD_HEAD
        softmax = self.sweep_s(self.constants.square_bytes * square)
        # Backward, two products for each; softmax and dropout also read what they wrote.
        return product + softmax, 2 * product + 1.2 * softmax

    def _ring_s(self, shape: DecoderShape, setup: TrainingSetup) -> float:
        """Return the seconds in which keys and values pass all GPUs of a context group."""
        tp = setup.layout.tp
        num_bytes = 2 * 2 * setup.tokens(shape) * shape.hidden * shape.kv_share / tp
        is_inside = tp * setup.cp <= self.gpu.node_gpus
        rate = self.link_bytes_per_s if is_inside else self.net_bytes_per_s
        return (setup.cp - 1) * num_bytes / rate

    def _all_reduce_s(self, num_bytes: float, tp: int) -> float:
        is_inside = tp <= self.gpu.node_gpus
        rate = self.link_bytes_per_s if is_inside else self.net_bytes_per_s
        return 2 * (tp - 1) / tp * num_bytes / rate


def _widths(shape: DecoderShape, tp: int) -> tuple[tuple[float, float], ...]:
    """Return width of result and input of the four products of a layer, on one GPU."""
    hidden, ffn = shape.hidden, shape.ffn
    return (
        (hidden * (1 + 2 * shape.kv_share) / tp, hidden),
        (hidden, hidden / tp),
        ((2 if shape.gated else 1) * ffn / tp, hidden),
        (hidden, ffn / tp),
    )
