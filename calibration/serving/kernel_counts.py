"""Kernels of a decode step that an engine launches beside those of `jaxperf.models.step`, or hides, by its sources.

Expert layers (vLLM `fused_experts_impl`, SGLang `fused_moe`): beside the router and two products the experts are chosen
(`topk_softmax`, `grouped_topk`), tokens are counted and sorted by expert (`moe_align_block_size`,
`count_and_sort_expert_tokens`) and the results summed (`moe_sum`). Formats that multiply narrow activations have a
kernel that quantizes them before each product (`per_token_group_quant_fp8`).

Shared experts take no time of their own while the routed ones run: vLLM has them on a second stream for up to 256
tokens (VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD), SGLang makes them one more routed expert where it can
(`disable_shared_experts_fusion` is off by default).

TensorRT-LLM has kernels for the same steps, but merges all-reduce, norm and quantization into one
(`AllReduceFusionOp.RESIDUAL_RMS_NORM_QUANT_FP8`) and can start a kernel while the one before drains (programmatic
dependent launch, TRTLLM_ENABLE_PDL; to be asked for in its older sources, the default in later ones). A count says
little of it, so that its expert layers have the floors of expert layers measured alone. But it merges no scales of
blocks: there each product has a kernel before it (`fp8_quantize_1x128`), and the two batched ones of latent attention
as well (`fp8_batched_quantize_1x128_permute102`); experts are measured with theirs.
"""

from __future__ import annotations

from jaxperf.core.formats import FORMATS
from jaxperf.models.config import Layer, ModelConfig, Moe
from jaxperf.models.mixers import Mla

OVERLAPPING = frozenset({"trtllm"})  # engines that merge small kernels, or start one while the one before drains
ROUTING = 4.0  # kernels of an expert layer: experts chosen, tokens counted and sorted, results summed
ABSORBED = 2.0  # batched products of latent attention, before and after the cache is read
BLOCK = 128 * 128  # weights under one scale; their activations have one to 128 elements
SHARED = 3.0  # of the shared experts: two products and their activation


def counted(engine: str) -> bool:
    """Whether the kernels of an engine are counted; where not, an expert layer has the floors it has measured alone."""
    return engine not in OVERLAPPING


def added_kernels(model: ModelConfig, engine: str, weights: str) -> float:
    """Kernels of a decode step beside those of `jaxperf.models.step`, those hidden taken off [1].

    **Arguments:** `weights`: their format, a name of `jaxperf.core.formats`.
    """
    if not counted(engine):
        return sum(_quantizing(layer) for layer in model.layers) if in_blocks(model, weights) else 0.0
    quantized = FORMATS[weights].operand_itemsize < FORMATS[FORMATS[weights].activations].itemsize
    return sum(_of_layer(layer) + quantized * _products(layer) for layer in model.layers)


def in_blocks(model: ModelConfig, weights: str) -> bool:
    """Whether weights in this format are those of a model that was published with one scale to a block."""
    own = model.quantization
    return own is not None and own.weights == weights and own.group_size == BLOCK


def _of_layer(layer: Layer) -> float:
    """Kernels of the experts of one layer beside their products, those of hidden shared experts taken off [1]."""
    if not isinstance(layer.ffn, Moe):
        return 0.0
    return ROUTING - SHARED * (layer.ffn.shared_intermediate > 0)


def _quantizing(layer: Layer) -> float:
    """Kernels that quantize by blocks in one layer, those of its routed experts left out [1]."""
    absorbed = ABSORBED * isinstance(layer.mixer, Mla)
    own = not isinstance(layer.ffn, Moe) or layer.ffn.shared_intermediate > 0
    return _products(layer) + absorbed - 2.0 * (layer.ffn is not None and not own)


def _products(layer: Layer) -> float:
    """Products of one layer that multiply activations in the weights' format; Mla's queries have one more [1]."""
    mixer = 3.0 if isinstance(layer.mixer, Mla) else 2.0
    return mixer * (layer.mixer is not None) + 2.0 * (layer.ffn is not None)
