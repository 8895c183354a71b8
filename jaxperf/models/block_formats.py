"""How a quantized checkpoint stores each block of a layer, by its lists of modules. Nothing here imports JAX.

A list holds module names, parts of them with `*`, or regular expressions after `re:` (compressed-tensors); a block
is taken to be in a list when its last projection is.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from jaxperf.models.config import Layer, ModelConfig
from jaxperf.models.feedforward import Moe
from jaxperf.models.mixers import Attention, CompressedAttention, Mamba1, Mamba2, Mixer, Mla
from jaxperf.models.quantization import Quantization

PREFIXES = (
    "model.layers",
    "language_model.model.layers",
    "language_model.backbone.layers",
    "model.language_model.layers",
    "backbone.layers",
    "model.decoder.layers",
    "transformer.h",
    "gpt_neox.layers",
    "rwkv.blocks",
    "backbone.blocks",
)
ATTENTION = (
    "self_attn.o_proj",
    "attention.o_proj",
    "mixer.o_proj",
    "self_attn.out_proj",
    "self_attn.dense",
    "self_attention.dense",
    "attention.dense",
    "attention.wo",
    "self_attn.o_b_proj",
    "temporal_block.o_proj",
)
STATE_SPACE = ("mixer.out_proj", "mamba.out_proj")
LINEAR = (
    "linear_attn.out_proj",
    "linear_attn.o_proj",
    "self_attn.out_proj",
    "self_attn.o_proj",
    "attention.dense",
    "conv.out_proj",
    "attn.o_proj",
    "attention.output",
    "temporal_block.linear_out",
    "mlstm_layer.out_proj",
)
DENSE = (
    "mlp.down_proj",
    "feed_forward.down_proj",
    "feed_forward.w2",
    "mixer.down_proj",
    "mlp.fc2",
    "fc2",
    "mlp.dense_4h_to_h",
    "shared_mlp.output_linear",
    "ffn.value",
    "feed_forward.value",
    "mlp_block.down_proj",
    "ffn.proj_down",
)
EXPERTS = (
    "mlp.experts.0.down_proj",
    "mlp.experts.down_proj",
    "feed_forward.experts.down_proj",
    "feed_forward.experts.0.down_proj",
    "feed_forward.experts.0.w2",
    "mixer.experts.0.down_proj",
    "block_sparse_moe.experts.0.w2",
    "block_sparse_moe.output_linear",
    "moe.experts.0.down_proj",
    "moe.down_proj",
)
SHARED = (
    "mlp.shared_experts.down_proj",
    "mlp.shared_expert.down_proj",
    "mlp.shared_mlp.down_proj",
    "mixer.shared_experts.down_proj",
    "feed_forward.shared_expert.down_proj",
    "block_sparse_moe.shared_experts.down_proj",
    "shared_mlp.output_linear",
    "residual_mlp.w2",
    "share_expert.down_proj",
    "moe.share_expert.down_proj",
)


Schemes = tuple[tuple[str, Quantization | None], ...]
Formats = tuple[tuple[str, str], ...]

PLAIN = ""  # in the place of a format: that of the activations, as what quantization leaves alone has it


def block_schemes(config: ModelConfig, index: int) -> Schemes:
    """The blocks of layer `index` and the scheme of each, `None` where it stays unquantized; nothing without one.

    Blocks are "mixer", "beside" (a second mixer), "ffn" (dense block, routed experts) and "shared" (expert).
    """
    whole = config.quantization
    if whole is None:
        return ()
    return tuple((block, scheme_of(whole, index, modules)) for block, modules in block_modules(config.layers[index]))


def own_formats(config: ModelConfig, index: int) -> Formats:
    """The blocks of layer `index` that are not in the weights' main format, each with its format or `PLAIN`.

    A shared expert is named beside routed ones that have a format of their own.
    """
    whole = config.quantization
    if whole is None or not (whole.excluded or whole.targets or whole.others):
        return ()
    stored = {block: PLAIN if scheme is None else scheme.weights for block, scheme in block_schemes(config, index)}
    own = {block for block in stored if stored[block] != whole.weights}
    if "ffn" in own and "shared" in stored:
        own.add("shared")
    return tuple((block, name) for block, name in stored.items() if block in own)


def scheme_of(whole: Quantization, index: int, modules: tuple[str, ...]) -> Quantization | None:
    if _listed(whole.excluded, index, modules):
        return None
    for each in whole.others:
        if _listed(each.targets, index, modules):
            return each
    return whole if not whole.targets or _listed(whole.targets, index, modules) else None


@functools.lru_cache(maxsize=65536)  # a long list is searched once for each layer, not for each trace
def _listed(patterns: tuple[str, ...], index: int, modules: tuple[str, ...]) -> bool:
    plain, others = _compiled(patterns)
    names = [f"{prefix}.{index}.{module}" for prefix in PREFIXES for module in modules]
    return any(not plain.isdisjoint(_parts(name)) or any(each.search(name) for each in others) for name in names)


def _parts(name: str) -> Iterator[str]:
    """Whole parts of a name between dots, from any one to any later one."""
    pieces = name.split(".")
    for first in range(len(pieces)):
        for last in range(first + 1, len(pieces) + 1):
            yield ".".join(pieces[first:last])


def block_modules(layer: Layer) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The blocks of a layer with the names their last projection has in checkpoints."""
    mixer = layer.mixer or layer.cross
    if mixer is not None:
        yield "mixer", _last_projections(mixer)
    if layer.beside is not None:
        yield "beside", _last_projections(layer.beside)
    if isinstance(layer.ffn, Moe):
        yield "ffn", EXPERTS
        yield "shared", SHARED
    elif layer.ffn is not None:
        yield "ffn", DENSE


def _last_projections(mixer: Mixer) -> tuple[str, ...]:
    if isinstance(mixer, Attention | Mla | CompressedAttention):
        return ATTENTION
    return STATE_SPACE if isinstance(mixer, Mamba1 | Mamba2) else LINEAR


@functools.lru_cache(maxsize=256)
def _compiled(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    """The plain names of a list, which match whole parts of a name from any part on, and its patterns."""
    plain = frozenset(each.strip(".") for each in patterns if "*" not in each and not each.startswith("re:"))
    return plain, tuple(_pattern(each) for each in patterns if "*" in each or each.startswith("re:"))


def _pattern(text: str) -> re.Pattern[str]:
    if text.startswith("re:"):
        return re.compile(r"\A(?:" + text.removeprefix("re:") + ")")
    parts = re.escape(text.strip(".")).replace(r"\*", ".*")
    return re.compile(rf"(?:\A|\.){parts}(?:\.|\Z)")
