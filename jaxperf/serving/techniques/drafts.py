"""Who proposes tokens in speculative decoding: a smaller model, a layer on the target's hidden states, or heads.

A small model (Leviathan et al. 2023, arXiv 2211.17192) decodes step by step. A layer reads the target's last hidden
state beside the token's embedding and shares its tables (EAGLE, arXiv 2401.15077; the multi-token prediction of
DeepSeek-V3, arXiv 2412.19437, 2.2). Medusa's heads (arXiv 2401.10774) propose for all positions at once, each from a
residual block and an output head of its own.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import operator

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import plain_linear
from jaxperf.models.blocks.phase import Prefill
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.layers import Transformer
from jaxperf.models.memory import group_weight_bytes, kv_cache_bytes, weight_bytes
from jaxperf.models.step import COLLECTIVES, DRAFT_COLLECTIVES
from jaxperf.models.transformer import add_up, edge_kernels, group_kernels, merged
from jaxperf.serving.techniques.step import several_token_kernels

DRAFT = "draft"


class AbstractDraft(eqx.Module):
    """Who proposes. `at` is everywhere the deployment of the target."""

    @abc.abstractmethod
    def round_kernels(
        self, at: Deployment, sequences: Scalar, context: Scalar, widths: Float[Array, " k"], kept: Scalar
    ) -> Kernels:
        """All kernels that propose for one round.

        **Arguments:** `sequences` of one attention replica, each of `context` tokens [1]; `widths`: tokens proposed for
        each position [k]; `kept`: expected tokens that the round before kept of a sequence [1].
        """

    @abc.abstractmethod
    def prompt_kernels(self, at: Deployment, sequences: Scalar, prompt: Scalar, prefix: Scalar) -> Kernels:
        """What the draft does with the prompts of `sequences` after `prefix` cached tokens of each."""

    @abc.abstractmethod
    def weight_bytes(self, at: Deployment, positions: int) -> Scalar:
        """Weights on one rank for proposals of so many positions, tables of the target left out [byte]."""

    @abc.abstractmethod
    def cache_bytes(self, at: Deployment, sequences: Scalar, length: Scalar) -> Scalar:
        """Cache of `sequences` sequences of `length` tokens on one rank [byte]."""


class DraftModel(AbstractDraft):
    """A model of its own on the target's devices, split over `tensor_parallel` of them [1]."""

    model: Transformer
    tensor_parallel: Float[Array, ""] = eqx.field(converter=as_float)

    def deployed(self, at: Deployment) -> Deployment:
        """The draft as the target is deployed, in its formats."""
        layout = Parallelism(self.tensor_parallel, 1.0, 1.0, at.layout.data_parallel)
        return dataclasses.replace(at, layout=layout)

    def round_kernels(
        self, at: Deployment, sequences: Scalar, context: Scalar, widths: Float[Array, " k"], kept: Scalar
    ) -> Kernels:
        """One decode step a position: each works on what the one before proposed, the first on the last token kept."""
        worked = jnp.concatenate([jnp.ones(1), widths[:-1]])
        return _passes(self.deployed(at), self.model, sequences, context, worked)

    def prompt_kernels(self, at: Deployment, sequences: Scalar, prompt: Scalar, prefix: Scalar) -> Kernels:
        own, phase = self.deployed(at), Prefill(sequences, prompt, prefix)
        layers = group_kernels(own, self.model.hidden, self.model.groups, phase)
        return layers | edge_kernels(own, self.model, phase.tokens, sequences)

    def weight_bytes(self, at: Deployment, positions: int) -> Scalar:
        return weight_bytes(self.deployed(at), self.model)

    def cache_bytes(self, at: Deployment, sequences: Scalar, length: Scalar) -> Scalar:
        return kv_cache_bytes(self.deployed(at), self.model, sequences, length)


