"""Token mixers with a state of constant size, of a described model. Nothing here imports JAX."""

from __future__ import annotations

from dataclasses import dataclass

from hwspecs.errors import InputError
from jaxperf.models.checks import check_counts, check_flags, check_optional_counts


@dataclass(frozen=True)
class Mamba1:
    """Selective state space with a state for each channel (Mamba, arXiv:2312.00752).

    **Fields:** `inner` channels; `state` elements of each; `dt_rank` of the step-size projection; `conv` taps of the
    causal convolution; `conv_bias` and `bias` (projections in and out); `inner_norms` of step size, B and C (Jamba).
    """

    inner: int
    state: int
    dt_rank: int
    conv: int
    conv_bias: bool = True
    bias: bool = False
    inner_norms: bool = False

    def __post_init__(self) -> None:
        check_counts(self, "inner", "state", "dt_rank", "conv")
        check_flags(self, "conv_bias", "bias", "inner_norms")


@dataclass(frozen=True)
class Mamba2:
    """State space with one decay for each head (Mamba-2, arXiv:2405.21060).

    **Fields:** `heads` of `head_dim` channels; `groups` of heads that share B and C; `state` elements of a channel;
    `conv` taps over the channels, B and C; `conv_bias`, `bias` (projections in and out); `gated_norm` a norm of the
    channels before the output projection.
    """

    heads: int
    head_dim: int
    groups: int
    state: int
    conv: int
    conv_bias: bool = True
    bias: bool = False
    gated_norm: bool = True

    def __post_init__(self) -> None:
        check_counts(self, "heads", "head_dim", "groups", "state", "conv")
        check_flags(self, "conv_bias", "bias", "gated_norm")
        if self.heads % self.groups:
            raise InputError(
                f"Mamba2.heads is {self.heads} and Mamba2.groups is {self.groups}; the groups must divide the heads."
            )


