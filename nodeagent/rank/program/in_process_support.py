"""Compares the settings of a job with ``option_table``: does the job recover in process?

When a job starts, its options that do not recover in process are reported. After a fault such a job
gets new processes. A job with an option that the loop can't train with is refused.

Settings on which recovery does not depend are in ``HARMLESS`` instead. Each was looked at. It
changes only the computation of a forward pass, or it has an effect only together with an option of
the table: experts, FSDP, fp8, CUDA graphs, offloading, inference. They are those of megatron-core
0.16.1 to 0.19.2. A setting that is in neither place is new: a job that changes it gets new
processes after a fault, until somebody has looked at it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import torch
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig
from megatron.core.transformer.transformer_config import TransformerConfig

from nodeagent.rank.program.megatron_option import Holder
from nodeagent.rank.program.option_table import OPTIONS, PARTLY_BFLOAT16, TRANSFORMER_ENGINE

_KINDS: Final[dict[Holder, type[Any]]] = {
    "model": TransformerConfig,
    "ddp": DistributedDataParallelConfig,
    "optimizer": OptimizerConfig,
}
_ELEMENTS_PER_REPLICA: Final = 1_000_000
_FEWEST_ELEMENTS: Final = 40_000_000
"""Megatron's own bucket size: a number of elements per replica, but at least this number."""

