"""Megatron-DeepSpeed's arguments, those of its launcher, and a word of NeMo's in Megatron's words.

Names and defaults are those of `megatron/arguments.py` of microsoft/Megatron-DeepSpeed.
"""

from __future__ import annotations

from jaxperf.io.megatron.options import Options

_NAMES = {
    "num_gpus": "nproc_per_node",
    "num_nodes": "nnodes",
    "num_key_value_heads": "num_query_groups",
    "moe_expert_parallel_size": "expert_model_parallel_size",
    "topk": "moe_router_topk",
    "ds_sequence_parallel_size": "context_parallel_size",
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",  # NeMo, Megatron-Bridge
}
# What another option, if given, says of one that Megatron has and this software has not.
_SAID: tuple[tuple[str, str, list[str]], ...] = (
    ("num_key_value_heads", "group_query_attention", []),
    ("ds_sequence_parallel_size", "cp_comm_type", ["a2a"]),
    ("deepspeed", "moe_router_topk", ["1"]),
    ("deepspeed", "expert_tensor_parallel_size", ["1"]),
)
_SPLIT_EXPERTS = "enable_expert_tensor_parallelism"  # among as many ranks as a dense layer


def in_megatrons_words(options: Options) -> Options:
    """The options under Megatron's names, unless those are given too, and with this software's defaults where they are
    others."""
    said = {name: values for given, name, values in _SAID if given in options}
    if _SPLIT_EXPERTS in options:
        said.pop("expert_tensor_parallel_size", None)
    own = {given: name if (name := _NAMES.get(given, given)) not in options else given for given in options}
    return {**said, **{own[given]: values for given, values in options.items()}}


def software(options: Options) -> str:
    """What ran the options, as a table of training runs tells it."""
    if "deepspeed" not in options:
        return "Megatron arguments"
    flash = any(name.startswith("use_flash_attn") for name in options)
    return f"Megatron-DeepSpeed arguments{', flash attention' if flash else ''}"
