"""What tensor ranks can share evenly in every layer of a model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from jaxperf.models.config import Layer
from jaxperf.models.feedforward import Mlp, Moe
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


def share_fields(layers: Sequence[Layer]) -> dict[str, float]:
    """Greatest common divisors over the layers, 0 where nothing is divided [1].

    Ranks divide `tensor_shares` and `expert_shares`; of `kv_shares` they may also be a multiple, which copies heads.
    """
    mixers = [mixer for layer in layers for mixer in (layer.mixer, layer.beside) if mixer is not None]
    blocks = [layer.ffn for layer in layers]
    dense = [block.intermediate for block in blocks if isinstance(block, Mlp)]
    experts = [block for block in blocks if isinstance(block, Moe)]
    shared = [block.shared_intermediate for block in experts]
    return {
        "tensor_shares": math.gcd(*(part for mixer in mixers for part in _divided(mixer)), *dense, *shared),
        "kv_shares": math.gcd(*_copied(mixers)),
        "expert_shares": math.gcd(*(block.intermediate for block in experts)),
    }


def _divided(mixer: Mixer) -> tuple[int, ...]:
    """Heads, or channels of a mixer without heads, that a rank has whole."""
    match mixer:
        case Attention() | Mla() | CompressedAttention():
            return (mixer.heads,)
        case Mamba2() | KimiDelta() | LightningAttention() | MLstm() | Rwkv6() | Rwkv7():
            return (mixer.heads,)
        case RgLru(blocks=blocks):
            return (blocks,)
        case GatedDelta():
            return mixer.key_heads, mixer.value_heads
        case Mamba1(inner=inner):
            return (inner,)
        case Rwkv4(width=width) | ShortConv(width=width):
            return (width,)


def _copied(mixers: Iterable[Mixer]) -> list[int]:
    """Heads that several ranks may each have a copy of."""
    keys = [mixer.kv_heads for mixer in mixers if isinstance(mixer, Attention)]
    return keys + [mixer.groups for mixer in mixers if isinstance(mixer, Mamba2)]
