"""Fields of a `TrainingModel` by kind of block: sizes of a described model, averaged over the layers of the kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from jaxperf.models.cache_elements import state_elements
from jaxperf.models.config import Layer
from jaxperf.models.feedforward import Mlp, Moe
from jaxperf.models.flops import mixer_flops
from jaxperf.models.mixer_parameters import mixer_matrices
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
from jaxperf.models.parameters import shared_expert_parameters

Part = TypeVar("Part")


Attends = Attention | Mla | CompressedAttention


def attention_fields(mixers: Sequence[Attends], hidden: int) -> dict[str, float]:
    """Fields of softmax attention, averaged over the layers that have it."""
    windows = [window for mixer in mixers if (window := _window(mixer))]
    return {
        "attention_layers": len(mixers),
        "causal": mean(mixers, lambda mixer: float(not isinstance(mixer, Attention) or mixer.causal), 1.0),
        "attention_weights": mean(mixers, lambda mixer: mixer_matrices(mixer, hidden)),
        "score_width": mean(mixers, lambda mixer: mixer.heads * _score_elements(mixer)),
        "value_width": mean(mixers, lambda mixer: mixer.heads * _value_elements(mixer)),
        "kv_width": mean(mixers, _kv_elements),
        "latent_width": mean(mixers, _latent_elements),
        "up_weights": mean(mixers, lambda mixer: _raised(mixer)[0]),
        "up_rows": mean(mixers, lambda mixer: _raised(mixer)[1]),
        "heads": mean(mixers, lambda mixer: mixer.heads, 1.0),
        "kv_heads": mean(mixers, _kv_heads, 1.0),
        "window": mean(windows, float),
        "window_layers": len(windows),
        "output_width": mean(mixers, _output_elements),
        **_compressed_fields(mixers),
        "choosing_flops": mean(mixers, lambda mixer: _chooser(mixer)[0]),
        "choosing_scores": mean(mixers, lambda mixer: _chooser(mixer)[1]),
        "attention_adapters": mean(
            mixers,
            lambda mixer: _ends(hidden, mixer_matrices(mixer, hidden), _output_elements(mixer)),
        ),
    }


def _compressed_fields(mixers: Sequence[Attends]) -> dict[str, float]:
    """What queries see of compressed tokens: all of them, or those that an indexer chooses."""
    compressed = [mixer for mixer in mixers if isinstance(mixer, CompressedAttention) and mixer.ratio is not None]
    seen = [(mixer.ratio or 1, mixer.indexer.top_k if mixer.indexer else 0) for mixer in compressed]
    choosing = [(ratio, top_k) for ratio, top_k in seen if top_k]
    return {
        "entries": sum(1.0 / ratio for ratio, top_k in seen if not top_k) / max(len(mixers), 1),
        "chosen": sum(1.0 / ratio for ratio, _ in choosing) / max(len(mixers), 1),
        "chosen_window": mean(choosing, lambda each: float(each[0] * each[1])),
    }


def _chooser(mixer: Attends) -> tuple[float, float]:
    """(FLOP, scores) of an indexer a token before a query; a score of each head that chooses apart [FLOP], [1]."""
    own = mixer.indexer
    if own is None or own.shared:
        return 0.0, 0.0
    scored = 1.0 / ((mixer.ratio or 1) if isinstance(mixer, CompressedAttention) else own.pool)
    return 2.0 * own.heads * own.dim * scored, (own.heads if own.block > 1 else 1.0) * scored


def mixer_fields(mixers: Sequence[Mixer], hidden: int) -> dict[str, float]:
    """Fields of recurrent mixers, averaged over the layers that have one."""
    return {
        "mixer_layers": len(mixers),
        "mixer_weights": mean(mixers, lambda mixer: mixer_matrices(mixer, hidden)),
        "mixer_width": mean(mixers, _channels),
        "state_flops": mean(mixers, lambda mixer: mixer_flops(mixer, 1)),
        "state_elements": mean(mixers, state_elements),
        "transition_elements": mean(mixers, _transitions),
        "mixer_adapters": mean(mixers, lambda mixer: _ends(hidden, mixer_matrices(mixer, hidden), _channels(mixer))),
    }


def dense_fields(blocks: Sequence[Mlp], hidden: int) -> dict[str, float]:
    """Fields of dense feed-forward blocks, averaged over the layers that have one."""
    return {
        "dense_layers": len(blocks),
        "dense_ffn_weights": mean(blocks, lambda block: _dense_matrices(block, hidden)),
        "ffn_width": mean(blocks, lambda block: block.intermediate),
        "ffn_adapters": mean(blocks, lambda block: _ends(hidden, _dense_matrices(block, hidden), block.intermediate)),
    }


def expert_fields(blocks: Sequence[Moe], hidden: int) -> dict[str, float]:
    """Fields of expert blocks, averaged over the layers that have one."""
    return {
        "moe_layers": len(blocks),
        "experts": mean(blocks, lambda block: block.experts, 1.0),
        "topk": mean(blocks, lambda block: block.experts_per_token),
        "expert_weights": mean(blocks, lambda block: _expert_matrices(block, hidden)),
        "expert_width": mean(blocks, lambda block: block.intermediate),
        "expert_hidden": mean(blocks, lambda block: block.latent or hidden),
        "shared_weights": mean(blocks, lambda block: shared_expert_parameters(block, hidden)),
        "shared_width": mean(blocks, lambda block: block.shared_intermediate),
        "router": mean(blocks, lambda block: block.choices * hidden),
        "shared_adapters": mean(blocks, lambda block: _shared_ends(block, hidden)),
        "expert_adapters": mean(
            blocks,
            lambda block: _ends(block.latent or hidden, _expert_matrices(block, hidden), block.intermediate),
        ),
    }


def layer_matrices(layer: Layer, hidden: int) -> int:
    """Elements of one layer that the fields of `TrainingModel` count as matrices [1]."""
    ffn = layer.ffn
    mixers = sum(mixer_matrices(mixer, hidden) for mixer in (layer.mixer, layer.beside) if mixer is not None)
    match ffn:
        case Mlp():
            return mixers + _dense_matrices(ffn, hidden)
        case Moe():
            around = shared_expert_parameters(ffn, hidden) + ffn.choices * hidden
            return mixers + around + ffn.experts * _expert_matrices(ffn, hidden)
    return mixers


def _dense_matrices(block: Mlp, hidden: int) -> int:
    return (3 if block.gated else 2) * hidden * block.intermediate


def _expert_matrices(block: Moe, hidden: int) -> int:
    return (3 if block.gated else 2) * (block.latent or hidden) * block.intermediate


def _shared_ends(block: Moe, hidden: int) -> float:
    """Inputs and outputs of the shared expert's layers, and of the projections to the routed experts' width and back;
    its gate has no adapter, as the router has none."""
    width, latent = block.shared_intermediate, 2 * (hidden + block.latent) if block.latent else 0
    return latent + (_ends(hidden, (3 if block.gated else 2) * hidden * width, width) if width else 0)


def _ends(hidden: int, weights: int, width: int) -> float:
    """Inputs and outputs of the two linear layers of a block: hidden to weights / hidden - width, width to hidden."""
    return hidden + (weights / hidden - width) + width + hidden


def _window(mixer: Attends) -> float:
    """Tokens a query sees at most as they are, 0 for all; in aligned chunks it sees half a chunk on average."""
    if isinstance(mixer, CompressedAttention):
        return mixer.window
    if mixer.indexer is not None:
        return mixer.indexer.top_k
    match mixer:
        case Mla():
            return mixer.window or 0.0
        case Attention(chunk=int(chunk)):
            return chunk / 2.0
    return mixer.window or 0.0


def _score_elements(mixer: Attends) -> int:
    return mixer.nope_dim + mixer.rope_dim if isinstance(mixer, Mla) else mixer.head_dim


def _value_elements(mixer: Attends) -> int:
    match mixer:
        case Mla(value_dim=width) | CompressedAttention(head_dim=width):
            return width
    return mixer.value_width


def _kv_heads(mixer: Attends) -> int:
    match mixer:
        case Mla(heads=heads):
            return heads
        case CompressedAttention():
            return 1
    return mixer.kv_heads


def _kv_elements(mixer: Attends) -> float:
    """Elements of key and value a token that the core reads; one for all heads that is both, and its share of a
    compressed one, in DeepSeek V4 [1]."""
    if isinstance(mixer, CompressedAttention):
        return mixer.head_dim * (1.0 + (1.0 / mixer.ratio if mixer.ratio else 0.0))
    return _kv_heads(mixer) * (_score_elements(mixer) + _value_elements(mixer))


def _output_elements(mixer: Attends) -> int:
    """Elements that the output projection reads: of all heads, or of their groups' bottlenecks [1]."""
    if isinstance(mixer, CompressedAttention):
        return mixer.groups * mixer.output_rank
    return mixer.heads * _value_elements(mixer)


