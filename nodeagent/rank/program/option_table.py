"""Which options of Megatron recover in process: the table.

*In process* stands only beside options whose results are tested to be those of the fault-free run;
everything else says what stands in the way, be it only that nobody has tested it. Of the rest those
are refused with which the loop would compute something else than Megatron's own does, because it
reduces, scales and steps by itself, or could not run at all.

Options that change nothing but what one forward pass computes (activation functions, normalisation,
positions, grouped queries, sizes of layers) are not listed: a micro-batch stays a function of the
parameters, of its data, and of the random numbers that ``reseed`` gives it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import torch

Holder = Literal["model", "ddp", "optimizer"]


@dataclass(frozen=True, slots=True)
class OptionSetting:
    """One field of Megatron's configuration, and which of its values recover in process.

    Attributes:
        holder: The configuration object that has it: ``TransformerConfig``,
            ``DistributedDataParallelConfig`` or ``OptimizerConfig``.
        name: The field.
        is_fine: Whether a value recovers in process.
    """

    holder: Holder
    name: str
    is_fine: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class MegatronOption:
    """One row of the table.

    Attributes:
        title: What operators call it.
        is_in_process: Whether it recovers in process.
        reason: What is tested, or what stands in the way.
        settings: Fields that turn it on. Of an option that recovers they are named only.
        can_train: Whether the loop trains with it as Megatron does.
    """

    title: str
    is_in_process: bool
    reason: str
    settings: tuple[OptionSetting, ...] = field(default=())
    can_train: bool = True


def _model(name: str, is_fine: Callable[[Any], bool] = lambda value: not value) -> OptionSetting:
    return OptionSetting("model", name, is_fine)


def _ddp(name: str, is_fine: Callable[[Any], bool] = lambda value: not value) -> OptionSetting:
    return OptionSetting("ddp", name, is_fine)


def _optimizer(
    name: str, is_fine: Callable[[Any], bool] = lambda value: not value
) -> OptionSetting:
    return OptionSetting("optimizer", name, is_fine)


def _any(_: object) -> bool:
    return True


def _is_at_most_one(value: int | None) -> bool:
    return value is None or value <= 1


def _is_on(value: object) -> bool:
    return bool(value)


TRANSFORMER_ENGINE: Final = MegatronOption(
    "layers of Transformer Engine",
    False,
    "not tested; found in the model, since no setting tells",
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
        "Losses and gradients are those of one rank.",
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
        "Their sum over the first and the last stage can be repeated from the reduced gradients. A"
        " model must be built without Megatron's copying of the embeddings, a collective that"
        " survivors do not join (`build_model` shows how).",
    ),
    MegatronOption(
        "dropout",
        True,
        "Masks depend on the micro-batch alone: on any number of replicas, in any order, in every"
        " run. Other tensor- or pipeline-parallel sizes give other masks.",
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
        "Without it sums over micro-batches would lose bits by the order of adding.",
        (_ddp("grad_reduce_in_fp32", _any),),
    ),
    MegatronOption(
        "bfloat16",
        True,
        "Gradients are summed in float32, and the optimizer's float32 copies of the parameters are handed"
        " on with them. Sums inside a tensor-parallel group are in bfloat16, as Megatron's.",
        (_model("bf16", _any), _optimizer("bf16", _any)),
    ),
    MegatronOption(
        "gradients in the type of the parameters",
        False,
        "sums over micro-batches would depend on who computed which; set grad_reduce_in_fp32",
        (_ddp("grad_reduce_in_fp32", _is_on),),
    ),
    MegatronOption(
        "reduction without overlap",
        False,
        "our reduction takes the place of the overlapped one; set overlap_grad_reduce, and"
        " no_sync_func to the wrapper's no_sync",
        (_ddp("overlap_grad_reduce", _is_on), _model("no_sync_func", _is_on)),
    ),
    MegatronOption(
        "bucket size left to Megatron",
        False,
        "it depends on the number of replicas, which a recovery changes; set bucket_size",
        (_ddp("bucket_size", _is_on),),
    ),
    MegatronOption(
        "gradients divided by micro-batches or replicas",
        False,
        "gradients must be plain sums, divided once by what was counted; set"
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
        "they are collectives inside the step, which a fault would leave half done; set clip_grad"
        " to 0 and the loop's max_grad_norm instead",
        (_optimizer("clip_grad"), _optimizer("log_num_zeros_in_grad")),
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
        "the scale is state of its own, and its search for infinities is a vote besides ours",
        (_model("fp16"), _optimizer("fp16"), _optimizer("loss_scale")),
        can_train=False,
    ),
    MegatronOption(
        "fp8, fp4 and other quantised training",
        False,
        "the histories that scale it are state which a micro-batch changes",
        (
            _model("fp8"),
            _model("fp4"),
            _model("fp8_param"),
            _model("fp4_param"),
            _model("quant_recipe"),
            _model("use_kitchen"),
            _ddp("fp8_param_gather"),
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
        "virtual pipeline stages",
        False,
        "a stage has several chunks of the model, and a micro-batch passes each on its own",
        (_model("virtual_pipeline_model_parallel_size", _is_at_most_one),),
        can_train=False,
    ),
    MegatronOption(
        "context parallelism",
        False,
        "a micro-batch is split among ranks that Megatron counts as replicas",
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
        "experts are reduced over other ranks, and routers keep state outside of gradients",
        (
            _model("num_moe_experts"),
            _model("expert_model_parallel_size", _is_at_most_one),
            _model("overlap_moe_expert_parallel_comm"),
        ),
        can_train=False,
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
        ),
    ),
    MegatronOption(
        "communication beside NCCL and gloo groups",
        False,
        "its buffers belong to one generation, and nothing wakes a rank that is blocked in it",
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
        "not tested; on a GPU each of them connects two ranks, where nothing can interrupt it; leave"
        " batch_p2p_comm on",
        (_model("batch_p2p_comm", _is_on), _model("overlap_p2p_comm")),
    ),
    MegatronOption(
        "weight gradients added by the backward kernels",
        False,
        "not tested; they reach the sums when our bookkeeping does not expect it",
        (_model("gradient_accumulation_fusion"),),
    ),
    MegatronOption(
        "weight gradients after the backward pass",
        False,
        "they reach the sums after the loop has begun to reduce them",
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
        "not tested; what is under way when a fault strikes is not accounted for",
        (
            _model("cpu_offloading"),
            _model("fine_grained_activation_offloading"),
            _optimizer("optimizer_cpu_offload"),
        ),
    ),
    MegatronOption(
        "query-key clipping",
        False,
        "it changes parameters after the optimizer's step, which the loop does not do",
        (_model("qk_clip"),),
        can_train=False,
    ),
    TRANSFORMER_ENGINE,
    PARTLY_BFLOAT16,
)
"""The whole table."""
