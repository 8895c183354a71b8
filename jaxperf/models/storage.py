"""Bytes of a checkpoint as it is stored. Nothing here imports JAX."""

from __future__ import annotations

import math
from collections import Counter

from jaxperf.models.config import Layer, ModelConfig
from jaxperf.models.excluded import unquantized_blocks
from jaxperf.models.mixer_parameters import mixer_matrices
from jaxperf.models.parameters import expert_parameters, mlp_parameters, parameter_count, shared_expert_parameters
from jaxperf.models.quantization import bits_per_weight

ITEMSIZES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}  # of what is not quantized [byte]


def stored_bytes(config: ModelConfig) -> int:
    """Bytes of all parameters as they are stored [byte]; layers that predict further tokens are left out.

    Matrices of the layers take `bits_per_weight` of the quantization, except in the blocks it excludes. Those, the
    routers, tables, norms, biases and towers take the format of what is not quantized.
    """
    quantization, total = config.quantization, parameter_count(config)
    if quantization is None:
        return total * ITEMSIZES[config.weight_format]
    kinds = Counter(
        (layer, unquantized_blocks(config, index)) for index, layer in enumerate(config.layers) if not layer.shared
    )
    quantized = sum(count * _quantized(layer, config.hidden, kept) for (layer, kept), count in kinds.items())
    plain = (total - quantized) * ITEMSIZES[quantization.unquantized]
    return math.ceil(quantized * bits_per_weight(quantization) / 8 + plain)


def _quantized(layer: Layer, hidden: int, kept: tuple[str, ...]) -> int:
    """Elements of the matrices of one layer without the blocks that are `kept` unquantized [1].

    Biases of feed-forward blocks, below 0.1 %, are among them.
    """
    mixers = [mixer for mixer in (layer.mixer, layer.beside, layer.cross) if mixer is not None]
    blocks = {
        "mixer": sum(mixer_matrices(mixer, hidden) for mixer in mixers),
        "ffn": mlp_parameters(layer.ffn, hidden) + expert_parameters(layer.ffn, hidden),
        "shared": shared_expert_parameters(layer.ffn, hidden),
    }
    return sum(elements for block, elements in blocks.items() if block not in kept)
