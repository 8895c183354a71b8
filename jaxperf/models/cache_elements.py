"""What a token mixer remembers of a sequence: elements that grow with each token, and elements of a constant state."""

from __future__ import annotations

from jaxperf.models.indexers import Indexer
from jaxperf.models.mixer_parameters import mamba2_widths
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


def cache_elements(mixer: Mixer | None) -> int:
    """Elements one more token adds to the cache of one layer [1].

    Keys and values of all KV heads; one latent and one rotary key with latent attention (DeepSeek V2,
    arXiv:2405.04434, table 1), and the key of its indexer; one key and its share of a compressed one (DeepSeek V4);
    nothing where an earlier layer keeps them, in an encoder layer and in a recurrent one.
    """
    match mixer:
        case Attention():
            kept = mixer.causal and not mixer.shared_kv
            return kept * (mixer.kv_heads * (mixer.head_dim + mixer.value_width) + _key_elements(mixer.indexer))
        case Mla():
            return mixer.kv_rank + mixer.rope_dim + _key_elements(mixer.own_indexer)
        case CompressedAttention(head_dim=head_dim, ratio=int(ratio)):
            compressed = head_dim + (mixer.indexer.dim if mixer.indexer else 0)
            return head_dim - (-compressed // ratio)
        case CompressedAttention(head_dim=head_dim):
            return head_dim
    return 0


def _key_elements(indexer: Indexer | None) -> int:
    """Elements of the key that scores one token, its share of that of a pool rounded up [1]."""
    return 0 if indexer is None else -(-indexer.dim // indexer.pool)


def recurrent_elements(mixer: Mixer | None) -> int:
    """Elements of the recurrent state of one layer and sequence, the same for any number of tokens [1]."""
    match mixer:
        case Mamba1(inner=inner, state=state):
            return inner * state
        case Mamba2(heads=heads, head_dim=head_dim, state=state):
            return heads * head_dim * state
        case GatedDelta(value_heads=value_heads, key_dim=key_dim, value_dim=value_dim):
            return value_heads * key_dim * value_dim
        case KimiDelta() | LightningAttention() | Rwkv6() | Rwkv7():
            return mixer.heads * mixer.head_dim * mixer.head_dim
        case Rwkv4(width=width):
            return 3 * width
        case RgLru():
            return mixer.width
        case MLstm(heads=heads, key_dim=key_dim, value_dim=value_dim):
            return heads * (key_dim * value_dim + key_dim + 1)
    return 0


def conv_channels(mixer: Mixer | None) -> tuple[int, int]:
    """(channels, taps) of the causal convolution of one layer, (0, 1) where it has none [1]."""
    match mixer:
        case Mamba1(inner=inner, conv=conv):
            return inner, conv
        case Mamba2(conv=conv):
            return sum(mamba2_widths(mixer)), conv
        case GatedDelta(conv=conv):
            return 2 * mixer.key_heads * mixer.key_dim + mixer.value_heads * mixer.value_dim, conv
        case KimiDelta(heads=heads, head_dim=head_dim, conv=conv):
            return 3 * heads * head_dim, conv
        case Rwkv6(heads=heads, head_dim=head_dim) | Rwkv7(heads=heads, head_dim=head_dim):
            return 2 * heads * head_dim, 2  # the token before, of this mixer and of the feed-forward block
        case Rwkv4(width=width):
            return 2 * width, 2
        case RgLru(conv=conv):
            return mixer.width, conv
        case ShortConv(width=width, conv=conv):
            return width, conv
    return 0, 1


def state_elements(mixer: Mixer | None) -> int:
    """Elements of the recurrent state and of the last inputs of the convolution, `taps - 1` a channel [1]."""
    channels, taps = conv_channels(mixer)
    return recurrent_elements(mixer) + channels * (taps - 1)
