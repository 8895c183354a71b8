"""Weights of the token mixers, split into matrices (two FLOP a token and weight) and vectors (biases, norms, decays).

Each shape is that of the class in Hugging Face transformers; the papers are named in `jaxperf.models.mixers`.
"""

from __future__ import annotations

from jaxperf.models.indexers import Indexer
from jaxperf.models.mixers import (
    Attention,
    CompressedAttention,
    GatedDelta,
    KimiDelta,
    LightningAttention,
    Mamba1,
    Mamba2,
    Mixer,
    Mla,
    MLstm,
    RgLru,
    Rwkv4,
    Rwkv6,
    Rwkv7,
    ShortConv,
)


def mixer_matrices(mixer: Mixer, hidden: int) -> int:
    """Weights of the projections, read once for each token [1]; `hidden` is the width of the layer."""
    match mixer:
        case Attention(merged=True):
            return 0
        case Attention():
            read = mixer.input_width or hidden
            source = 0 if mixer.shared_kv else mixer.kv_input or read
            values = 0 if mixer.keys_as_values else mixer.value_width
            keys_and_values = mixer.kv_heads * (mixer.head_dim + values)
            outputs = mixer.heads * mixer.value_width
            queries = mixer.heads * mixer.head_dim
            query = read * queries if mixer.q_rank is None else mixer.q_rank * (read + queries)
            gates = mixer.output_gate * outputs + mixer.head_gate * mixer.heads
            chooser = 0 if mixer.indexer is None else hidden * (mixer.indexer.heads + 1) * mixer.indexer.dim
            return query + read * (gates + mixer.experts) + hidden * outputs + source * keys_and_values + chooser
        case Mla():
            return _mla_matrices(mixer, hidden)
        case CompressedAttention():
            return _compressed_matrices(mixer, hidden)
        case Mamba1(inner=inner, state=state, dt_rank=rank):
            return hidden * 2 * inner + inner * (rank + 2 * state) + rank * inner + inner * hidden
        case Mamba2(heads=heads):
            inner, shared = mamba2_widths(mixer)
            return hidden * (2 * inner + shared + heads) + inner * hidden
        case GatedDelta(value_heads=value_heads):
            keys, values = mixer.key_heads * mixer.key_dim, value_heads * mixer.value_dim
            return hidden * (2 * keys + 2 * values + 2 * value_heads) + values * hidden
        case KimiDelta(heads=heads, head_dim=rank):
            width = heads * rank
            gates = hidden * width if mixer.full else hidden * rank + rank * width
            return hidden * (4 * width + heads) + 2 * gates
        case LightningAttention(heads=heads, head_dim=head_dim):
            return 5 * hidden * heads * head_dim
        case Rwkv7(heads=heads, head_dim=head_dim):
            width = heads * head_dim
            return 4 * hidden * width + mixer.ranks * (hidden + width)
        case Rwkv6(heads=heads, head_dim=head_dim):
            width, mixing = heads * head_dim, 5 * (mixer.mix_rank or 0)
            return 5 * hidden * width + mixing * 2 * hidden + (mixer.decay_rank or 0) * (hidden + width)
        case Rwkv4(width=width) | ShortConv(width=width):
            return 4 * hidden * width
        case RgLru(width=width):
            return 3 * hidden * width + 2 * width * mixer.block
        case MLstm(heads=heads, value_dim=value_dim):
            return hidden * heads * (2 * mixer.key_dim + 2 * value_dim + 2) + heads * value_dim * hidden


def idle_matrices(mixer: Mixer, hidden: int) -> int:
    """Weights of the experts of a mixer that one token does not use [1]; no other mixer than attention has some."""
    if not isinstance(mixer, Attention) or not mixer.experts:
        return 0
    each = mixer.kv_heads * (mixer.head_dim + mixer.value_width) * hidden
    return (mixer.experts - mixer.queries_per_key) * each


def _mla_matrices(mla: Mla, hidden: int) -> int:
    queries = mla.heads * (mla.nope_dim + mla.rope_dim)
    query = hidden * queries if mla.q_rank is None else mla.q_rank * (hidden + queries)
    latent = hidden * (mla.kv_rank + mla.rope_dim) + mla.kv_rank * mla.heads * (mla.nope_dim + mla.value_dim)
    indexer, own = 0, mla.own_indexer
    if own is not None:
        keys = own.dim if own.pool == 1 else 2 * own.dim  # and the weights of a key in its pool
        indexer = (mla.q_rank or hidden) * own.heads * own.dim + hidden * (keys + own.heads)
    return query + latent + mla.heads * (mla.value_dim + mla.gates) * hidden + indexer


def _compressed_matrices(mixer: CompressedAttention, hidden: int) -> int:
    width, ranks = mixer.heads * mixer.head_dim, mixer.groups * mixer.output_rank
    query = mixer.q_rank * (hidden + width)
    keys = hidden * (mixer.head_dim + 2 * mixer.compressed_width)  # what is kept of a token, and its gate
    indexer = 0
    if mixer.indexer is not None:
        own = mixer.indexer
        indexer = hidden * (4 * own.dim + own.heads) + mixer.q_rank * own.heads * own.dim
    return query + keys + width * mixer.output_rank + ranks * hidden + indexer


