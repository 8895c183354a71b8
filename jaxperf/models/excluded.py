"""Which blocks a quantized checkpoint leaves unquantized, by its list of excluded modules. Nothing here imports JAX.

The list holds module names, parts of them with `*`, or regular expressions after `re:` (compressed-tensors); a block
is taken to be excluded when its last projection is.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from jaxperf.models.config import Layer, ModelConfig
from jaxperf.models.feedforward import Moe
from jaxperf.models.mixers import Attention, Mla

PREFIXES = (
    "model.layers",
    "language_model.model.layers",
    "model.language_model.layers",
    "backbone.layers",
    "model.decoder.layers",
    "transformer.h",
    "gpt_neox.layers",
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
)
RECURRENT = (
    "linear_attn.out_proj",
    "linear_attn.o_proj",
    "mixer.out_proj",
    "mamba.out_proj",
    "self_attn.out_proj",
    "conv.out_proj",
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
)


def unquantized_blocks(config: ModelConfig, index: int) -> tuple[str, ...]:
    """Which of "mixer", "ffn" (dense block, routed experts) and "shared" (expert) stay unquantized in layer `index`."""
    quantization = config.quantization
    if quantization is None or not quantization.excluded:
        return ()
    blocks = _modules(config.layers[index])
    return tuple(block for block, modules in blocks if _excluded(quantization.excluded, index, modules))


@functools.lru_cache(maxsize=65536)  # a long list is searched once for each layer, not for each trace
def _excluded(patterns: tuple[str, ...], index: int, modules: tuple[str, ...]) -> bool:
    names = [f"{prefix}.{index}.{module}" for prefix in PREFIXES for module in modules]
    return any(_compiled(pattern).search(name) for pattern in patterns for name in names)


def _modules(layer: Layer) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The blocks of a layer with the names their last projection has in checkpoints."""
    mixer = layer.mixer or layer.cross
    if mixer is not None:
        yield "mixer", ATTENTION if isinstance(mixer, Attention | Mla) else RECURRENT
    if isinstance(layer.ffn, Moe):
        yield "ffn", EXPERTS
        yield "shared", SHARED
    elif layer.ffn is not None:
        yield "ffn", DENSE


@functools.lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of the list as a regular expression: whole parts of a name between dots, from any part on."""
    if pattern.startswith("re:"):
        return re.compile(r"\A(?:" + pattern.removeprefix("re:") + ")")
    parts = re.escape(pattern.strip(".")).replace(r"\*", ".*")
    return re.compile(rf"(?:\A|\.){parts}(?:\.|\Z)")
