"""How a model is trained: the choices the search has, and what the software can do.

A published point seldom names its software's abilities, so a stack stands for an era: what fuses,
shards and overlaps changed a few times since 2021, and each change is physics that can be counted.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from profiles.estimate.shape import DecoderShape
from profiles.layout import Layout


class Recompute(StrEnum):
    """What the backward pass computes again, in Megatron's words.

    ``OFFLOAD`` computes nothing again: activations wait in the host's memory (Megatron-Core's
    ``cpu_offloading``), which the link to a Grace CPU is fast enough for.
    """

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"
    OFFLOAD = "offload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What a generation of the software does.

    Attributes:
        name: As on the command line.
        flash: Attention never writes its square of weights to memory.
        sequence_parallel: Norms and dropout are divided over the tensor-parallel group.
        max_virtual: Virtual stages that are tried where a source does not state them. Few sources
            of before 2024 say whether they interleave: two stand between none and many.
        overlaps: Communication runs beside computation.
        shards_optimizer: The optimizer's state can be divided over the replicas.
        gradient_bytes: Bytes of a gradient while it is reduced.
        is_deepspeed: Whether the pipeline is DeepSpeed's.
        fully_sharded: Weights and gradients are divided over the replicas too (FSDP): every
            micro-batch gathers the weights twice and scatters the gradients.
        shard_group: Replicas that share one copy of the state where it is fully sharded (HSDP: a
            node); None for all of them.
        eager: Elementwise operations run one by one, as PyTorch does without a compiler.
    """

    name: str
    flash: bool = False
    sequence_parallel: bool = False
    max_virtual: int = 1
    overlaps: bool = False
    shards_optimizer: bool = False
    gradient_bytes: float = 4.0
    is_deepspeed: bool = False
    fully_sharded: bool = False
    shard_group: int | None = None
    eager: bool = False


PTD: Final = Stack(name="ptd", gradient_bytes=2.0)
"""Megatron-LM of 2021 (arXiv 2104.04473), fp16."""
DEEPSPEED: Final = Stack(
    name="deepspeed", shards_optimizer=True, gradient_bytes=2.0, is_deepspeed=True
)
"""Megatron-DeepSpeed of 2021 and 2022 (BLOOM, MT-NLG): its own pipeline engine, ZeRO-1."""
CLASSIC: Final = Stack(name="classic", sequence_parallel=True, max_virtual=2, shards_optimizer=True)
"""Megatron-LM and NeMo of 2022 and 2023: sequence parallelism, selective recomputation."""
CORE: Final = Stack(
    name="core",
    flash=True,
    sequence_parallel=True,
    max_virtual=64,
    overlaps=True,
    shards_optimizer=True,
)
"""Megatron-Core since 2024, with Transformer Engine: flash attention, overlapped communication."""
CORE_FSDP: Final = replace(CORE, name="core-fsdp", max_virtual=1, fully_sharded=True)
"""Megatron-Core's FSDP: the layers of ``CORE``, with all state divided over the replicas."""
FSDP: Final = replace(CORE_FSDP, name="fsdp", eager=True)
"""PyTorch's FSDP with flash attention: llm-foundry, torchtitan and others."""
HSDP: Final = replace(FSDP, name="hsdp", shard_group=8)
"""The same with one copy of the state in every node of eight GPUs."""

STACK_BY_NAME: Final = {
    stack.name: stack for stack in (PTD, DEEPSPEED, CLASSIC, CORE, CORE_FSDP, FSDP, HSDP)
}


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """One way to train.

    Attributes:
        layout: Tensor, pipeline and data parallelism.
        virtual: Virtual stages of each pipeline stage; 1 does not interleave.
        micro_batch: Samples of a micro-batch.
        recompute: What is computed again.
        recompute_layers: Layers of a stage that full recomputation or offloading is limited to
            (Megatron's block method); None for all of them.
        sharded: Whether the optimizer is distributed over the replicas.
        cp: GPUs that divide each sample's tokens (context parallelism), beside the layout's.
    """

    layout: Layout
    virtual: int = 1
    micro_batch: int = 1
    recompute: Recompute = Recompute.NONE
    sharded: bool = False
    recompute_layers: int | None = None
    cp: int = 1

    @property
    def num_workers(self) -> int:
        """GPUs that the setup needs."""
        return self.layout.num_workers * self.cp

    @property
    def copies(self) -> int:
        """GPUs that hold the same weights where nothing is sharded."""
        return self.layout.dp * self.cp

    def state_shards(self, stack: Stack) -> int:
        """Return the GPUs that the optimizer's state is divided over."""
        if stack.fully_sharded and stack.shard_group is not None:
            return math.gcd(self.copies, stack.shard_group)
        return self.copies if self.sharded or stack.fully_sharded else 1

    def recomputed(self, layers: float) -> float:
        """Return how many of a stage's ``layers`` are computed again in full."""
        return self._limited(layers) if self.recompute is Recompute.FULL else 0.0

    def offloaded(self, layers: float) -> float:
        """Return how many of a stage's ``layers`` have their activations in the host's memory."""
        return self._limited(layers) if self.recompute is Recompute.OFFLOAD else 0.0

    def _limited(self, layers: float) -> float:
        return layers if self.recompute_layers is None else min(self.recompute_layers, layers)

    def tokens(self, shape: DecoderShape) -> float:
        """Return the tokens of a micro-batch on one GPU."""
        return shape.seq * self.micro_batch / self.cp

    def num_micro_batches(self, global_batch: int) -> int:
        """Return the micro-batches of one replica; the last one may be short of samples."""
        return -(-global_batch // (self.layout.dp * self.micro_batch))