HARMLESS: Final[dict[Holder, frozenset[str]]] = {
    "model": frozenset(
        """
        _cpu_offloading_context account_for_embedding_in_pipeline_split
        account_for_loss_in_pipeline_split activation_func activation_func_clamp_value
        activation_func_fp8_input_store activation_offload_fraction add_bias_linear add_qkv_bias
        apply_query_key_layer_scaling apply_residual_connection_post_layernorm apply_rope_fusion
        async_tensor_model_parallel_allreduce attention_backend attention_output_gate
        attention_softmax_in_fp32 autocast_dtype barrier_with_L1_time batch_invariant_mode
        batch_p2p_sync bias_activation_fusion bias_dropout_fusion
        clone_scatter_output_in_embedding config_logger_dir cp_comm_type
        cpu_offloading_activations cpu_offloading_double_buffering cpu_offloading_num_layers
        cpu_offloading_retain_pinned_cpu_buffers cpu_offloading_weights
        cross_entropy_fusion_impl cross_entropy_loss_fusion cuda_graph_modules
        cuda_graph_retain_backward_graph cuda_graph_scope cuda_graph_use_single_mempool
        cuda_graph_warmup_steps delay_offload_until_cuda_graph
        delta_offload_bytes_across_pp_ranks deterministic_mode
        disable_bf16_reduced_precision_matmul disable_parameter_transpose_cache
        dsa_indexer_head_dim dsa_indexer_k_norm_epsilon dsa_indexer_k_norm_fp32
        dsa_indexer_loss_coeff dsa_indexer_n_heads dsa_indexer_rope_interleaved
        dsa_indexer_rotate_activation dsa_indexer_scoring_relu dsa_indexer_skip_topk_offset
        dsa_indexer_topk dsa_indexer_topk_freq dsa_indexer_use_sparse_loss dsa_kernel_backend
        embedding_init_method embedding_init_method_std ep_overlap_early_attn_memory_release
        expert_tensor_parallel_size ffn_hidden_size
        fine_grained_offloading_max_inflight_offloads first_last_layers_bf16
        experimental_attention_variant_loss_scale_func
        flash_attention_version flash_decode fp32_residual_connection fp4_quantizer_factory
        fp4_recipe fp8_amax_compute_algo fp8_amax_history_len fp8_dot_product_attention
        fp8_interval fp8_margin fp8_multi_head_attention fp8_output_proj fp8_quantizer_factory
        fp8_recipe fp8_wgrad fused_residual_rmsnorm fused_single_qkv_rope gated_linear_unit
        glu_linear_offset hetereogenous_dist_checkpoint heterogeneous_block_specs hidden_size
        high_priority_a2a_comm_stream inference_cuda_graph_scope
        inference_disable_triton_nvls_kernels inference_fuse_tp_communication
        inference_grouped_gemm_backend inference_moe_disable_fused_quant_kernels
        inference_moe_token_dispatcher_type inference_rng_tracker inference_sampling_seed
        init_method init_method_std init_model_with_meta_device is_hybrid_model
        kitchen_attention_backend kv_channels layernorm_epsilon layernorm_zero_centered_gamma
        linear_attention_freq linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads
        linear_num_value_heads linear_value_head_dim log_max_attention_logit mamba_head_dim
        mamba_num_groups mamba_num_heads mamba_state_dim mamba_training_ssm_states_dtype
        masked_softmax_fusion max_seqlen_per_dp_cp_rank memory_efficient_layer_norm
        microbatch_group_size_per_vp_stage min_offloaded_tensor_size mlp_chunks_for_prefill
        mlp_chunks_for_training moe_apply_probs_on_input moe_aux_loss_coeff moe_deepep_num_sms
        moe_enable_deepep moe_enable_routing_replay moe_expert_capacity_factor
        moe_expert_rank_capacity_factor moe_extended_tp moe_ffn_hidden_size
        moe_flex_dispatcher_backend moe_flex_dispatcher_num_sms moe_grad_scale_func
        moe_grouped_gemm moe_hybridep_num_blocks_permute moe_hybridep_num_blocks_unpermute
        moe_hybridep_num_sms moe_hybridep_num_sms_preprocessing
        moe_hybridep_pad_uneven_dispatch_inputs moe_input_jitter_eps moe_latent_size
        moe_layer_freq moe_mlp_glu_interleave_size moe_ncclep_static_shape moe_ncclep_zero_copy
        moe_pad_expert_input_to_capacity moe_pad_experts_for_cuda_graph_inference
        moe_paged_stash moe_paged_stash_buffer_size_factor_cpu
        moe_paged_stash_buffer_size_factor_cuda moe_paged_stash_page_size moe_per_layer_logging
        moe_permute_fusion moe_permute_fusion_into_hybridep moe_router_bias_update_rate
        moe_router_dtype moe_router_enable_expert_bias moe_router_force_biased
        moe_router_force_load_balancing moe_router_fusion moe_router_group_topk
        moe_router_load_balancing_type moe_router_num_groups moe_router_padding_for_fp8
        moe_router_padding_for_quantization moe_router_pre_softmax
        moe_router_quantile_balancing_ema moe_router_score_function moe_router_topk
        moe_router_topk_limited_devices moe_router_topk_scaling_factor moe_shared_expert_gate
        moe_shared_expert_glu_interleave_size moe_shared_expert_intermediate_size
        moe_shared_expert_overlap moe_single_grouped_bias moe_single_grouped_weight
        moe_token_dispatcher_type moe_token_drop_policy moe_token_dropping
        moe_use_legacy_grouped_gemm moe_z_loss_coeff mrope_section mtp_detach_heads
        mtp_grad_scale_func mtp_hybrid_override_pattern mtp_loss_scaling_factor mtp_standalone
        mtp_use_repeated_layer multi_latent_attention mup_attn_scale_power mup_base_head_dim
        mup_base_hidden_size mup_embedding_mult mup_output_mult mup_width_mult
        nccl_all_reduce_for_prefill no_rope_freq normalization num_attention_heads num_layers
        num_layers_at_end_in_bf16 num_layers_at_start_in_bf16 num_layers_in_first_pipeline_stage
        num_layers_in_last_pipeline_stage num_query_groups offload_modules
        output_layer_init_method overlap_dispatch_backward_with_experts_wgrad
        overlap_p2p_comm_warmup_flush perform_initialization persist_layer_norm pipeline_dtype
        pipeline_model_parallel_layout qk_clip_alpha qk_clip_threshold qk_l2_norm qk_layernorm
        recompute_granularity recompute_method recompute_num_layers rotary_interleaved
        softmax_scale softmax_type test_mode timers tp_comm_atomic_ag tp_comm_atomic_rs
        tp_comm_bootstrap_backend tp_comm_bulk_dgrad tp_comm_bulk_wgrad tp_comm_overlap_ag
        tp_comm_overlap_disable_fc1 tp_comm_overlap_disable_qkv tp_comm_overlap_rs
        tp_comm_overlap_rs_dgrad tp_comm_split_ag tp_comm_split_rs tp_only_amax_red
        transformer_impl use_cpu_initialization use_fused_weighted_squared_relu
        use_grouped_gemm_for_dense_mlp use_grouped_gemm_for_shared_expert
        use_inference_optimized_layers use_kitchen_attention use_mamba_mem_eff_path
        use_te_activation_func use_transformer_engine_op_fuser variable_seq_lengths
        wgrad_deferral_limit window_attn_skip_freq window_size
        """.split()  # noqa: SIM905 - a line for each would take 400
    ),
    "ddp": frozenset(
        """
        align_param_gather check_for_large_grads check_for_nan_in_grad
        disable_symmetric_registration fsdp_all_gather_in_start_param_sync
        fsdp_db_use_persist_buf_on_alloc_fail fsdp_double_buffer fsdp_manual_registration
        gradient_reduce_div_fusion keep_fp8_transpose_cache megatron_fsdp_cuda_graph_mode
        megatron_fsdp_enable_fine_grained_param_gather megatron_fsdp_grad_comm_dtype
        megatron_fsdp_main_grads_dtype megatron_fsdp_main_params_dtype
        megatron_fsdp_max_pool_double_buffer megatron_fsdp_use_decoupled_grad
        outer_dp_sharding_strategy pad_buckets_for_high_nccl_busbw preserve_fp32_weights
        reuse_grad_buf_for_mxfp8_param_ag suggested_communication_unit_size
        """.split()  # noqa: SIM905 - a line for each would take 400
    ),
    "optimizer": frozenset(
        """
        adam_beta1 adam_beta2 adam_eps adaptive_muon_beta2 adaptive_muon_eps
        adaptive_muon_moment2_method apply_wd_to_qk_layernorm barrier_with_L1_time
        config_logger_dir decoupled_lr decoupled_min_lr decoupled_weight_decay exp_avg_dtype
        exp_avg_sq_dtype fp8_recipe hysteresis initial_loss_scale lion_beta1 lion_beta2
        loss_scale_window lr main_grads_dtype main_params_dtype min_loss_scale min_lr
        muon_coefficient_type muon_extra_scale_factor muon_fp32_matmul_prec muon_momentum
        muon_nesterov muon_num_ns_steps muon_scalar_optimizer muon_scale_mode muon_split_qkv
        muon_tp_mode muon_use_nesterov optimizer_offload_fraction overlap_cpu_optimizer_d2h_h2d
        params_dtype pin_cpu_grads pin_cpu_params reuse_grad_buf_for_mxfp8_param_ag sgd_momentum
        soap_precondition_frequency soap_shampoo_beta soap_use_kl_shampoo store_param_remainders
        timers use_torch_optimizer_for_cpu_offload weight_decay
        """.split()  # noqa: SIM905 - a line for each would take 400
    ),
}
"""By the configuration object that has them."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A setting that prevents recovery in process.

    Attributes:
        name: The setting with its value, as written in Megatron's configuration.
        reason: Why it does not recover, and another value to set if there is one.
        can_train: Whether the job trains with it. If so, only its recovery needs new processes.
    """

    name: str
    reason: str
    can_train: bool = True

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def unsupported(
    config: TransformerConfig,
    ddp_config: DistributedDataParallelConfig,
    optimizer_config: OptimizerConfig | None = None,
    chunks: Sequence[torch.nn.Module] = (),
) -> list[Unsupported]:
    """Return the settings that prevent recovery in process; empty if there are none.

    Args:
        config: Settings of the model.
        ddp_config: Settings of the data-parallel wrapper.
        optimizer_config: Settings of the optimizer (``optimizer.config``); None leaves them out.
        chunks: The model, if it is built. Its layers are checked too.
    """
    holders: dict[Holder, object] = {
        "model": config,
        "ddp": ddp_config,
        "optimizer": optimizer_config,
    }
    found = [
        Unsupported(f"{setting.name} = {value!r}", option.reason, option.can_train)
        for option in OPTIONS
        for setting in option.settings
        # A setting that this version of Megatron lacks can't be used.
        if (holder := holders[setting.holder]) is not None and hasattr(holder, setting.name)
        if not setting.is_fine(value := getattr(holder, setting.name))
    ]
    found += _new_settings(holders)
    found += _of_mixed_types(config, optimizer_config)
    names = {
        type(module).__name__ for chunk in chunks for module in chunk.modules() if _is_te(module)
    }
    reason = TRANSFORMER_ENGINE.reason
    return [*found, *(Unsupported(name, reason) for name in sorted(names))]


