"""A Megatron-style argument list, in a text file or a shell script, as a training configuration.

Names and defaults are those of `megatron/training/arguments.py` of NVIDIA/Megatron-LM, where DeepSpeed and FSDP add
their stages. What it does not say is a note; options that mean nothing for time or memory are not listed as unknown.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.megatron.experts import expert_fields
from jaxperf.io.megatron.layers import read_of, recompute_fields
from jaxperf.io.megatron.options import read_options
from jaxperf.io.megatron.reader import Reader, option_text
from jaxperf.io.training_configuration import TrainingConfiguration, unknown_note

_SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
# FSDP of either kind -> its strategy where none is given.
_FSDP = {"use_torch_fsdp2": "optim_grads_params", "use_megatron_fsdp": "no_shard", "use_custom_fsdp": "no_shard"}
_CONTEXT_METHODS = {"p2p": "ring", "all_gather": "all-gather", "a2a": "ulysses"}
_MIXED_METHOD = "a2a+p2p"  # all-to-all within groups of ranks, a ring between these
_VOCABULARY_STEP = 128  # x tensor_parallel: to what Megatron pads the vocabulary by default
_READ = frozenset(
    """num_layers hidden_size num_attention_heads group_query_attention num_query_groups kv_channels ffn_hidden_size
    swiglu vocab_size padded_vocab_size make_vocab_size_divisible_by seq_length encoder_seq_length num_experts
    moe_router_topk moe_ffn_hidden_size moe_shared_expert_intermediate_size tensor_model_parallel_size
    pipeline_model_parallel_size context_parallel_size expert_model_parallel_size micro_batch_size global_batch_size
    num_layers_per_virtual_pipeline_stage num_virtual_stages_per_pipeline_rank use_distributed_optimizer zero_stage
    use_torch_fsdp2 use_megatron_fsdp use_custom_fsdp data_parallel_sharding_strategy recompute_activations
    recompute_granularity checkpoint_activations sequence_parallel fp16 bf16 fp8_format fp8_hybrid fp8_recipe
    fp4_format nproc_per_node nnodes world_size cp_comm_type untie_embeddings_and_output_weights
    expert_tensor_parallel_size moe_router_num_groups moe_router_group_topk""".split()
)
# What changes a step and has no column in a table of steps -> the value that is taken instead.
_NO_COLUMN = {
    "decoder_first_pipeline_num_layers": None,
    "decoder_last_pipeline_num_layers": None,
    "pipeline_model_parallel_layout": None,
    "account_for_embedding_in_pipeline_split": None,
    "account_for_loss_in_pipeline_split": None,
    "moe_layer_freq": "1",
    "recompute_method": "uniform",
    "recompute_num_layers": "1",
    "recompute_modules": "core_attn",
    "multi_latent_attention": None,
    "mtp_num_layers": None,
    "window_size": None,
    "optimizer": "adam",
}
# What a run is told that changes neither the time nor the memory of a step.
_WITHOUT_EFFECT = re.compile(
    r"""^(lr|min_lr|lr_\w+|train_iters|train_samples|eval_\w+|log_\w+|logging_\w+|tensorboard_\w+|wandb_\w+|save\w*|load
    |data_\w+|data|split|seed|clip_grad|weight_decay|adam_\w+|init_method_std|tokenizer_\w+|vocab_file|merge_file
    |master_addr|master_port|node_rank|rdzv_\w+|max_position_embeddings|position_embedding_type|rotary_\w+
    |use_rotary_position_embeddings|distributed_backend|distributed_timeout_minutes|attention_dropout|hidden_dropout
    |override_\w+|exit_\w+|no_load_\w+|no_save_\w+|num_workers|timing_\w+|dataloader_type|mock_data|job_name|partition
    |ckpt_format|disable_bias_linear|add_qkv_bias|norm_epsilon|normalization
    |apply_layernorm_1p|start_weight_decay|end_weight_decay|reset_\w+|eod_mask_loss|use_mcore_models
    |local_rank|standalone|role|max_restarts|monitor_interval|redirects|tee|finetune|pretrained_checkpoint
    |use_checkpoint_args|ckpt_\w+|use_dist_ckpt|dist_ckpt_\w+|async_save|auto_detect_ckpt_format|profile\w*
    |moe_\w+_coeff|moe_router_load_balancing_type|no_position_embedding|no_create_attention_mask_in_dataloader
    |fp8_amax_\w+|fp8_margin|fp8_interval|loss_scale\w*|initial_loss_scale|min_loss_scale|hysteresis|manual_gc\w*
    |calculate_per_token_loss|no_check_for_nan_in_loss_and_grad)$""",
    re.X,
)


def read_megatron(path: str | Path, devices: int | None = None, device: str | None = None) -> TrainingConfiguration:
    """The configuration of a file of arguments.

    **Arguments:** `devices`: how many, where the file does not say (`--nproc_per_node`, `--nnodes`, `--world-size`);
    `device`: its name, which Megatron's arguments never tell.
    **Raises:** `InputError` naming the option for one that is missing, no number, or contradicts another.
    """
    reader = Reader(read_options(path), str(path))
    reader.refuse(("fp16", "bf16"), ("recompute_activations", "recompute_granularity"))
    reader.refuse(("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank"))
    notes: list[str] = []
    tensor, pipeline, context = (
        reader.count(name, 1)
        for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    )
    total = _devices(reader, devices)
    if total % (tensor * pipeline * context):
        raise InputError(
            f"{path}: {total} devices are no multiple of --tensor-model-parallel-size {tensor} x "
            f"--pipeline-model-parallel-size {pipeline} x --context-parallel-size {context}."
        )
    data = total // (tensor * pipeline * context)
    micro = reader.count("micro_batch_size")
    sequence = reader.flag("sequence_parallel")
    if sequence and tensor == 1:
        notes.append("--sequence-parallel has no effect without tensor parallelism.")
    shape = _shape(reader, tensor, notes)
    interleave = _interleave(reader, pipeline)
    unknown = tuple(
        option_text(name)
        for name in reader.options
        if name not in _READ and name not in _NO_COLUMN and not _WITHOUT_EFFECT.match(name)
    )
    return TrainingConfiguration(
        source=str(path),
        model=Path(path).stem,
        **shape,
        **expert_fields(reader, shape["layers"], shape["ffn"], notes),
        **recompute_fields(reader, shape["layers"], pipeline * interleave),
        devices=total,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        data_parallel=data,
        context_parallel=context,
        micro_batch=micro,
        global_batch=reader.count("global_batch_size", micro * data),
        interleave=interleave,
        zero=_zero(reader, notes),
        sequence_parallel=sequence and tensor > 1,
        dtype=_dtype(reader),
        device=device,
        context_method=_context_method(reader),
        tied=not reader.flag("untie_embeddings_and_output_weights"),
        unknown=unknown,
        notes=(*notes, *_left_out(reader), *unknown_note(unknown, map(option_text, sorted(_READ | _NO_COLUMN.keys())))),
    )


def _left_out(reader: Reader) -> tuple[str, ...]:
    """The sentence on options that change a step but have no column, unless they say what is taken anyway."""
    told = {name: " ".join(reader.options[name]) for name in _NO_COLUMN if reader.flag(name)}
    for name in read_of(reader):
        told.pop(name, None)
    if reader.count("context_parallel_size", 1) > 1 and _context_method(reader) is None:
        told["cp_comm_type"] = " ".join(reader.options["cp_comm_type"])
    said = [f"{option_text(name)} {value}".strip() for name, value in told.items() if value != _NO_COLUMN.get(name)]
    return (f"Not read, though this changes the answer: {', '.join(said)}.",) if said else ()


def _devices(reader: Reader, given: int | None) -> int:
    """The number of devices; `given` wins only where the file says nothing."""
    world = reader.optional_count("world_size")
    local, nodes = reader.optional_count("nproc_per_node"), reader.optional_count("nnodes")
    launched = None if local is None else local * (nodes or 1)
    stated = [each for each in (given, world, launched) if each is not None]
    if not stated:
        raise InputError(f"{reader.source}: the number of devices is not stated; say it, or --nproc_per_node.")
    if any(each != stated[0] for each in stated):
        raise InputError(f"{reader.source}: the number of devices is stated as {' and '.join(map(str, stated))}.")
    return stated[0]


def _shape(reader: Reader, tensor: int, notes: list[str]) -> dict[str, Any]:
    hidden, heads = reader.count("hidden_size"), reader.count("num_attention_heads")
    if hidden % heads and not reader.flag("kv_channels"):
        raise InputError(f"{reader.source}: --hidden-size {hidden} is no multiple of --num-attention-heads {heads}.")
    grouped = reader.flag("group_query_attention")
    groups = reader.count("num_query_groups", 1) if grouped else heads
    if reader.flag("num_query_groups") and not grouped:
        notes.append("--num-query-groups has no effect without --group-query-attention.")
    if heads % groups:
        raise InputError(
            f"{reader.source}: --num-attention-heads {heads} is no multiple of --num-query-groups {groups}."
        )
    gated = reader.flag("swiglu")
    # Two thirds of 4 h in whole 64s keep the parameters of a gated network those of a plain one.
    default = 8 * hidden // 3 // 64 * 64 if gated else 4 * hidden
    if not reader.flag("ffn_hidden_size"):
        notes.append(f"--ffn-hidden-size is not given; {default}, Megatron's default.")
    return {
        "layers": reader.count("num_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": groups,
        "head_dim": reader.count("kv_channels", hidden // heads),
        "ffn": reader.count("ffn_hidden_size", default),
        "gated": gated,
        "vocab": _vocabulary(reader, tensor, notes),
        "seq": _sequence(reader),
    }


def _sequence(reader: Reader) -> int:
    reader.refuse(("seq_length", "encoder_seq_length"))
    return reader.count("encoder_seq_length" if reader.flag("encoder_seq_length") else "seq_length")


def _vocabulary(reader: Reader, tensor: int, notes: list[str]) -> int | None:
    """Padded as Megatron pads it, so that every tensor-parallel rank has the same part."""
    padded, plain = reader.optional_count("padded_vocab_size"), reader.optional_count("vocab_size")
    if padded is not None or plain is None:
        if padded is None:
            notes.append("The vocabulary is the tokenizer's, which the arguments do not tell.")
        return padded
    step = reader.count("make_vocab_size_divisible_by", _VOCABULARY_STEP) * tensor
    return plain + -plain % step


def _interleave(reader: Reader, pipeline: int) -> int:
    layers = reader.optional_count("num_layers_per_virtual_pipeline_stage")
    if layers is None:
        return reader.count("num_virtual_stages_per_pipeline_rank", 1)
    total = reader.count("num_layers")
    if total % (layers * pipeline):
        raise InputError(
            f"{reader.source}: --num-layers {total} is no multiple of --num-layers-per-virtual-pipeline-stage {layers} "
            f"x --pipeline-model-parallel-size {pipeline}."
        )
    return total // (layers * pipeline)


def _zero(reader: Reader, notes: list[str]) -> int:
    """The stage: of FSDP as its strategy says, of DeepSpeed as stated, 1 for the distributed optimizer."""
    fsdp = next(filter(reader.flag, _FSDP), "")
    if fsdp:
        reader.refuse((fsdp, "zero_stage"))
        strategy = reader.word("data_parallel_sharding_strategy", tuple(_SHARDING))
        if strategy is None and _FSDP[fsdp] == "no_shard":
            notes.append("--data-parallel-sharding-strategy is not given; no_shard, Megatron's default.")
        return _SHARDING[strategy or _FSDP[fsdp]]
    stage = reader.word("zero_stage", ("0", "1", "2", "3"))
    return int(stage) if stage is not None else int(reader.flag("use_distributed_optimizer"))


def _context_method(reader: Reader) -> str | None:
    """How context ranks exchange keys: one way for all layers, p2p where nothing is said; None for a mixture."""
    words = reader.options.get("cp_comm_type") or ["p2p"]
    allowed = (*_CONTEXT_METHODS, _MIXED_METHOD)
    for word in words:
        if word not in allowed:
            raise InputError(f"{reader.source}: --cp-comm-type is '{word}'; it must be one of {', '.join(allowed)}.")
    return _CONTEXT_METHODS.get(words[0]) if len(set(words)) == 1 else None


def _dtype(reader: Reader) -> str:
    if reader.flag("fp4_format"):
        return "nvfp4"
    if reader.flag("fp8_format") or reader.flag("fp8_hybrid"):
        return "mxfp8" if reader.options.get("fp8_recipe") == ["mxfp8"] else "fp8"
    return "fp16" if reader.flag("fp16") else "bf16" if reader.flag("bf16") else "fp32"