def _latent_elements(mixer: Attends) -> int:
    match mixer:
        case Mla():
            return (mixer.q_rank or 0) + mixer.kv_rank + mixer.rope_dim
        case CompressedAttention():
            return mixer.q_rank + 2 * mixer.compressed_width + mixer.groups * mixer.output_rank
    return mixer.q_rank or 0


def _raised(mixer: Attends) -> tuple[int, int]:
    """(weights, elements a token that they make) of MLA's projections from its latents: queries where they are
    compressed, keys and values [1]."""
    if not isinstance(mixer, Mla):
        return 0, 0
    keys = mixer.nope_dim + mixer.value_dim
    queries, rank = mixer.nope_dim + mixer.rope_dim, mixer.q_rank or 0
    made = keys + mixer.rope_dim + (queries if rank else 0)  # each head has a copy of the rotary part of the key
    return mixer.heads * (mixer.kv_rank * keys + rank * queries), mixer.heads * made


def _channels(mixer: Mixer) -> int:
    """Channels that the output projection of a recurrent mixer reads [1]."""
    match mixer:
        case Mamba1(inner=inner):
            return inner
        case Mamba2() | KimiDelta() | LightningAttention() | Rwkv6() | Rwkv7():
            return mixer.heads * mixer.head_dim
        case ShortConv() | RgLru() | Rwkv4():
            return mixer.width
        case GatedDelta():
            return mixer.value_heads * mixer.value_dim
        case MLstm():
            return mixer.heads * mixer.value_dim
    raise TypeError(type(mixer))  # attention has no channels


def _transitions(mixer: Mixer) -> int:
    """Elements of the matrices by which a delta rule multiplies the state over a stretch of tokens; of other mixers
    decays alone, which are few [1]."""
    match mixer:
        case GatedDelta(value_heads=heads, key_dim=size) | KimiDelta(heads=heads, head_dim=size):
            return heads * size * size
        case Rwkv7(heads=heads, head_dim=size):
            return heads * size * size
    return 0


def mean(parts: Sequence[Part], of: Callable[[Part], float], empty: float = 0.0) -> float:
    """The mean over the parts, `empty` where there are none."""
    return sum(of(part) for part in parts) / len(parts) if parts else empty