def unknown_settings(holder: Holder) -> list[str]:
    """Return the settings of the installed Megatron that nobody has looked at."""
    known = {each.name for option in OPTIONS for each in option.settings if each.holder == holder}
    names = (each.name for each in fields(_KINDS[holder]))
    return [name for name in names if name not in known | HARMLESS[holder]]


def _new_settings(holders: Mapping[Holder, object]) -> Iterator[Unsupported]:
    """Yield settings that a newer Megatron has, and that differ from their default."""
    for holder, configuration in holders.items():
        if not isinstance(configuration, _KINDS[holder]):
            continue
        defaults = {each.name: each.default for each in fields(_KINDS[holder])}
        for name in unknown_settings(holder):
            value = getattr(configuration, name)
            if value != defaults[name]:
                reason = "this version of Megatron is newer than the table, and has a setting more"
                yield Unsupported(f"{name} = {value!r}", reason)


def _of_mixed_types(
    config: TransformerConfig, optimizer_config: OptimizerConfig | None
) -> list[Unsupported]:
    """Return the mistake if only a part of the settings says bfloat16."""
    types: dict[str, object] = {
        "bf16 of the model": getattr(config, "bf16", False),
        "params_dtype": getattr(config, "params_dtype", torch.float32) == torch.bfloat16,
    }
    if optimizer_config is not None:
        types["bf16 of the optimizer"] = optimizer_config.bf16
    if len(set(map(bool, types.values()))) == 1:
        return []
    without = ", ".join(name for name, is_set in types.items() if not is_set)
    return [Unsupported(f"bfloat16 without {without}", PARTLY_BFLOAT16.reason)]


