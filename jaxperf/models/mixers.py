"""Token mixers of a described model: what moves information between tokens in one layer. Nothing here imports JAX."""

from __future__ import annotations

from dataclasses import dataclass

from hwspecs.errors import InputError
from jaxperf.models.checks import check_counts, check_flags, check_kind, check_optional_counts
from jaxperf.models.indexers import Indexer
from jaxperf.models.recurrent_mixers import (
    GatedDelta,
    KimiDelta,
    LightningAttention,
    Mamba1,
    Mamba2,
    MLstm,
    RgLru,
    Rwkv4,
    Rwkv6,
    Rwkv7,
    ShortConv,
)


@dataclass(frozen=True)
class Attention:
    """Softmax attention with grouped keys and values.

    **Fields:** `heads` query heads, `kv_heads` key and value heads (divides `heads`), `head_dim` elements of a query
    and a key; `window` tokens seen by a query, `None` for all earlier ones; `rotary` position embedding applied to
    queries and keys; `qkv_bias` and `output_bias` on the projections; `qk_norm` one norm of `head_dim` weights
    for queries and one for keys, shared by the heads (Qwen3);
    `value_dim` elements of a value, `None` for `head_dim`; `causal` a query sees earlier tokens only (false in
    encoders and in cross-attention); `chunk` tokens attend within aligned blocks of so many (Llama 4); `sinks` one
    learned logit for each head (gpt-oss); `output_gate` the query projection has a twin that gates the output
    (Qwen3-Next); `qk_norm_wide` the norms have one weight for each element of all heads instead (OLMo 2, Command R+);
    `qk_norm_bias` they have biases too; `key_bias` false when the keys have none although `qkv_bias` is true
    (Whisper); `alibi` a linear bias by distance, without weights (BLOOM); `relative_buckets` rows of a learned
    relative-position table with one column a head, stored in this layer (T5: the first); `shared_kv` keys and values
    are those of an earlier layer: no projections, no cache (Gemma 3n); `kv_input` width of what keys and values are
    read from, `None` for the hidden width (cross-attention to a tower of another width);
    `keys_as_values` one projection gives both, which are then normed and cached apart (Gemma 4); `q_rank` of a query
    compression with a norm, `None` without (Step-3, arXiv:2507.19427); `head_gate` one gate a head (Step-3.5);
    `indexer` that chooses the blocks of tokens a query sees, `None` where it sees all (MiniMax M3); `input_width` of
    what queries, keys and values are read from, `None` for the hidden width (Zamba); `gate_bias` on the gates, which
    one projection makes with the queries (Qwen3-Next); `merged` cross-attention in the softmax of the layer's own
    attention, whose queries, outputs and weights are its own (T5Gemma 2); `experts` that project queries and outputs,
    0 where all tokens have the same: each has one head for every key, and a token uses as many as a key has (JetMoE).
    """

    heads: int
    kv_heads: int
    head_dim: int
    window: int | None = None
    rotary: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    value_dim: int | None = None
    causal: bool = True
    chunk: int | None = None
    sinks: bool = False
    output_gate: bool = False
    qk_norm_wide: bool = False
    qk_norm_bias: bool = False
    key_bias: bool = True
    alibi: bool = False
    relative_buckets: int = 0
    shared_kv: bool = False
    kv_input: int | None = None
    keys_as_values: bool = False
    q_rank: int | None = None
    head_gate: bool = False
    indexer: Indexer | None = None
    input_width: int | None = None
    gate_bias: bool = False
    merged: bool = False
    experts: int = 0

    def __post_init__(self) -> None:
        check_counts(self, "heads", "kv_heads", "head_dim")
        check_optional_counts(self, "input_width")
        check_kind(self, "indexer", Indexer | None, "an Indexer or None")
        check_optional_counts(self, "window", "value_dim", "chunk", "kv_input", "q_rank")
        check_counts(self, "relative_buckets", "experts", smallest=0)
        check_flags(self, "rotary", "qkv_bias", "output_bias", "qk_norm", "causal", "sinks", "output_gate")
        check_flags(self, "qk_norm_wide", "qk_norm_bias", "key_bias", "alibi", "shared_kv", "keys_as_values")
        check_flags(self, "head_gate", "gate_bias", "merged")
        if self.output_gate and self.head_gate:
            raise InputError("Attention.output_gate and Attention.head_gate are both true; a layer has one of them.")
        if self.heads % self.kv_heads:
            raise InputError(
                f"Attention.heads is {self.heads} and Attention.kv_heads is {self.kv_heads}; "
                "the key and value heads must divide the query heads."
            )
        if self.keys_as_values and self.value_width != self.head_dim:
            raise InputError("Attention.keys_as_values is true, so Attention.value_dim must be head_dim or None.")
        if self.window is not None and self.chunk is not None:
            raise InputError("Attention.window and Attention.chunk are both given; a layer has one of them.")
        if self.indexer is not None and (self.window or self.chunk or self.shared_kv or not self.causal):
            raise InputError("Attention.indexer needs causal attention to keys of its own, without window and chunk.")

    @property
    def queries_per_key(self) -> int:
        """Query heads of one key head; experts that a token uses, where queries are of experts [1]."""
        return divmod(self.heads, self.kv_heads)[0]  # these divide

    @property
    def value_width(self) -> int:
        """Elements of one value head [1]."""
        return self.head_dim if self.value_dim is None else self.value_dim