@dataclass(frozen=True)
class GatedDelta:
    """Linear attention with the gated delta rule (arXiv:2412.06464), as in Qwen3-Next.

    **Fields:** `key_heads` of `key_dim` elements, for queries and for keys; `value_heads` of `value_dim` elements, a
    multiple of `key_heads`; `conv` taps over queries, keys and values. The state of a value head is
    `key_dim x value_dim`.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int

    def __post_init__(self) -> None:
        check_counts(self, "key_heads", "value_heads", "key_dim", "value_dim", "conv")
        if self.value_heads % self.key_heads:
            raise InputError(
                f"GatedDelta.value_heads is {self.value_heads} and GatedDelta.key_heads is {self.key_heads}; "
                "the key heads must divide the value heads."
            )


@dataclass(frozen=True)
class KimiDelta:
    """Kimi delta attention: the delta rule with a decay for each channel (Kimi Linear, arXiv:2510.26692).

    **Fields:** `heads` of `head_dim` elements for queries, keys and values; `conv` taps over each of the three. The
    decay and the output gate pass through a rank of `head_dim`, or have whole matrices where `full` is true (Ling
    3.0). The state of a head is `head_dim x head_dim`.
    """

    heads: int
    head_dim: int
    conv: int
    full: bool = False

    def __post_init__(self) -> None:
        check_counts(self, "heads", "head_dim", "conv")
        check_flags(self, "full")


@dataclass(frozen=True)
class LightningAttention:
    """Linear attention with a fixed decay for each head, gated and normed (MiniMax-01, arXiv:2501.08313).

    **Fields:** `heads` of `head_dim` elements for queries, keys and values; `block` tokens computed at once in a
    prompt; `rotary` positions and `qk_norm` as in `Attention` (Ling 2.5). The state of a head is `head_dim x head_dim`.
    """

    heads: int
    head_dim: int
    block: int = 256
    rotary: bool = False
    qk_norm: bool = False

    def __post_init__(self) -> None:
        check_counts(self, "heads", "head_dim", "block")
        check_flags(self, "rotary", "qk_norm")


@dataclass(frozen=True)
class ShortConv:
    """A gated causal convolution of `conv` taps over `width` channels (LFM2, arXiv:2511.23404)."""

    width: int
    conv: int
    bias: bool = False

    def __post_init__(self) -> None:
        check_counts(self, "width", "conv")
        check_flags(self, "bias")


@dataclass(frozen=True)
class Rwkv7:
    """Time mixing of RWKV-7 (arXiv:2503.14456): a delta rule with a decay and a learning rate for each channel.

    **Fields:** `heads` of `head_dim` elements for receptance, keys and values; ranks of the bottlenecks that make the
    `decay_rank` decays, `rate_rank` learning rates, `value_rank` shares of the first layer's values (`None` in that
    layer) and `gate_rank` output gates. Each token is mixed with the one before it. The state of a head is
    `head_dim x head_dim`.
    """

    heads: int
    head_dim: int
    decay_rank: int
    rate_rank: int
    gate_rank: int
    value_rank: int | None = None

    def __post_init__(self) -> None:
        check_counts(self, "heads", "head_dim", "decay_rank", "rate_rank", "gate_rank")
        check_optional_counts(self, "value_rank")

    @property
    def ranks(self) -> int:
        """Elements of all bottlenecks of a token [1]."""
        return self.decay_rank + self.rate_rank + self.gate_rank + (self.value_rank or 0)


@dataclass(frozen=True)
class Rwkv4:
    """Time mixing of RWKV-4 (arXiv:2305.13048): a decaying mean of the values of each of `width` channels.

    Each token is mixed with the one before it, in three ways. The state of a channel is a numerator, a denominator and
    their common exponent.
    """

    width: int

    def __post_init__(self) -> None:
        check_counts(self, "width")


@dataclass(frozen=True)
class Rwkv6:
    """Time mixing of RWKV-5 and RWKV-6 (arXiv:2404.05892): linear attention with a decay for each channel, gated.

    **Fields:** `heads` of `head_dim` elements for receptance, keys and values; in RWKV-6 how a token is mixed with the
    one before it passes through `mix_rank` elements for each of five mixtures, and its decays through `decay_rank`; in
    RWKV-5 both are learned numbers, and the ranks None. The state of a head is `head_dim x head_dim`.
    """

    heads: int
    head_dim: int
    mix_rank: int | None = None
    decay_rank: int | None = None

    def __post_init__(self) -> None:
        check_counts(self, "heads", "head_dim")
        check_optional_counts(self, "mix_rank", "decay_rank")
        if (self.mix_rank is None) != (self.decay_rank is None):
            raise InputError("Rwkv6.mix_rank and Rwkv6.decay_rank: both are given (RWKV-6) or both are None (RWKV-5).")


@dataclass(frozen=True)
class RgLru:
    """A real-gated linear recurrent unit behind a convolution, times a second branch (Griffin, arXiv:2402.19427).

    **Fields:** `blocks` of `block` channels, each with a state of one element; the matrices of the two gates are of
    these blocks along the diagonal; `conv` taps of the causal convolution. All projections have biases.
    """

    blocks: int
    block: int
    conv: int

    def __post_init__(self) -> None:
        check_counts(self, "blocks", "block", "conv")

    @property
    def width(self) -> int:
        """Channels [1]."""
        return self.blocks * self.block


@dataclass(frozen=True)
class MLstm:
    """The mLSTM layer of xLSTM (arXiv:2405.04517, as in xLSTM 7B, arXiv:2503.13427): linear attention with an input and
    a forget gate for each head, normed and gated.

    **Fields:** `heads` of `key_dim` elements for queries and keys and `value_dim` for values; `bias` on the projections
    (the two gates of a head have one in any case). The state of a head is `key_dim x value_dim`, a normalizer of
    `key_dim` and the largest exponent.
    """

    heads: int
    key_dim: int
    value_dim: int
    bias: bool = False

    def __post_init__(self) -> None:
        check_counts(self, "heads", "key_dim", "value_dim")
        check_flags(self, "bias")
