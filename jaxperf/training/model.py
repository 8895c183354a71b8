"""A transformer as the numbers a training step needs: sizes of its average layer by kind of block."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float

from jaxperf.core.numerics import as_float, as_optional_float


class TrainingModel(eqx.Module):
    """Sizes of a decoder (or encoder) of `layers` layers; every block is counted in the layers that have it.

    Of the whole model: `layers`, `hidden`, `vocab`, `tied` (1: the output head is the token table),
    `other_parameters` (norms, biases, position tables: whatever is in no matrix below), `causal`, `dropout` (1: after
    attention, in it and after the feed-forward block), `gated` (1: SwiGLU, three matrices);
    `beside_weights` of matrices beside the blocks, which no ranks split, in each of `beside_layers`, among the
    `other_parameters`;
    `streams` of the residual (hyper-connections, arXiv:2512.24880), which are mixed around each block;
    `mtp`: further tokens that a position predicts (arXiv:2412.19437, section 2.2), by one of the `layers` and one more
    visit of the head each;
    `table`, `head`: 0 where the token table or the output head is not here, but with another part of the layers.

    Softmax attention, in each of `attention_layers`: `attention_weights` of all its projections; `score_width` = heads
    x elements of a query, `value_width` = heads x elements of a value, `kv_width` elements of key and value a token
    that the core reads, `latent_width` elements of compressed queries and keys (MLA) kept beside them; `up_weights` of
    the projections up from these, which make `up_rows` elements a token; `heads`,
    `kv_heads`; `window_layers` of these see `window` tokens only; `output_width` elements that the output projection
    reads, 0: `value_width`. In the mean over these layers a query sees `entries` compressed tokens too for each token
    before it, and `chosen` ones for each of the last `chosen_window` (DeepSeek V4). An indexer that chooses takes
    `choosing_flops` and makes `choosing_scores` for each token before a query.

    Recurrent mixers, in each of `mixer_layers`: `mixer_weights`, `mixer_width` (channels its output projection
    reads), `state_flops` of the scan for a token; `state_elements` that the tokens of a sequence need of all before
    them, and `transition_elements` of what a stretch of tokens does to a state where that is a matrix (delta rules).

    Feed-forward: `dense_layers` with `dense_ffn_weights` and `ffn_width`; `moe_layers` with `experts` of
    `expert_weights` and `expert_width` reading rows of `expert_hidden`, `topk` a token, `shared_weights` and
    `shared_width` that every token visits, `router` weights; `hits` [bins]: the `hits_table` of a router that keeps a
    token to some groups of experts, None for any. `*_adapters`: sum of inputs and outputs of the linear layers of one
    block, which a LoRA adapter multiplies by its rank.

    What ranks can share evenly in every layer, greatest common divisors (0: nothing to share): `tensor_shares` of heads
    and widths, `kv_shares` of the heads of keys and values, `expert_shares` of the experts' widths.

    All are element counts [1], except `state_flops` and `choosing_flops` [FLOP].
    """

    layers: Float[Array, "*batch"] = eqx.field(converter=as_float)
    hidden: Float[Array, "*batch"] = eqx.field(converter=as_float)
    vocab: Float[Array, "*batch"] = eqx.field(converter=as_float)
    tied: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    table: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    head: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    causal: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    dropout: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    gated: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    streams: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    mtp: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    beside_layers: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    beside_weights: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    other_parameters: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)

    attention_layers: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    attention_weights: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    score_width: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    value_width: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    kv_width: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    latent_width: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    up_weights: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    up_rows: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    heads: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    kv_heads: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    window: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    window_layers: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    output_width: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    entries: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    chosen: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    chosen_window: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    choosing_flops: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    choosing_scores: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    attention_adapters: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)

    mixer_layers: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    mixer_weights: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    mixer_width: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    state_flops: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    state_elements: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    transition_elements: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    mixer_adapters: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)

    dense_layers: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    dense_ffn_weights: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    ffn_width: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    ffn_adapters: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)

    moe_layers: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    experts: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    topk: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    expert_weights: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    expert_width: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    expert_hidden: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    shared_weights: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    shared_width: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    router: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    shared_adapters: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    expert_adapters: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)

    hits: Float[Array, "*batch bins"] | None = eqx.field(converter=as_optional_float, default=None)

    tensor_shares: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    kv_shares: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    expert_shares: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)

    @property
    def embedding(self) -> Float[Array, "*batch"]:
        """Elements of the token table [1]."""
        return self.vocab * self.hidden

    @property
    def tables(self) -> Float[Array, "*batch"]:
        """Copies of it, token table and head: one where both are here and tied [1]."""
        return self.table + self.head * (1.0 - self.table * self.tied)

    @property
    def further(self) -> Float[Array, "*batch"]:
        """Further tokens that a position predicts where the head is here [1]."""
        return self.mtp * self.head

    @property
    def further_weights(self) -> Float[Array, "*batch"]:
        """Projections of a token's row beside that of the layers, to the width of a further layer [1]."""
        return self.further * 2.0 * self.hidden * self.hidden

    @property
    def dense_layer_parameters(self) -> Float[Array, "*batch"]:
        """Matrices of the average layer that data parallelism replicates everywhere: all but the routed experts [1]."""
        blocks = (
            self.attention_layers * self.attention_weights
            + self.mixer_layers * self.mixer_weights
            + self.dense_layers * self.dense_ffn_weights
            + self.moe_layers * (self.shared_weights + self.router)
        )
        return blocks / self.layers

    @property
    def expert_layer_parameters(self) -> Float[Array, "*batch"]:
        """All routed experts of the average layer [1]."""
        return self.moe_layers * self.experts * self.expert_weights / self.layers

    @property
    def active_layer_parameters(self) -> Float[Array, "*batch"]:
        """Matrices of the average layer that one token is multiplied with [1]."""
        return self.dense_layer_parameters + self.moe_layers * self.topk * self.expert_weights / self.layers

    @property
    def dense_layer_adapters(self) -> Float[Array, "*batch"]:
        """Inputs and outputs of the adapted linear layers of the average layer, all but the routed experts'; times the
        rank of LoRA these are its parameters (Hu et al. 2021, arXiv:2106.09685) [1]."""
        blocks = (
            self.attention_layers * self.attention_adapters
            + self.mixer_layers * self.mixer_adapters
            + self.dense_layers * self.ffn_adapters
            + self.moe_layers * self.shared_adapters
        )
        return blocks / self.layers

    @property
    def expert_layer_adapters(self) -> Float[Array, "*batch"]:
        """The same of all routed experts of the average layer [1]."""
        return self.moe_layers * self.experts * self.expert_adapters / self.layers

    @property
    def active_layer_adapters(self) -> Float[Array, "*batch"]:
        """The same of what one token is multiplied with: of the experts its `topk` [1]."""
        return self.dense_layer_adapters + self.moe_layers * self.topk * self.expert_adapters / self.layers

    @property
    def parameters(self) -> Float[Array, "*batch"]:
        """All stored parameters [1]."""
        layer = self.dense_layer_parameters + self.expert_layer_parameters
        return self.layers * layer + self._around

    @property
    def active_parameters(self) -> Float[Array, "*batch"]:
        """Parameters in use for one token, tables in full: the convention of published figures [1]."""
        return self.layers * self.active_layer_parameters + self._around

    @property
    def _around(self) -> Float[Array, "*batch"]:
        return self.tables * self.embedding + self.further_weights + self.other_parameters