class DraftLayer(AbstractDraft):
    """A layer on the target's hidden states, asked once for each position; `model`: the target with that layer only."""

    model: Transformer

    def round_kernels(
        self, at: Deployment, sequences: Scalar, context: Scalar, widths: Float[Array, " k"], kept: Scalar
    ) -> Kernels:
        """As of a draft model, but the first pass works on every token kept, whose hidden states are new."""
        worked = jnp.concatenate([jnp.reshape(kept, 1), widths[:-1]])
        joined = _total(jax.vmap(lambda tokens: {"joined": self._join(at, sequences * tokens)})(worked))
        return merged([_passes(at, self.model, sequences, context, worked), joined])

    def prompt_kernels(self, at: Deployment, sequences: Scalar, prompt: Scalar, prefix: Scalar) -> Kernels:
        phase = Prefill(sequences, prompt, prefix)
        layers = group_kernels(at, self.model.hidden, self.model.groups, phase)
        return layers | {"joined": self._join(at, phase.tokens)}

    def _join(self, at: Deployment, tokens: Scalar) -> Cost:
        """Hidden state and embedding, side by side, to one width."""
        return plain_linear(at, tokens, self.model.hidden, 2.0 * self.model.hidden)

    def weight_bytes(self, at: Deployment, positions: int) -> Scalar:
        joined = 2.0 * self.model.hidden**2 * at.activations.itemsize
        return group_weight_bytes(at, self.model.hidden, self.model.groups) + joined

    def cache_bytes(self, at: Deployment, sequences: Scalar, length: Scalar) -> Scalar:
        return kv_cache_bytes(at, self.model, sequences, length)


class DraftHeads(AbstractDraft):
    """One head a position, `hidden` wide, over `vocabulary` tokens [1]: all read the same hidden state."""

    hidden: Float[Array, ""] = eqx.field(converter=as_float)
    vocabulary: Float[Array, ""] = eqx.field(converter=as_float)

    def round_kernels(
        self, at: Deployment, sequences: Scalar, context: Scalar, widths: Float[Array, " k"], kept: Scalar
    ) -> Kernels:
        block = plain_linear(at, sequences, self.hidden, self.hidden)
        head = plain_linear(at, sequences, self._columns(at), self.hidden)
        return {"heads": (block + head) * as_float(float(widths.shape[0]))}

    def prompt_kernels(self, at: Deployment, sequences: Scalar, prompt: Scalar, prefix: Scalar) -> Kernels:
        return {}

    def _columns(self, at: Deployment) -> Scalar:
        return ceil_div(self.vocabulary, at.layout.tensor_parallel)

    def weight_bytes(self, at: Deployment, positions: int) -> Scalar:
        return positions * self.hidden * (self.hidden + self._columns(at)) * at.activations.itemsize

    def cache_bytes(self, at: Deployment, sequences: Scalar, length: Scalar) -> Scalar:
        return as_float(0.0)


def _passes(
    at: Deployment, model: Transformer, sequences: Scalar, context: Scalar, worked: Float[Array, " k"]
) -> Kernels:
    """The kernels of all passes, which work on `worked` tokens of each sequence."""
    source = as_float(0.0)
    return _total(jax.vmap(lambda tokens: several_token_kernels(at, model, sequences, context, tokens, source))(worked))


def _total(kernels: Kernels) -> Kernels:
    """The sum over the leading axis of every kernel."""
    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), kernels)


def as_draft(kernels: Kernels) -> Kernels:
    """All that keeps a device busy as one kernel, `draft`, and what its ranks exchange as another."""
    local = [cost for name, cost in kernels.items() if name not in COLLECTIVES]
    exchanged = [cost for name, cost in kernels.items() if name in COLLECTIVES]
    parts = {DRAFT: local, DRAFT_COLLECTIVES: exchanged}
    return {name: functools.reduce(operator.add, costs) for name, costs in parts.items() if costs}


def draft_time(kernels: Kernels) -> Scalar:
    """What the draft's part of a round takes, exchanges included [s]."""
    return add_up(
        {name: kernels[name] for name in (DRAFT, DRAFT_COLLECTIVES) if name in kernels}, lambda cost: cost.time
    )
