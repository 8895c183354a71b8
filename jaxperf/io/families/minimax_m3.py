"""MiniMax M3 (arXiv:2606.13392): first dense layers that see everything, then experts and chosen blocks of tokens."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, grouped_attention, layer_kinds, routed, stack, varied
from jaxperf.io.families.experts import predicted_layers
from jaxperf.models.config import Indexer, Mlp, ModelConfig

SPARSE = "minimax_m3_sparse"


def _minimax_m3(fields: Fields) -> ModelConfig:
    """`n_shared_experts` of `shared_intermediate_size` beside the routed ones."""
    indexer = _indexer(fields)
    attention = grouped_attention(fields, qk_norm=fields.flag("use_qk_norm", True))
    mixers = varied(attention, indexer=[indexer if sparse else None for sparse in _sparse(fields)])
    shared = fields.count_or("num_shared_experts", 1, smallest=0) * fields.count("shared_expert_intermediate_size")
    moe = routed(fields, "intermediate_size", shared_intermediate=shared, correction_bias=True)
    blocks = [moe if routed_here else Mlp(fields.count("dense_intermediate_size")) for routed_here in _routed(fields)]
    layers = stack(mixers, blocks)
    return decoder(fields, layers, mtp_layers=predicted_layers(fields, layers))


def _chosen(fields: Fields) -> Fields:
    return fields.nested("sparse_attention_config")


def _indexer(fields: Fields) -> Indexer:
    """In the names of the published config or those of transformers' class."""
    inner = _chosen(fields)

    def size(published: str, name: str, usual: int) -> int:
        return inner.optional_count(published) or fields.count_or(name, usual)

    block = size("sparse_block_size", "index_block_size", 128)
    return Indexer(
        size("sparse_num_index_heads", "index_n_heads", 4),
        size("sparse_index_dim", "index_head_dim", 128),
        block * size("sparse_topk_blocks", "index_topk_blocks", 16),
        block=block,
    )


def _sparse(fields: Fields) -> list[bool]:
    """Which layers choose blocks: `layer_types`, or `sparse_attention_freq` with 1 for them; none without either."""
    count = fields.layer_count()
    kinds = layer_kinds(fields, ("full_attention", SPARSE))
    if kinds is not None:
        return [kind == SPARSE for kind in kinds]
    inner = _chosen(fields)
    if not inner.flag("use_sparse_attention", True) or inner.find("sparse_attention_freq") is None:
        return [False] * count
    return [bool(each) for each in inner.listing("sparse_attention_freq", int, count) or ()]


def _routed(fields: Fields) -> list[bool]:
    """Which layers have experts: `mlp_layer_types`, or `moe_layer_freq` with 1 for them; all without either."""
    count = fields.layer_count()
    kinds = fields.listing("mlp_layer_types", str, count)
    if kinds is None:
        return [bool(each) for each in fields.listing("moe_layer_freq", int, count) or [1] * count]
    if set(kinds) - {"dense", "sparse"}:
        raise InputError("mlp_layer_types has an item that is neither dense nor sparse; give one of them.")
    return [kind == "sparse" for kind in kinds]


FAMILIES = {"MiniMaxM3SparseForCausalLM": _minimax_m3, "MiniMaxM3VLForCausalLM": _minimax_m3}

MODEL_TYPES = {
    "minimax_m3": "MiniMaxM3SparseForCausalLM",
    "minimax_m3_vl_text": "MiniMaxM3VLForCausalLM",
}
