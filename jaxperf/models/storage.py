"""Bytes of a checkpoint as it is stored. Nothing here imports JAX."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

from jaxperf.models.block_formats import Schemes, block_schemes
from jaxperf.models.config import Layer, ModelConfig
from jaxperf.models.mixer_parameters import idle_matrices, mixer_matrices
from jaxperf.models.parameters import expert_parameters, mlp_parameters, parameter_count, shared_expert_parameters
from jaxperf.models.quantization import bits_per_weight

ITEMSIZES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}  # of what is not quantized [byte]


def stored_bytes(config: ModelConfig) -> int:
    """Bytes of all parameters as they are stored [byte]; layers that predict further tokens are left out.

    Matrices of the layers take `bits_per_weight` of the scheme of their block. Unquantized blocks, routers, tables,
    norms, biases and towers take the format of what is not quantized.
    """
    quantization, total = config.quantization, parameter_count(config)
    if quantization is None:
        return total * ITEMSIZES[config.weight_format]
    itemsize = ITEMSIZES[quantization.unquantized]
    kinds = Counter(
        (layer, block_schemes(config, index)) for index, layer in enumerate(config.layers) if not layer.shared
    )
    saved = sum(count * _saved(layer, config.hidden, schemes, itemsize) for (layer, schemes), count in kinds.items())
    return math.ceil(total * itemsize - saved)


def _saved(layer: Layer, hidden: int, schemes: Schemes, itemsize: int) -> Fraction:
    """Bytes by which the matrices of one layer are smaller than unquantized ones of `itemsize` bytes [byte].

    Biases of feed-forward blocks, below 0.1 %, are among them.
    """
    mixers = [mixer for mixer in (layer.mixer, layer.cross) if mixer is not None]
    blocks = {
        "mixer": sum(mixer_matrices(mixer, hidden) + idle_matrices(mixer, hidden) for mixer in mixers),
        "beside": 0 if layer.beside is None else mixer_matrices(layer.beside, hidden),
        "ffn": mlp_parameters(layer.ffn, hidden) + expert_parameters(layer.ffn, hidden),
        "shared": shared_expert_parameters(layer.ffn, hidden),
    }
    smaller = [(blocks[block], bits_per_weight(scheme)) for block, scheme in schemes if scheme is not None]
    return sum((elements * (itemsize - bits / 8) for elements, bits in smaller), start=Fraction(0))
