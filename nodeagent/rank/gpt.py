"""The built-in model: megatron-core's GPT, its data-parallel wrapper and its optimizer.

Weights are drawn per parameter: the whole matrix from a generator seeded with (seed, name of the
parameter in the whole model), of which each tensor-parallel rank keeps its slice. Megatron's own
initialisation draws in the order in which a rank builds its layers, which differs between pipeline
stages; this way every layout starts from the same model.

No dropout anywhere, and untied embeddings (tying them costs a further reduction per iteration).
"""

import hashlib
import math
from typing import Any, Final

import torch
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.transformer.transformer_config import TransformerConfig

from nodeagent.rank.parallel import Place
from profiles.model import ModelShape

_INIT_STD: Final = 0.02
# The two projections that write into the residual stream; GPT-2 scales them with the depth.
_RESIDUAL_PROJECTIONS: Final = ("linear_proj.weight", "linear_fc2.weight")


def build_model(shape: ModelShape, place: Place, seed: int) -> DistributedDataParallel:
    """Return this rank's part of the model, initialised and wrapped for data parallelism."""
    config = _config(shape, place)
    model = GPTModel(
        config,
        get_gpt_layer_local_spec(),
        vocab_size=shape.vocab_size,
        max_sequence_length=shape.seq_length,
        pre_process=place.is_first_stage,
        post_process=place.is_last_stage,
        share_embeddings_and_output_weights=False,
    )
    _initialise(model, shape, place, seed)
    model.to(place.device)
    ddp_config = DistributedDataParallelConfig(grad_reduce_in_fp32=True)
    wrapped = DistributedDataParallel(config, ddp_config, model)
    config.finalize_model_grads_func = finalize_model_grads
    return wrapped


def build_optimizer(model: DistributedDataParallel, learning_rate: float) -> MegatronOptimizer:
    """Return Megatron's Adam in float32. It doesn't clip: ``train`` does, on any device."""
    config = OptimizerConfig(
        optimizer="adam", lr=learning_rate, weight_decay=0.0, clip_grad=0.0, bf16=False, fp16=False
    )
    return get_megatron_optimizer(config, [model], use_gloo_process_groups=False)


def _config(shape: ModelShape, place: Place) -> TransformerConfig:
    return TransformerConfig(
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        num_attention_heads=shape.num_attention_heads,
        tensor_model_parallel_size=place.layout.tp,
        pipeline_model_parallel_size=place.layout.pp,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        params_dtype=torch.float32,
        pipeline_dtype=torch.float32,
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


def _initialise(model: GPTModel, shape: ModelShape, place: Place, seed: int) -> None:
    first_layer = place.pp_rank * (shape.num_layers // place.layout.pp)
    residual_std = _INIT_STD / math.sqrt(2 * shape.num_layers)
    for local_name, parameter in model.named_parameters():
        name = _name_in_whole_model(local_name, first_layer)
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
