"""What Megatron's options mean to a step: those that are read, and why the others are not.

Names are those of `megatron/training/arguments.py` of NVIDIA/Megatron-LM, some of them of older releases, and of the
launchers and DeepSpeed's fork in front of it.
"""

from __future__ import annotations

import re

READ = frozenset(
    """num_layers hidden_size num_attention_heads group_query_attention num_query_groups kv_channels ffn_hidden_size
    swiglu vocab_size padded_vocab_size make_vocab_size_divisible_by seq_length encoder_seq_length num_experts
    moe_router_topk moe_ffn_hidden_size moe_shared_expert_intermediate_size tensor_model_parallel_size
    pipeline_model_parallel_size context_parallel_size expert_model_parallel_size micro_batch_size global_batch_size
    num_layers_per_virtual_pipeline_stage num_virtual_stages_per_pipeline_rank use_distributed_optimizer zero_stage
    use_torch_fsdp2 use_megatron_fsdp use_custom_fsdp data_parallel_sharding_strategy recompute_activations
    recompute_granularity checkpoint_activations sequence_parallel fp16 bf16 fp8_format fp8_hybrid fp8_e4m3 fp8_recipe
    fp4_format fp4_recipe nproc_per_node nnodes world_size cp_comm_type untie_embeddings_and_output_weights
    expert_tensor_parallel_size moe_router_num_groups moe_router_group_topk overlap_grad_reduce
    overlap_param_gather deepspeed deepspeed_activation_checkpointing use_flash_attn
    recompute_modules mtp_num_layers optimizer_cpu_offload optimizer_offload_fraction overlap_cpu_optimizer_d2h_h2d
    cpu_optimizer use_flash_attn_v1 use_flash_attn_v2 use_flash_attn_builder no_pipeline_parallel
    enable_expert_tensor_parallelism""".split()
)
# Of these, those that are given alone.
FLAGS = frozenset(
    """group_query_attention swiglu use_distributed_optimizer use_torch_fsdp2 use_megatron_fsdp use_custom_fsdp
    recompute_activations checkpoint_activations sequence_parallel fp16 bf16 fp8_hybrid fp8_e4m3
    untie_embeddings_and_output_weights overlap_grad_reduce overlap_param_gather deepspeed
    deepspeed_activation_checkpointing optimizer_cpu_offload overlap_cpu_optimizer_d2h_h2d cpu_optimizer
    no_pipeline_parallel enable_expert_tensor_parallelism multi_latent_attention""".split()
)
# Latent attention; without the first, the others mean nothing.
LATENT = frozenset("multi_latent_attention q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim".split())
# What changes a step and has no column in a table of steps -> the value that is taken instead.
NO_COLUMN = {
    **dict.fromkeys(
        """decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers pipeline_model_parallel_layout
        account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split use_tp_pp_dp_mapping
        window_size window_attn_skip_freq is_hybrid_model hybrid_override_pattern hybrid_layer_pattern
        spec expert_interval moe_latent_size linear_attention_freq experimental_attention_variant attention_output_gate
        rampup_batch_size hierarchical_context_parallel_sizes moe_expert_capacity_factor
        moe_pad_expert_input_to_capacity distribute_saved_activations cpu_offloading cpu_offloading_num_layers
        fine_grained_activation_offloading offload_modules fp8_param_gather grad_reduce_in_bf16 first_last_layers_bf16
        num_layers_at_start_in_bf16 num_layers_at_end_in_bf16 deepspeed_config mlp_type""".split()
    ),
    "moe_layer_freq": "1",
    "recompute_method": "uniform",
    "recompute_num_layers": "1",
    "optimizer": "adam",
    "num_distributed_optimizer_instances": "1",
    **dict.fromkeys("main_grads_dtype main_params_dtype exp_avg_dtype exp_avg_sq_dtype".split(), "fp32"),
}
# How the software overlaps, fuses and dispatches: what measured runs sustain is taken, whatever a run says.
AS_MEASURED = re.compile(
    r"""^(overlap_moe_\w+|overlap_p2p_\w+|overlap_param_gather_\w+|no_overlap_p2p_communication|delay_wgrad_compute
    |tp_comm_\w+|no_async_tensor_model_parallel_allreduce|moe_token_dispatcher_type|moe_enable_deepep
    |moe_flex_dispatcher_\w+|moe_deepep_\w+|moe_hybridep_\w+|moe_grouped_gemm|moe_use_legacy_grouped_gemm
    |moe_permute_fusion|moe_router_fusion|moe_shared_expert_overlap|moe_apply_probs_on_input
    |transformer_impl|attention_backend|no_\w+_fusion|cross_entropy\w*|use_fused_\w+|use_transformer_engine_op_fuser
    |\w*cuda_graph\w*|nccl_ub|use_nccl_ub|use_sharp|sharp_enabled\w*|microbatch_group_size_per_\w+
    |ddp_\w+|high_priority_stream_groups|deterministic_mode|no_persist_layer_norm|qk_layernorm
    |use_precision_aware_optimizer|gradient_accumulation_fusion|use_rotary_position_embeddings_fusion)$""",
    re.X,
)
# What a run is told that changes neither the time nor the memory of a step.
WITHOUT_EFFECT = re.compile(
    r"""^(lr|min_lr|lr_\w+|decoupled_\w+|train_iters|train_samples|train_tokens|eval_\w+|log_\w+|logging_\w+
    |tensorboard_\w+|wandb_\w+|save\w*|load|\w+_data_path|data_\w+|data|split|seed|clip_grad|weight_decay|adam_\w+
    |init_method\w*|tokenizer_\w+|tiktoken_\w+|legacy_tokenizer|vocab_file|vocab_extra_ids|merge_file
    |master_addr|master_port|node_rank|rdzv_\w+|max_position_embeddings|position_embedding_type|rotary_\w+
    |use_rotary_position_embeddings|use_rope_scaling|rope_\w+|mscale\w*|distributed_backend
    |distributed_timeout_minutes|attention_dropout|hidden_dropout|dropout
    |override_\w+|exit_\w+|no_load_\w+|no_save_\w+|num_workers|num_dataset_builder_threads|no_mmap_bin_files|timing_\w+
    |dataloader_type|mock_data|job_name|partition|ckpt_format|disable_bias_linear|add_qkv_bias|norm_epsilon
    |layernorm_epsilon|normalization|squared_relu|apply_layernorm_1p|apply_query_key_layer_scaling
    |no_query_key_layer_scaling|attention_softmax_in_fp32|accumulate_allreduce_grads_in_fp32
    |start_weight_decay|end_weight_decay|weight_decay_\w+|reset_\w+|eod_mask_loss|use_mcore_models|use_legacy_models
    |local_rank|standalone|role|max_restarts|monitor_interval|redirects|tee|finetune|pretrained_checkpoint
    |use_checkpoint_args|ckpt_\w+|use_dist_ckpt|dist_ckpt_\w+|async_save|auto_detect_ckpt_format|profile\w*
    |use_pytorch_profiler|moe_\w+_coeff|moe_router_(load_balancing_type|score_function|enable_expert_bias|dtype
    |bias_update_rate|topk_scaling_factor|pre_softmax)|moe_per_layer_logging|mtp_loss_scaling_factor
    |no_position_embedding|no_create_attention_mask_in_dataloader|empty_unused_memory_level|enable_experimental
    |fp8_amax_\w+|fp8_margin|fp8_interval|loss_scale\w*|initial_loss_scale|min_loss_scale|hysteresis|manual_gc\w*
    |calculate_per_token_loss|no_check_for_nan_in_loss_and_grad|check_for_\w+|rerun_mode|te_rng_tracker
    |use_cpu_initialization|no_initialization|one_logger_\w+|(no|enable)_one_logger|hostfile|include|exclude
    |launcher\w*|sft\w*|trust_remote_code)$""",
    re.X,
)


def changes_a_step(name: str) -> bool:
    """Whether an option is read or should be, so that two values of it contradict each other."""
    return name in READ or name in NO_COLUMN or name in LATENT
