"""A training program of one's own: megatron-core used directly, and handed over as a ``Loop``.

A small Llama-like model (RMSNorm, rotary positions, grouped queries, gated feed-forward, no biases)
learns the documents of Megatron's mock data set. ``docs/own-training-loop.md`` explains every step.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import torch
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import (
    GPTDatasetConfig,
    MockGPTDataset,
    MockGPTLowLevelDataset,
)
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig

from nodeagent.public import Context, Loop

VOCABULARY = 256  # bytes
NUM_SAMPLES = 10_000  # of the training split, before it begins anew
BUCKET_SIZE = 10_000  # elements; small, so that this small model has several buckets


def build(context: Context) -> Loop:
    """Return the loop of one rank."""
    training = context.training
    model = build_model(context)
    optimizer = build_optimizer(model, training.learning_rate)
    data = Data(context)
    return Loop(
        chunks=[model],
        optimizer=optimizer,
        forward_step=forward_step,
        micro_batch=data.micro_batch,
        num_micro_batches=training.num_micro_batches,
        micro_batch_size=training.micro_batch_size,
        seq_length=training.model.seq_length,
        reseed=context.reseed,
        max_grad_norm=1.0,
        before_step=learning_rate_schedule(context, optimizer),
    )


# --- model ---------------------------------------------------------------------------------


def build_model(context: Context) -> DistributedDataParallel:
    """Return this rank's part of the model, the same weights on every replica."""
    config = model_config(context)
    place, shape = context.place, context.training.model
    # Every stage draws weights of its own, and all replicas the same, without asking each other.
    torch.manual_seed(context.seed + 1000 * place.pp_rank)
    model = GPTModel(
        config,
        get_gpt_layer_local_spec(normalization="RMSNorm"),
        vocab_size=VOCABULARY,
        max_sequence_length=shape.seq_length,
        pre_process=place.is_first_stage,
        post_process=place.is_last_stage,
        position_embedding_type="rope",
        share_embeddings_and_output_weights=False,
    ).to(context.device)
    wrapped = DistributedDataParallel(
        config,
        DistributedDataParallelConfig(
            grad_reduce_in_fp32=True,
            overlap_grad_reduce=True,
            bucket_size=BUCKET_SIZE,
        ),
        Float16Module(config, model) if config.bf16 else model,
    )
    config.no_sync_func = wrapped.no_sync
    return wrapped


def model_config(context: Context) -> TransformerConfig:
    """Return Megatron's settings: sizes from the task's ``model`` table, the rest is ours."""
    place, shape = context.place, context.training.model
    dtype = torch.bfloat16 if shape.bf16 else torch.float32
    return TransformerConfig(
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        ffn_hidden_size=2 * shape.hidden_size,
        num_attention_heads=shape.num_attention_heads,
        num_query_groups=shape.num_attention_heads // 2,
        tensor_model_parallel_size=place.layout.tp,
        pipeline_model_parallel_size=place.layout.pp,
        normalization="RMSNorm",
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        hidden_dropout=shape.hidden_dropout,
        attention_dropout=shape.attention_dropout,
        bf16=shape.bf16,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        # The loop divides gradients once, by the tokens of the whole global batch.
        calculate_per_token_loss=True,
        use_cpu_initialization=True,
        # Fused kernels, which need Apex or a compiler.
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
    )


# --- optimizer -----------------------------------------------------------------------------


def build_optimizer(model: DistributedDataParallel, learning_rate: float) -> MegatronOptimizer:
    """Return Megatron's Adam; clipping is the loop's business."""
    config = OptimizerConfig(
        optimizer="adam",
        bf16=model.config.bf16,
        lr=learning_rate,
        min_lr=0.1 * learning_rate,
        weight_decay=0.01,
        adam_beta2=0.95,
        clip_grad=0.0,
    )
    return get_megatron_optimizer(config, [model], use_gloo_process_groups=False)


