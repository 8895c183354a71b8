"""Megatron's options of experts and of their router."""

from __future__ import annotations

from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.megatron.layers import leading_dense
from jaxperf.io.megatron.reader import Reader

_PER_TOKEN = 2  # Megatron's default of moe-router-topk


def expert_fields(reader: Reader, layers: int, ffn: int, notes: list[str]) -> dict[str, Any]:
    """Fields of a configuration, none without experts. These are as wide as the dense block of width `ffn` where their
    own width is not given, and shared by as many ranks as a dense layer, as in Megatron.

    **Raises:** `InputError` naming the option that does not go with the number of experts or of `layers`.
    """
    experts = reader.optional_count("num_experts")
    parallel = reader.count("expert_model_parallel_size", 1)
    if experts is None:
        if parallel > 1:
            raise InputError(f"{reader.source}: --expert-model-parallel-size {parallel} needs --num-experts.")
        return {}
    if experts % parallel:
        raise InputError(
            f"{reader.source}: --num-experts {experts} is no multiple of --expert-model-parallel-size {parallel}."
        )
    inner = reader.count("moe_ffn_hidden_size", ffn)
    shared = reader.optional_count("moe_shared_expert_intermediate_size")
    if shared is not None and shared % inner:
        raise InputError(f"{reader.source}: --moe-shared-expert-intermediate-size {shared} is no multiple of {inner}.")
    tensor = reader.count("tensor_model_parallel_size", 1)
    split = reader.count("expert_tensor_parallel_size", tensor)
    if split > 1 and not reader.flag("expert_tensor_parallel_size"):
        notes.append(f"--expert-tensor-parallel-size is not given; {split}, Megatron's default.")
    return {
        "experts": experts,
        "topk": reader.count("moe_router_topk", _PER_TOKEN),
        "moe_ffn": inner,
        "shared_experts": None if shared is None else shared // inner,
        "dense_layers": leading_dense(reader, layers) or None,
        "expert_parallel": parallel,
        "expert_tensor": split,
        **_groups(reader, experts),
    }


def _groups(reader: Reader, experts: int) -> dict[str, int]:
    """Groups that the router keeps a token to."""
    names = ("moe_router_num_groups", "moe_router_group_topk")
    groups, chosen = map(reader.optional_count, names)
    if groups is None and chosen is None:
        return {}
    if groups is None or chosen is None:
        raise InputError(
            f"{reader.source}: --moe-router-num-groups and --moe-router-group-topk go together; give both."
        )
    if experts % groups:
        raise InputError(
            f"{reader.source}: --num-experts {experts} is no multiple of --moe-router-num-groups {groups}."
        )
    if chosen > groups:
        raise InputError(
            f"{reader.source}: --moe-router-group-topk is {chosen}; at most --moe-router-num-groups {groups}."
        )
    return {"expert_groups": groups, "groups_per_token": chosen}