@dataclass(frozen=True)
class Mla:
    """Multi-head latent attention: keys and values are read from one cached latent (DeepSeek V2, arXiv:2405.04434).

    **Fields:** `heads`; `q_rank` of the query compression, `None` without; `kv_rank` elements of the cached latent;
    `nope_dim` and `rope_dim` elements of a query and key without and with rotary positions (the rotary part of the
    key is shared by the heads and cached); `value_dim` elements of a value; `bias` on the projections into and out
    of the layer; `rotary` false when the `rope_dim` part stays unrotated (Kimi Linear); `indexer` of sparse attention,
    whose queries are made of the compressed ones, or of what the layer reads without them (Mistral Large 4);
    `head_gate` one gate for the output of each head (Ling 3.0), `output_gate` one for each of its elements (Hy4);
    `window` tokens seen by a query, `None` for all earlier ones (dots 3).
    """

    heads: int
    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    bias: bool = False
    rotary: bool = True
    indexer: Indexer | None = None
    head_gate: bool = False
    output_gate: bool = False
    window: int | None = None

    def __post_init__(self) -> None:
        check_counts(self, "heads", "kv_rank", "value_dim")
        check_counts(self, "nope_dim", "rope_dim", smallest=0)
        check_optional_counts(self, "q_rank", "window")
        check_flags(self, "bias", "rotary", "head_gate", "output_gate")
        if self.output_gate and self.head_gate:
            raise InputError("Mla.output_gate and Mla.head_gate are both true; a layer has one of them.")
        check_kind(self, "indexer", Indexer | None, "an Indexer or None")
        if self.indexer is not None and self.window is not None:
            raise InputError("Mla.indexer and Mla.window are both given; a layer has one of them.")
        if self.nope_dim + self.rope_dim == 0:
            raise InputError("Mla.nope_dim and Mla.rope_dim are both 0; a query needs elements.")

    @property
    def gates(self) -> int:
        """Gates of the output of one head [1]."""
        return max(self.head_gate, self.output_gate * self.value_dim)

    @property
    def own_indexer(self) -> Indexer | None:
        """The indexer whose weights and keys this layer stores, if any."""
        return None if self.indexer is None or self.indexer.shared else self.indexer


@dataclass(frozen=True)
class CompressedAttention:
    """Attention to a window and to compressed tokens, with one key for all heads, its value too (DeepSeek V4).

    **Fields:** `heads` of `head_dim` elements, `rope_dim` of them rotary; `q_rank` as in `Mla`; `window` tokens seen as
    they are; `ratio` tokens to a compressed one, `None` without; `indexer` that chooses of these, each made of two
    blocks then (CSA), `None` where a query sees all (HCA); `groups` of heads with outputs of `output_rank` elements.
    """

    heads: int
    head_dim: int
    rope_dim: int
    q_rank: int
    window: int
    groups: int
    output_rank: int
    ratio: int | None = None
    indexer: Indexer | None = None

    def __post_init__(self) -> None:
        check_counts(self, "heads", "head_dim", "q_rank", "window", "groups", "output_rank")
        check_counts(self, "rope_dim", smallest=0)
        check_optional_counts(self, "ratio")
        check_kind(self, "indexer", Indexer | None, "an Indexer or None")
        if self.heads % self.groups:
            raise InputError(f"CompressedAttention.groups is {self.groups}; they must divide the {self.heads} heads.")
        if self.indexer is not None and self.ratio is None:
            raise InputError("CompressedAttention.indexer is given but ratio is None; it chooses compressed tokens.")

    @property
    def compressed_width(self) -> int:
        """Elements of a token before compression, 0 without: those of a key, twice where blocks overlap [1]."""
        return 0 if self.ratio is None else self.head_dim * (1 if self.indexer is None else 2)


Mixer = (
    Attention
    | Mla
    | CompressedAttention
    | Mamba1
    | Mamba2
    | GatedDelta
    | KimiDelta
    | LightningAttention
    | MLstm
    | RgLru
    | Rwkv4
    | Rwkv6
    | Rwkv7
    | ShortConv
)