def mamba2_widths(mamba: Mamba2) -> tuple[int, int]:
    """(channels, elements of B and C of all groups) [1]."""
    return mamba.heads * mamba.head_dim, 2 * mamba.groups * mamba.state


def mixer_vectors(mixer: Mixer, hidden: int) -> int:
    """Weights that are in no projection: biases, norms, convolution taps, decays, sinks [1]."""
    match mixer:
        case Attention(merged=True):
            return 0
        case Attention():
            return _attention_vectors(mixer, hidden)
        case Mla():
            ranks = mixer.kv_rank + (mixer.q_rank or 0)
            biases = (mixer.q_rank or 0) + mixer.kv_rank + mixer.rope_dim + hidden if mixer.bias else 0
            return ranks + biases + (_indexer_vectors(mixer.own_indexer) if mixer.own_indexer else 0)
        case CompressedAttention(head_dim=head_dim):
            ratio = mixer.ratio or 0  # of a learned position for each token of a block
            own = 0 if mixer.indexer is None else (2 * ratio + 1) * mixer.indexer.dim
            compressed = ratio * mixer.compressed_width + (head_dim if ratio else 0)
            return mixer.heads + mixer.q_rank + head_dim + compressed + own
        case Mamba1(inner=inner, state=state):
            norms = mixer.dt_rank + 2 * state if mixer.inner_norms else 0
            biases = mixer.conv_bias * inner + mixer.bias * (2 * inner + hidden)
            return inner * (mixer.conv + state + 2) + biases + norms  # taps, decays, step-size bias, skip
        case Mamba2(heads=heads):
            inner, shared = mamba2_widths(mixer)
            taps = (inner + shared) * (mixer.conv + mixer.conv_bias)
            biases = mixer.bias * (2 * inner + shared + heads + hidden)
            return taps + 3 * heads + mixer.gated_norm * inner + biases
        case GatedDelta(value_heads=value_heads, value_dim=value_dim):
            channels = 2 * mixer.key_heads * mixer.key_dim + value_heads * value_dim
            return channels * mixer.conv + 2 * value_heads + value_dim
        case KimiDelta(heads=heads, head_dim=head_dim):
            return 3 * heads * head_dim * mixer.conv + heads + heads * head_dim + head_dim
        case LightningAttention(heads=heads, head_dim=head_dim):
            return heads * head_dim + 2 * mixer.qk_norm * head_dim
        case Rwkv7(heads=heads, head_dim=head_dim):
            # six shares of the token before; biases of decays, rates and values; scales of keys (2) and of what a key
            # adds to its own output; the norm of the heads
            biases = 2 if mixer.value_rank is None else 3
            return 6 * hidden + (biases + 3 + 2) * heads * head_dim
        case Rwkv6(heads=heads, head_dim=head_dim):
            # shares of the token before; decays, what a token adds to its own output, the norm of the heads
            return (4 if mixer.mix_rank is None else 6) * hidden + 4 * heads * head_dim
        case Rwkv4(width=width):
            return 3 * hidden + 2 * width  # shares of the token before; decays, and what a token adds to its own output
        case RgLru(width=width):
            return width * (mixer.conv + 1) + 3 * width + 2 * width + hidden  # taps, decays and gates, projections
        case MLstm(heads=heads, value_dim=value_dim):
            biases = heads * (2 * mixer.key_dim + 2 * value_dim) + hidden
            return heads * value_dim + 2 * heads + mixer.bias * biases
        case ShortConv(width=width):
            return width * (mixer.conv + mixer.bias) + mixer.bias * (3 * width + hidden)


def _indexer_vectors(indexer: Indexer) -> int:
    """Norm of the keys with its bias, and a learned position for each token of a pool [1]."""
    return (2 if indexer.pool == 1 else 2 + indexer.pool) * indexer.dim


def _attention_vectors(mixer: Attention, hidden: int) -> int:
    own = not mixer.shared_kv
    queries, keys = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
    gates = mixer.gate_bias * mixer.heads * mixer.value_width
    values = 0 if mixer.keys_as_values else mixer.kv_heads * mixer.value_width
    biases = queries + own * (mixer.key_bias * keys + values)
    normed = queries + own * keys if mixer.qk_norm_wide else (1 + own) * mixer.head_dim
    return (
        mixer.qkv_bias * biases
        + gates
        + mixer.output_bias * hidden
        + (mixer.qk_norm or mixer.qk_norm_wide) * (1 + mixer.qk_norm_bias) * normed
        + (mixer.sinks + mixer.relative_buckets) * mixer.heads
        + (mixer.q_rank or 0)
        + (2 * mixer.indexer.dim if mixer.indexer else 0)
    )