def as_chosen(
    ddp_config: DistributedDataParallelConfig, num_replicas: int
) -> DistributedDataParallelConfig:
    """Return the wrapper's settings, with None for a bucket size that Megatron filled in.

    With few replicas Megatron's size is a constant and stays. With more it depends on their number.
    """
    own = _ELEMENTS_PER_REPLICA * num_replicas
    if own <= _FEWEST_ELEMENTS or ddp_config.bucket_size != own:
        return ddp_config
    return replace(ddp_config, bucket_size=None)


def _is_te(module: torch.nn.Module) -> bool:
    return any(kind.__module__.startswith("transformer_engine") for kind in type(module).__mro__)


def markdown_table() -> str:
    """Return the table for ``docs/in-process-support.md``: recovering options come first."""
    rows = [
        "| option | in process | settings | |",
        "|---|---|---|---|",
    ]
    for option in sorted(OPTIONS, key=lambda each: (not each.is_in_process, not each.can_train)):
        names = dict.fromkeys(f"`{setting.name}`" for setting in option.settings)
        restart = "no: restart" if option.can_train else "no: refused"
        verdict = "yes" if option.is_in_process else restart
        rows.append(f"| {option.title} | {verdict} | {', '.join(names)} | {option.reason} |")
    return "\n".join(rows) + "\n"
