"""The built-in model: megatron-core's GPT, its data-parallel wrapper and its optimizer.

Weights are drawn per parameter. A generator, seeded with the seed and the parameter's name in the
whole model, draws the whole matrix, and each tensor-parallel rank keeps its slice. So every layout
starts from the same model, and both copies of tied embeddings from the same weights. (Megatron's
own initialisation draws in the order in which a rank builds its layers, which differs between
pipeline stages.) Building needs no other rank: a replacement builds its model while survivors keep
theirs.

The loop does the work that Megatron would do at the end of an iteration. Megatron's schedules leave
gradients as sums over micro-batches, and neither reduce nor finalise them.
"""

import hashlib
import math
from typing import Any, Final

import torch
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import (
    TransformerBlockSubmodules,
    get_num_layers_to_build,
)
from megatron.core.transformer.transformer_config import TransformerConfig

from nodeagent.rank.groups.rank_place import Place
from profiles.model import ModelShape

BUCKET_SIZE: Final = 40_000_000
"""Elements of a gradient bucket, Megatron's default.

Megatron's bucket size grows with the number of replicas. Ours must not: a reduced bucket is handed
on to generations with other numbers of replicas.
"""

_INIT_STD: Final = 0.02
# The two projections that write into the residual stream. GPT-2 scales them with the depth.
_RESIDUAL_PROJECTIONS: Final = ("linear_proj.weight", "linear_fc2.weight")
_EMBEDDING: Final = "embedding.word_embeddings.weight"
_OUTPUT: Final = "output_layer.weight"


def build_model(
    shape: ModelShape,
    place: Place,
    seed: int,
    *,
    bucket_size: int | None = None,
    config: TransformerConfig | None = None,
) -> DistributedDataParallel:
    """Return this rank's part of the model, initialised and wrapped for data parallelism.

    The process groups must have been formed. The wrapper's hooks start Megatron's own reduction
    after the last micro-batch of an iteration, unless its bucket groups were replaced.

    Args:
        shape: The model.
        place: The rank's place, which selects its part of the model.
        seed: Seed of the weights.
        bucket_size: Elements of a gradient bucket; ``BUCKET_SIZE`` if None. Megatron splits the
            gradients of the first pipeline stage only.
        config: Megatron's settings, if they differ from ``transformer_config``.
    """
    config = config or transformer_config(shape, place)
    model = GPTModel(
        config,
        _layer_spec(config),
        vocab_size=shape.vocab_size,
        max_sequence_length=shape.seq_length,
        pre_process=place.is_first_stage,
        post_process=place.is_last_stage,
        share_embeddings_and_output_weights=shape.share_embeddings_and_output_weights,
        pg_collection=_groups_for_building(),
    )
    _initialise(model, shape, place, seed)
    model.to(place.device)
    module = Float16Module(config, model) if config.bf16 else model
    wrapped = DistributedDataParallel(config, wrapper_config(bucket_size), module)
    config.no_sync_func = wrapped.no_sync
    config.finalize_model_grads_func = None
    return wrapped


def build_optimizer(model: DistributedDataParallel, learning_rate: float) -> MegatronOptimizer:
    """Return Megatron's Adam, with float32 copies of bfloat16 parameters.

    The loop clips, not Adam.
    """
    config = optimizer_config(learning_rate, bf16=model.config.bf16)
    return get_megatron_optimizer(config, [model], use_gloo_process_groups=False)


def optimizer_config(learning_rate: float, *, bf16: bool = False) -> OptimizerConfig:
    """Return Megatron's settings for the optimizer."""
    return OptimizerConfig(
        optimizer="adam", lr=learning_rate, weight_decay=0.0, clip_grad=0.0, bf16=bf16, fp16=False
    )


def wrapper_config(bucket_size: int | None) -> DistributedDataParallelConfig:
    """Return Megatron's settings for the data-parallel wrapper."""
    # Megatron ignores the bucket size unless the reduction overlaps with the backward pass.
    return DistributedDataParallelConfig(
        grad_reduce_in_fp32=True,
        overlap_grad_reduce=True,
        bucket_size=bucket_size or BUCKET_SIZE,
    )


