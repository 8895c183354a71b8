"""Useful FLOP of one generated token, counted from the description alone, as Python integers.

Two for each weight of the matrices the token visits, and the work on what it remembers (Kaplan et al. 2020,
arXiv:2001.08361, section 2.1). Norms, activations and the softmax are left out, as there.
"""

from __future__ import annotations

from jaxperf.models.cache_elements import conv_channels, recurrent_elements
from jaxperf.models.checks import check_count
from jaxperf.models.config import Layer, ModelConfig, layer_groups
from jaxperf.models.feedforward import FeedForward, Mlp, Moe
from jaxperf.models.mixer_parameters import mixer_matrices
from jaxperf.models.mixers import (
    Attention,
    CompressedAttention,
    GatedDelta,
    KimiDelta,
    Mixer,
    Mla,
    RgLru,
    Rwkv4,
    Rwkv6,
    Rwkv7,
)

DECAYED_SUM = 5  # FLOP a state element: decay (1), add the outer product of input and key (2), read with the query (2)
DELTA_RULE = 7  # and read with the key (2), whose value the update replaces (arXiv:2412.06464, equation 10)
OWN_TOKEN = 7  # and a token adds to its own output apart (2) (RWKV-5 and RWKV-6, arXiv:2404.05892, section 4)
GATED_UNIT = 15  # of a channel: two gates, a decay, its complement, the update (Griffin, arXiv:2402.19427, section 2.4)
RUNNING_MEAN = 23  # of a channel: numerator, denominator and their exponent (RWKV-4, arXiv:2305.13048, appendix D)
TWO_KEYS = 9  # and take out with one key what another adds (2) (RWKV-7, arXiv:2503.14456, equation 16)


def flops_per_token(config: ModelConfig, context: int) -> int:
    """Useful FLOP of the last of `context` tokens [FLOP].

    `2 x active matrices` (output head included, tables not) plus, for each attention layer, `2 x heads x (head_dim +
    value_dim) x tokens seen`, and for each recurrent layer a constant times the elements of its state. Encoders are
    not counted, nor what cross-attention reads of them.

    **Arguments:** `context`: tokens of the sequence, the new one included [1].
    Raises `InputError` when `context` is not an integer from 1.
    """
    check_count("context", context)
    matrices = active_matrix_parameters(config)
    return 2 * matrices + sum(
        repeats * mixer_flops(mixer, context)
        for layer, repeats in layer_groups(config)
        for mixer in (layer.mixer, layer.beside)
        if mixer is not None
    )


def active_matrix_parameters(config: ModelConfig) -> int:
    """Weights of the matrices one token is multiplied with [1]; a layer with shared weights counts each time.

    Where the residual has n streams the projections to their weights are among them, and to n at the end.
    """
    hidden, width = config.hidden, config.embedding_width
    projection = 2 * hidden * width if width != hidden else 0
    layers = sum(repeats * _layer_matrices(layer, hidden) for layer, repeats in layer_groups(config))
    last = max((layer.streams for layer in config.layers), default=1)
    return layers + projection + config.vocabulary * width + (last * last * hidden if last > 1 else 0)


def _layer_matrices(layer: Layer, hidden: int) -> int:
    mixers = sum(mixer_matrices(mixer, hidden) for mixer in (layer.mixer, layer.beside) if mixer is not None)
    cross = layer.cross
    if (
        cross is not None and not cross.merged
    ):  # its keys and values are computed once for each input, not for each token
        mixers += hidden * cross.heads * (cross.head_dim + cross.value_width)
    blocks = sum(block is not None for block in (layer.mixer, cross, layer.ffn))
    streams = blocks * layer.streams * hidden * layer.stream_weights
    return mixers + _ffn_matrices(layer.ffn, hidden) + streams + layer.projection_elements


def _ffn_matrices(ffn: FeedForward | None, hidden: int) -> int:
    """Weights of the blocks one token visits: the dense block, or the router, its experts and the shared one [1]."""
    match ffn:
        case Mlp(intermediate=intermediate, gated=gated):
            return (3 if gated else 2) * hidden * intermediate
        case Moe(choices=choices, experts_per_token=chosen, intermediate=intermediate, gated=gated):
            width, matrices = ffn.latent or hidden, 3 if gated else 2
            around = hidden * (choices + ffn.shared_gate) + 2 * hidden * (ffn.latent or 0)
            return around + matrices * (chosen * width * intermediate + hidden * ffn.shared_intermediate)
    return 0


def mixer_flops(mixer: Mixer, context: int) -> int:
    """FLOP of one token on what one mixer remembers of `context` tokens, its projections left out [FLOP]."""
    match mixer:
        case Attention(heads=heads, head_dim=head_dim):
            scored = 0 if mixer.indexer is None else context // mixer.indexer.pool
            chosen = 0 if mixer.indexer is None else 2 * mixer.indexer.heads * mixer.indexer.dim * scored
            return 2 * heads * (head_dim + mixer.value_width) * tokens_seen(mixer, context) + chosen
        case Mla(heads=heads, indexer=indexer):
            scores = 2 * heads * (mixer.nope_dim + mixer.rope_dim + mixer.value_dim)
            if indexer is None:
                return scores * min(context, mixer.window or context)
            chosen = 0 if indexer.shared else 2 * indexer.heads * indexer.dim * (context // indexer.pool)
            return scores * min(context, indexer.top_k) + chosen
        case CompressedAttention():
            return _compressed_flops(mixer, context)
    channels, taps = conv_channels(mixer)
    return _recurrent_flops(mixer) + 2 * channels * taps


def _recurrent_flops(mixer: Mixer) -> int:
    """FLOP of one token on the state of a recurrent mixer [FLOP]."""
    if isinstance(mixer, Rwkv4):
        return RUNNING_MEAN * mixer.width
    steps = {
        **{GatedDelta: DELTA_RULE, KimiDelta: DELTA_RULE, RgLru: GATED_UNIT},
        **{Rwkv6: OWN_TOKEN, Rwkv7: TWO_KEYS},
    }
    return steps.get(type(mixer), DECAYED_SUM) * recurrent_elements(mixer)


def _compressed_flops(mixer: CompressedAttention, context: int) -> int:
    compressed = 0 if mixer.ratio is None else context // mixer.ratio
    chosen = compressed if mixer.indexer is None else min(compressed, mixer.indexer.top_k)
    scores = 0 if mixer.indexer is None else 2 * mixer.indexer.heads * mixer.indexer.dim * compressed
    return 4 * mixer.heads * mixer.head_dim * (min(context, mixer.window) + chosen) + scores


def tokens_seen(mixer: Attention, context: int) -> int:
    """Tokens the last of `context` tokens attends to: all, the window, the chosen blocks, or its chunk so far [1]."""
    if mixer.chunk is not None:
        return (context - 1) % mixer.chunk + 1
    most = mixer.window if mixer.indexer is None else mixer.indexer.top_k
    return context if most is None else min(context, most)
