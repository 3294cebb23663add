"""The table of Megatron's options: which of them recover in process.

An option is marked *in process* only if tests show that its results are those of the fault-free
run. Every other row gives the reason, which may be that the option is not tested. A row with
``can_train=False`` is refused: the loop reduces, scales and steps by itself, so with that option it
would compute another result than Megatron, or could not run.

Options that only change the computation of a forward pass are in ``in_process_support``: a
micro-batch still depends only on parameters, data, and the random numbers of ``reseed``.
"""

import math
from typing import Final

import torch

from nodeagent.rank.program.megatron_option import (
    MegatronOption,
    ddp_setting as _ddp,
    is_any as _any,
    is_at_most_one as _is_at_most_one,
    is_on as _is_on,
    model_setting as _model,
    optimizer_setting as _optimizer,
)

TRANSFORMER_ENGINE: Final = MegatronOption(
    "layers of Transformer Engine",
    False,
    "not tested; detected in the model, because no setting shows it",
)

PARTLY_BFLOAT16: Final = MegatronOption(
    "bfloat16 without float32 copies",
    False,
    "not tested; set `bf16` of model and optimizer, and `params_dtype`, alike",
)

OPTIONS: Final = (
    MegatronOption(
        "tensor parallelism",
        True,
        "Losses and gradients equal those of one rank.",
        (_model("tensor_model_parallel_size", _any),),
    ),
    MegatronOption(
        "pipeline parallelism",
        True,
        "With the schedule 1F1B, one chunk of the model per stage.",
        (_model("pipeline_model_parallel_size", _any), _model("deallocate_pipeline_outputs", _any)),
    ),
    MegatronOption(
        "sequence parallelism",
        True,
        "Its sums of LayerNorm gradients can be repeated from the reduced gradients.",
        (_model("sequence_parallel", _any),),
    ),
    MegatronOption(
        "tied embeddings",
        True,
        "Their sum over the first and the last stage can be repeated from the reduced gradients. The"
        " model must be built without Megatron's copying of the embeddings: survivors do not join"
        " that collective (`build_model` shows how).",
    ),
    MegatronOption(
        "dropout",
        True,
        "Masks depend only on the micro-batch: they are equal for any number of replicas, in any"
        " order, in every run. Other tensor- or pipeline-parallel sizes give other masks.",
        (_model("hidden_dropout", _any), _model("attention_dropout", _any)),
    ),
    MegatronOption(
        "recomputation of whole layers or of attention",
        True,
        "`full`, and `selective` of `core_attn`: bit-identical to no recomputation, with dropout.",
    ),
    MegatronOption(
        "gradients in float32",
        True,
        "Otherwise the order of additions would change the sums over micro-batches.",
        (_ddp("grad_reduce_in_fp32", _any),),
    ),
    MegatronOption(
        "bfloat16",
        True,
        "Gradients are summed in float32. The optimizer's float32 copies of the parameters are part of"
        " the state. Sums inside a tensor-parallel group are in bfloat16, as in Megatron.",
        (_model("bf16", _any), _optimizer("bf16", _any)),
    ),
    MegatronOption(
        "gradients in the type of the parameters",
        False,
        "sums would depend on which rank computed which micro-batch; set grad_reduce_in_fp32",
        (
            _ddp("grad_reduce_in_fp32", _is_on),
            _ddp("param_name_patterns_for_fp32_local_accumulation"),
        ),
    ),
    MegatronOption(
        "reduction without overlap",
        False,
        "our reduction replaces the overlapped one; set overlap_grad_reduce, and no_sync_func to the"
        " wrapper's no_sync",
        (_ddp("overlap_grad_reduce", _is_on), _model("no_sync_func", _is_on)),
    ),
    MegatronOption(
        "bucket size left to Megatron",
        False,
        "it depends on the number of replicas, which a recovery changes; set bucket_size",
        (
            _ddp("num_buckets"),
            _ddp("bucket_size", _is_on),
        ),
    ),
    MegatronOption(
        "gradients divided by micro-batches or replicas",
        False,
        "gradients must be plain sums, divided once at the end; set"
        " calculate_per_token_loss, and leave average_in_collective off",
        (_model("calculate_per_token_loss", _is_on), _ddp("average_in_collective")),
        can_train=False,
    ),
    MegatronOption(
        "functions that drive the reduction",
        False,
        "the loop reduces, finalises and scales by itself; leave them None",
        (
            _model("finalize_model_grads_func"),
            _model("grad_sync_func"),
            _model("param_sync_func"),
            _model("grad_scale_func"),
        ),
        can_train=False,
    ),
    MegatronOption(
        "clipping and counting in the optimizer",
        False,
        "they are collectives inside the step, and a fault would leave it half done; set clip_grad to"
        " 0, and max_grad_norm of the loop instead",
        (
            _optimizer("clip_grad"),
            _optimizer("log_num_zeros_in_grad"),
            _optimizer("grad_norm_skip_threshold", lambda value: value == math.inf),
        ),
        can_train=False,
    ),
    MegatronOption(
        "optimizers other than Adam",
        False,
        "their state can't be handed over between processes; set optimizer to adam",
        (_optimizer("optimizer", lambda value: value == "adam"),),
        can_train=False,
    ),
    MegatronOption(
        "autocast",
        False,
        "not tested; it casts weights anew in every forward pass",
        (_model("enable_autocast"),),
    ),
    MegatronOption(
        "parameters in other types",
        False,
        "not tested",
        (_model("params_dtype", lambda value: value in {torch.float32, torch.bfloat16}),),
    ),
    MegatronOption(
        "float16 with loss scaling",
        False,
        "the loss scale is separate state, and its check for infinities is a second vote",
        (_model("fp16"), _optimizer("fp16"), _optimizer("loss_scale")),
        can_train=False,
    ),
    MegatronOption(
        "fp8, fp4 and other quantised training",
        False,
        "the scaling histories are state that a micro-batch changes",
        (
            _model("fp8"),
            _model("fp4"),
            _model("fp8_param"),
            _model("fp4_param"),
            _model("quant_recipe"),
            _model("use_kitchen"),
            _ddp("fp8_param_gather"),
            _ddp("fp4_param_gather"),
        ),
    ),
    MegatronOption(
        "Megatron's distributed optimizer",
        False,
        "its shards are tied to Megatron's own reduction: set `shard_optimizer` of the task instead",
        (
            _ddp("use_distributed_optimizer"),
            _optimizer("use_distributed_optimizer"),
            _ddp("overlap_param_gather"),
            _optimizer("overlap_param_gather"),
            _optimizer("overlap_param_gather_with_optimizer_step"),
            _ddp("num_distributed_optimizer_instances", _is_at_most_one),
            _ddp("reduce_scatter_with_fp32_accumulation"),
            _optimizer("use_precision_aware_optimizer"),
            _optimizer("use_layer_wise_distributed_optimizer"),
        ),
        can_train=False,
    ),
    MegatronOption(
        "fully sharded data parallelism",
        False,
        "no replica holds the whole model",
        (
            _ddp("use_megatron_fsdp"),
            _ddp("use_custom_fsdp"),
            _ddp("data_parallel_sharding_strategy", lambda value: value == "no_shard"),
        ),
        can_train=False,
    ),
    MegatronOption(
        "weights that other ranks hold in part",
        False,
        "a micro-batch collects them, and its gradients are reduced over other groups",
        (
            _model("tensor_parallel_num_weight_shards", _is_at_most_one),
            _model("gtp_weight_remat_size", _is_at_most_one),
            _model("expert_tensor_parallel_num_weight_shards", _is_at_most_one),
            _model("expert_gtp_weight_remat_size", _is_at_most_one),
        ),
        can_train=False,
    ),
    MegatronOption(
        "virtual pipeline stages",
        False,
        "a stage has several chunks of the model, and a micro-batch passes each separately",
        (_model("virtual_pipeline_model_parallel_size", _is_at_most_one),),
        can_train=False,
    ),
    MegatronOption(
        "context parallelism",
        False,
        "Megatron counts the ranks that share a micro-batch as replicas",
        (
            _model("context_parallel_size", _is_at_most_one),
            _model("hierarchical_context_parallel_sizes"),
            _model("hybrid_context_parallel"),
        ),
        can_train=False,
    ),
    MegatronOption(
        "mixture of experts, expert parallelism",
        False,
        "experts are reduced over other ranks, and routers keep state outside the gradients",
        (
            _model("num_moe_experts"),
            _model("expert_model_parallel_size", _is_at_most_one),
            _model("overlap_moe_expert_parallel_comm"),
        ),
        can_train=False,
    ),
    MegatronOption(
        "experimental attention, and sizes by muP",
        False,
        "not tested; they have losses or learning rates of their own",
        (
            _model("experimental_attention_variant"),
            _model("use_mup"),
        ),
    ),
    MegatronOption(
        "multi-token prediction",
        False,
        "not tested; it holds further copies of the embeddings",
        (_model("mtp_num_layers"),),
    ),
    MegatronOption(
        "other recomputation",
        False,
        "not tested, or (`mlp` with biases) endless in Megatron; recompute full layers or core_attn",
        (
            _model("recompute_modules", lambda value: set(value or ()) <= {"core_attn"}),
            _model("distribute_saved_activations"),
            _model("num_microbatches_with_partial_activation_checkpoints"),
            _model("moe_layer_recompute"),
        ),
    ),
    MegatronOption(
        "CUDA graphs",
        False,
        "a captured graph holds the communicators and generators of its generation",
        (
            _model("enable_cuda_graph"),
            _model("external_cuda_graph"),
            _model("cuda_graph_impl", lambda value: value in (None, "none")),
            _model("use_te_rng_tracker"),
            _optimizer("optimizer_cuda_graph"),
        ),
    ),
    MegatronOption(
        "communication beside NCCL and gloo groups",
        False,
        "its buffers belong to one generation, and a rank that is blocked in it can't be woken",
        (
            _model("tp_comm_overlap"),
            _model("symmetric_ar_type"),
            _model("use_ring_exchange_p2p"),
            _model("pipeline_model_parallel_comm_backend", lambda value: value in (None, "nccl")),
            _ddp("nccl_ub"),
        ),
    ),
    MegatronOption(
        "single sends between pipeline stages",
        False,
        "not tested; on a GPU each one connects two ranks, which no halt can end; leave"
        " batch_p2p_comm on",
        (_model("batch_p2p_comm", _is_on), _model("overlap_p2p_comm")),
    ),
    MegatronOption(
        "weight gradients added by the backward kernels",
        False,
        "not tested; they arrive in the sums at moments that the loop does not expect",
        (_model("gradient_accumulation_fusion"),),
    ),
    MegatronOption(
        "weight gradients after the backward pass",
        False,
        "they arrive in the sums after the reduction has begun",
        (
            _model("delay_wgrad_compute"),
            _ddp("delay_wgrad_compute"),
            _model("defer_embedding_wgrad_compute"),
        ),
        can_train=False,
    ),
    MegatronOption(
        "offloading to host memory",
        False,
        "not tested; transfers in progress at a fault are not tracked",
        (
            _model("cpu_offloading"),
            _model("fine_grained_activation_offloading"),
            _optimizer("optimizer_cpu_offload"),
        ),
    ),
    MegatronOption(
        "query-key clipping",
        False,
        "it changes parameters after the optimizer's step, and the loop does not",
        (_model("qk_clip"),),
        can_train=False,
    ),
    TRANSFORMER_ENGINE,
    PARTLY_BFLOAT16,
)