def learning_rate_schedule(context: Context, optimizer: MegatronOptimizer) -> Callable[[int], None]:
    """Return a warm-up and cosine decay, as a function of the iteration and of nothing else."""
    warmup = int(context.options.get("warmup_iterations", 2))
    scheduler = OptimizerParamScheduler(
        optimizer,
        init_lr=0.0,
        max_lr=context.training.learning_rate,
        min_lr=0.1 * context.training.learning_rate,
        lr_warmup_steps=warmup,
        lr_decay_steps=int(context.options.get("decay_iterations", 1000)),
        lr_decay_style="cosine",
        start_wd=0.01,
        end_wd=0.01,
        wd_incr_steps=1,
        wd_incr_style="constant",
    )

    def before_step(iteration: int) -> None:
        # Not step(1) per call: an iteration may be run again, or begun by a new process.
        scheduler.num_steps = iteration
        scheduler.step(0)

    return before_step


# --- data ----------------------------------------------------------------------------------


class Batch(NamedTuple):
    """One micro-batch; all tensors are of [micro_batch_size, seq_length]."""

    tokens: torch.Tensor
    position_ids: torch.Tensor
    labels: torch.Tensor
    loss_mask: torch.Tensor


class Bytes:
    """The part of a tokenizer that the data set asks for."""

    vocab_size = VOCABULARY
    eod = 0
    unique_identifiers: ClassVar = {"class": "Bytes", "vocab_size": VOCABULARY}


class Documents(MockGPTLowLevelDataset):
    """Megatron's mock documents, but fewer, so that an index of them is small."""

    size = 1000
    max_sequence_length = 200


class MockDataset(MockGPTDataset):
    """Megatron's mock data set, on fewer documents."""

    @staticmethod
    def build_low_level_dataset(
        dataset_path: str | None,  # noqa: ARG004 - of a data set on disk
        config: GPTDatasetConfig,
    ) -> MockGPTLowLevelDataset:
        """Return the documents; there is no file."""
        return Documents(config.tokenizer)


class Data:
    """A data set of Megatron, read at any sample at any time.

    Your own program has a ``GPTDataset`` here, with ``blend`` in its configuration.
    """

    def __init__(self, context: Context) -> None:
        training = context.training
        self._device = context.device
        self._num_micro_batches = training.num_micro_batches
        self._micro_batch_size = training.micro_batch_size
        config = GPTDatasetConfig(
            random_seed=context.seed,
            sequence_length=training.model.seq_length,
            tokenizer=Bytes(),
            split="1,1,1",
            path_to_cache=index_directory(context),
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
            create_attention_mask=False,
        )
        # Megatron's own builder: the first rank builds the index, and the others wait for it.
        sizes = [NUM_SAMPLES, None, None]
        built = BlendedMegatronDatasetBuilder(MockDataset, sizes, lambda: True, config).build()
        self._samples = built[0]

    def micro_batch(self, iteration: int, index: int) -> Batch:
        """Return micro-batch ``index`` of the global batch of ``iteration``, counted from 1."""
        # What a Megatron sampler calls consumed_samples, without a sampler's state.
        consumed = (iteration - 1) * self._num_micro_batches * self._micro_batch_size
        first = consumed + index * self._micro_batch_size
        # The index is shuffled already; after its last sample it begins anew.
        rows = [
            self._samples[(first + i) % len(self._samples)] for i in range(self._micro_batch_size)
        ]
        names = ("tokens", "position_ids", "labels", "loss_mask")
        return Batch(*(torch.stack([row[name] for row in rows]).to(self._device) for name in names))


def index_directory(context: Context) -> str | None:
    """Return where the index of the data lies: on a disk that all nodes share, if there is one."""
    directory = context.options.get("index_directory")
    if directory is None and context.training.checkpoint_dir:
        directory = f"{context.training.checkpoint_dir}/index"
    return None if directory is None else str(directory)


# --- forward step --------------------------------------------------------------------------


def forward_step(
    batches: Iterator[Batch], model: torch.nn.Module
) -> tuple[torch.Tensor, Callable[[torch.Tensor], tuple[Any, ...]]]:
    """Megatron's ``forward_step_func``: one micro-batch, and its loss function."""
    batch = next(batches)
    output = model(batch.tokens, batch.position_ids, None, labels=batch.labels)

    def loss_function(loss_by_token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, object]:
        loss = (loss_by_token * batch.loss_mask).sum()
        return loss, batch.loss_mask.sum().int(), {}

    return output, loss_function
