"""Exact parameter counts and cache sizes of a `ModelConfig`, as Python integers.

The matrices counted are those of Vaswani et al. 2017 (arXiv:1706.03762) with grouped keys and values
(arXiv:2305.13245), gated feed-forward blocks (arXiv:2002.05202) and routed experts (arXiv:2101.03961); those of the
other token mixers are in `jaxperf.models.mixer_parameters`.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction

from hwspecs.errors import InputError
from jaxperf.models.cache_elements import cache_elements, state_elements
from jaxperf.models.checks import show
from jaxperf.models.config import Encoder, Layer, ModelConfig
from jaxperf.models.feedforward import FeedForward, Mlp, Moe
from jaxperf.models.mixer_parameters import idle_matrices, mixer_matrices, mixer_vectors
from jaxperf.models.mixers import Attention, CompressedAttention, Mixer, Mla


@functools.lru_cache
def parameter_count(config: ModelConfig) -> int:
    """All stored parameters [1]; a tied output head is the token table and is counted once."""
    return sum(parameter_breakdown(config).values())


def active_parameter_count(config: ModelConfig) -> int:
    """Parameters in use for one token [1]: everything except the routed experts the token does not visit.

    The token table, the position table and the output head are counted in full although a token reads one row of
    the tables. That is the convention of the published figures (Mixtral 8x7B 12.9 B, Qwen3-30B-A3B 3.3 B).
    """
    idle = _idle(config.layers, config.hidden) + sum(_idle(tower.layers, tower.hidden) for tower in config.encoders)
    return parameter_count(config) - idle


def mtp_parameter_count(config: ModelConfig) -> int:
    """Parameters of the layers that predict further tokens, which `parameter_count` leaves out [1].

    Each has a projection of its two inputs to the hidden width, a norm of either and one before the shared output
    head (DeepSeek V3, arXiv:2412.19437, section 2.2). Copies of the token table and the head are not counted.
    """
    hidden = config.hidden
    around = 2 * hidden * hidden + further_norms(config)
    return _stored(config.mtp_layers, lambda layer: layer_parameters(layer, hidden) + around)


def further_norms(config: ModelConfig) -> int:
    """Parameters of the norms around a layer that predicts a further token: of both inputs, and before the head [1]."""
    return 3 * _norm_parameters(config.hidden, config.norm_bias)


def parameter_breakdown(config: ModelConfig) -> dict[str, int]:
    """Stored parameters [1] by part; the parts are always the same and sum to `parameter_count`.

    **Parts:** `embedding` token table; `embedding_projection` to the hidden width and back (OPT-350m); `positions`
    learned table; `tables` others; `attention` projections with their biases and query/key norms, cross-attention
    included; `recurrent` the other token mixers; `mlp` dense blocks; `router`, `experts`, `shared_experts` (their
    gate and the latent projections included); `norms` of the layers, the final one and that of the embedding;
    `output_head` (0 if tied, but for a bias); `encoders` towers with their projectors; `other` the rest.
    """
    hidden, width = config.hidden, config.embedding_width
    table = config.vocabulary * width

    def over(count: Callable[[Layer], int]) -> int:
        return _stored(config.layers, count)

    outer_norms = config.embedding_norm + config.final_norm * config.norm_weight
    return {
        "embedding": table,
        "embedding_projection": 2 * hidden * width if width != hidden else 0,
        "positions": config.positions * hidden,
        "tables": sum(extra.rows * extra.columns for extra in config.tables),
        "attention": over(lambda layer: sum(mixer_parameters(m, hidden) for m in _mixers(layer) if _attends(m))),
        "recurrent": over(lambda layer: sum(mixer_parameters(m, hidden) for m in _mixers(layer) if not _attends(m))),
        "mlp": over(lambda layer: mlp_parameters(layer.ffn, hidden)),
        "router": over(lambda layer: router_parameters(layer.ffn, hidden)),
        "experts": over(lambda layer: expert_parameters(layer.ffn, hidden)),
        "shared_experts": over(lambda layer: shared_expert_parameters(layer.ffn, hidden)),
        "norms": over(lambda layer: norm_parameters(layer, hidden))
        + outer_norms * _norm_parameters(hidden, config.norm_bias),
        "output_head": (0 if config.tied_embeddings else table) + config.head_bias * config.vocabulary,
        "encoders": sum(encoder_parameters(encoder) for encoder in config.encoders),
        "other": config.other_parameters + over(lambda layer: layer.other_parameters + layer.projection_elements),
    }


# --- caches -----------------------------------------------------------------------------------------------------------


def kv_bytes_per_token(config: ModelConfig, itemsize: int | float | Fraction) -> int:
    """Key and value cache bytes that one more token adds, over all layers [byte].

    `kv_heads * (head_dim + value_dim) * itemsize` for each attention layer, `(kv_rank + rope_dim) * itemsize` for
    latent attention, 0 for a recurrent layer. A windowed layer adds the same for each token and stops growing at
    `window` tokens, so multiply by `min(tokens, window)` layer by layer for long contexts.

    **Arguments:** `itemsize`: bytes per element, above 0; 0.5 for four bits. A fraction of a byte is rounded up once.
    Raises `InputError` when `itemsize` is not a positive finite number.
    """
    return _bytes(_over(config.layers, lambda layer: sum(map(cache_elements, _own_mixers(layer)))), itemsize)


def state_bytes(config: ModelConfig, itemsize: int | float | Fraction) -> int:
    """Bytes of recurrent and convolution state that one sequence holds whatever its length, over all layers [byte].

    **Arguments:** `itemsize`: as in `kv_bytes_per_token`, whose errors it shares.
    """
    return _bytes(_over(config.layers, lambda layer: sum(map(state_elements, _own_mixers(layer)))), itemsize)


def _bytes(elements: int, itemsize: int | float | Fraction) -> int:
    if isinstance(itemsize, bool) or not isinstance(itemsize, (int, float, Fraction)) or not 0 < itemsize < math.inf:
        raise InputError(f"itemsize is {show(itemsize)}; it must be a number of bytes above 0.")
    return math.ceil(elements * Fraction(itemsize))


# --- one layer --------------------------------------------------------------------------------------------------------


def layer_parameters(layer: Layer, hidden: int) -> int:
    """All parameters of one layer [1]."""
    ffn = layer.ffn
    blocks = mlp_parameters(ffn, hidden) + router_parameters(ffn, hidden) + expert_parameters(ffn, hidden)
    mixers = sum(mixer_parameters(mixer, hidden) for mixer in _mixers(layer))
    return (
        mixers
        + blocks
        + shared_expert_parameters(ffn, hidden)
        + norm_parameters(layer, hidden)
        + layer.other_parameters
        + layer.projection_elements
    )


def mixer_parameters(mixer: Mixer, hidden: int) -> int:
    """Matrices and vectors of one token mixer [1]."""
    return mixer_matrices(mixer, hidden) + idle_matrices(mixer, hidden) + mixer_vectors(mixer, hidden)


def norm_parameters(layer: Layer, hidden: int) -> int:
    """Weights and biases of the norms of one layer [1]."""
    return layer.norms * _norm_parameters(hidden, layer.norm_bias) if layer.norm_weight else 0


def mlp_parameters(ffn: FeedForward | None, hidden: int) -> int:
    """A dense block [1]; 0 for any other."""
    return _block_parameters(hidden, ffn.intermediate, ffn.gated, ffn.bias) if isinstance(ffn, Mlp) else 0


def router_parameters(ffn: FeedForward | None, hidden: int) -> int:
    """The matrix and the biases that choose experts [1]."""
    return ffn.choices * (hidden + ffn.router_bias + ffn.correction_bias) if isinstance(ffn, Moe) else 0


def expert_parameters(ffn: FeedForward | None, hidden: int) -> int:
    """All routed experts [1]."""
    return ffn.experts * _one_expert(ffn, hidden) + ffn.unvisited if isinstance(ffn, Moe) else 0


def shared_expert_parameters(ffn: FeedForward | None, hidden: int) -> int:
    """The shared expert with its gate, and the projections to and from the latent width of the routed ones [1]."""
    if not isinstance(ffn, Moe):
        return 0
    latent = 2 * hidden * (ffn.latent or 0)
    return _block_parameters(hidden, ffn.shared_intermediate, ffn.gated) + ffn.shared_gate * hidden + latent


def idle_parameters(ffn: FeedForward | None, hidden: int) -> int:
    """Routed experts that one token does not visit [1]."""
    if not isinstance(ffn, Moe):
        return 0
    return (ffn.experts - ffn.experts_per_token) * _one_expert(ffn, hidden) + ffn.unvisited


def encoder_parameters(encoder: Encoder) -> int:
    """One tower: its input, tables, layers, outer norms and projector [1]."""
    hidden = encoder.hidden
    return (
        (encoder.vocabulary + encoder.positions) * hidden
        + sum(extra.rows * extra.columns for extra in encoder.tables)
        + encoder.input_parameters
        + _stored(encoder.layers, lambda layer: layer_parameters(layer, hidden))
        + encoder.norms * _norm_parameters(hidden, encoder.norm_bias)
        + encoder.projector_parameters
        + encoder.other_parameters
    )


def _idle(layers: Iterable[Layer], hidden: int) -> int:
    def idle(layer: Layer) -> int:
        return idle_parameters(layer.ffn, hidden) + sum(idle_matrices(mixer, hidden) for mixer in _mixers(layer))

    return _stored(layers, idle)


def _stored(layers: Iterable[Layer], count: Callable[[Layer], int]) -> int:
    """The sum over the layers that have weights of their own."""
    return _over((layer for layer in layers if not layer.shared), count)


def _over(layers: Iterable[Layer], count: Callable[[Layer], int]) -> int:
    return sum(repeats * count(layer) for layer, repeats in Counter(layers).items())


def _own_mixers(layer: Layer) -> list[Mixer]:
    """The mixers that remember the sequence being written; cross-attention remembers the encoder's instead."""
    return [mixer for mixer in (layer.mixer, layer.beside) if mixer is not None]


def _mixers(layer: Layer) -> list[Mixer]:
    return _own_mixers(layer) + ([layer.cross] if layer.cross is not None else [])


def _attends(mixer: Mixer) -> bool:
    return isinstance(mixer, (Attention, Mla, CompressedAttention))


def _one_expert(moe: Moe, hidden: int) -> int:
    return _block_parameters(moe.latent or hidden, moe.intermediate, moe.gated, moe.bias)


def _block_parameters(hidden: int, intermediate: int, gated: bool, bias: bool = False) -> int:
    inputs = 2 if gated else 1
    return (inputs + 1) * hidden * intermediate + bias * (inputs * intermediate + hidden)


def _norm_parameters(hidden: int, bias: bool) -> int:
    return (2 if bias else 1) * hidden