def transformer_config(shape: ModelShape, place: Place) -> TransformerConfig:
    """Return Megatron's settings for the model ``shape``."""
    dtype = torch.bfloat16 if shape.bf16 else torch.float32
    return TransformerConfig(
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        num_attention_heads=shape.num_attention_heads,
        tensor_model_parallel_size=place.layout.tp,
        pipeline_model_parallel_size=place.layout.pp,
        # Megatron refuses it without tensor parallelism.
        sequence_parallel=shape.sequence_parallel and place.layout.tp > 1,
        hidden_dropout=shape.hidden_dropout,
        attention_dropout=shape.attention_dropout,
        # Gradients are plain sums; the loop divides them by the global number of tokens.
        calculate_per_token_loss=True,
        bf16=shape.bf16,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        use_cpu_initialization=True,
        perform_initialization=True,
        deterministic_mode=place.device.type == "cuda",
        # Fused kernels need Apex or a compiler at run time.
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
    )


def _layer_spec(config: TransformerConfig) -> ModuleSpec | TransformerBlockSubmodules:
    layer = get_gpt_layer_local_spec()
    if not config.sequence_parallel:
        return layer
    layer.submodules.input_layernorm = _SequenceParallelNorm
    layer.submodules.pre_mlp_layernorm = _SequenceParallelNorm
    return TransformerBlockSubmodules(
        layer_specs=[layer] * get_num_layers_to_build(config), layer_norm=_SequenceParallelNorm
    )


class _SequenceParallelNorm(torch.nn.LayerNorm):
    """torch's LayerNorm over a part of the sequence. Megatron's own version needs Apex.

    The mark on its parameters makes Megatron sum their gradients over the tensor-parallel ranks.
    """

    def __init__(
        self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: object
    ) -> None:
        super().__init__(hidden_size, eps=eps)
        for parameter in self.parameters():
            marked: Any = parameter
            marked.sequence_parallel = config.sequence_parallel


def _groups_for_building() -> ProcessGroupCollection:
    # With this group the constructor of a stage would copy tied embeddings from the other stage, by
    # a collective that a survivor never joins. ``_initialise`` makes the embeddings equal instead.
    groups = ProcessGroupCollection.use_mpu_process_groups()
    groups.embd = None
    return groups


def _initialise(model: GPTModel, shape: ModelShape, place: Place, seed: int) -> None:
    first_layer = place.pp_rank * (shape.num_layers // place.layout.pp)
    residual_std = _INIT_STD / math.sqrt(2 * shape.num_layers)
    for local_name, parameter in model.named_parameters():
        name = _name_in_whole_model(local_name, first_layer)
        if name == _OUTPUT and shape.share_embeddings_and_output_weights:
            name = _EMBEDDING
        std = residual_std if name.endswith(_RESIDUAL_PROJECTIONS) else _INIT_STD
        if name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
        elif "layernorm" in name:
            torch.nn.init.ones_(parameter)
        else:
            with torch.no_grad():
                parameter.copy_(_slice_of_drawn(parameter, name, std, place, seed))


def _name_in_whole_model(local_name: str, first_layer: int) -> str:
    # A pipeline stage counts its layers from 0: decoder.layers.<number>.<rest>
    parts = local_name.split(".")
    if parts[:2] == ["decoder", "layers"]:
        parts[2] = str(int(parts[2]) + first_layer)
    return ".".join(parts)


def _slice_of_drawn(
    parameter: torch.nn.Parameter, name: str, std: float, place: Place, seed: int
) -> torch.Tensor:
    attributes: Any = parameter
    whole_shape = list(parameter.shape)
    is_split = bool(getattr(attributes, "tensor_model_parallel", False))
    if is_split:
        whole_shape[attributes.partition_dim] *= place.layout.tp
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "big"))
    whole = torch.empty(whole_shape).normal_(0.0, std, generator=generator)
    if not is_split:
        return whole
    return whole.chunk(place.layout.tp, dim=attributes.partition_dim)[place.tp_rank]
