"""A mixture of experts on the busiest rank: router, dispatch, grouped GEMMs, combine; the shared expert."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxperf.core.numerics import Scalar, as_float, ceil_div, divides
from jaxperf.kernels.elementwise import activation_cost
from jaxperf.kernels.moe import GroupedGemm, Routing, rank_rows, routed_gemm_cost, touched_experts
from jaxperf.models.block_formats import Formats
from jaxperf.models.blocks.base import AbstractFfn, Kernels
from jaxperf.models.blocks.exchange import exchange_costs
from jaxperf.models.blocks.launch import activation, in_format, linear, plain_linear, reduce
from jaxperf.models.blocks.phase import Phase
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.feedforward import Moe
from jaxperf.network.limited_routing import GroupLimit


class MoeFfn(AbstractFfn):
    """Mixture of experts: experts, experts per token, width of one expert and of the shared expert (0: none) [1].

    `latent`: width that the routed experts read and write, between two projections of their own; 0 where that is the
    width of the layer. `shared_format`: that of the shared expert where it has one of its own, None where it is that
    of the routed ones. `limit`: the groups of experts that a token keeps to, None for any. `copies`: more slots, which
    hold experts a second time; `unvisited`: weights of experts of images and the like, spread over all ranks;
    `zero_experts`: choices of the router that stand for no block.
    """

    experts: Float[Array, "*batch"] = eqx.field(converter=as_float)
    chosen: Float[Array, "*batch"] = eqx.field(converter=as_float)
    intermediate: Float[Array, "*batch"] = eqx.field(converter=as_float)
    gates: Float[Array, "*batch"] = eqx.field(converter=as_float)
    shared_intermediate: Float[Array, "*batch"] = eqx.field(converter=as_float)
    latent: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    has_latent: bool = eqx.field(static=True, default=False)
    shared_format: str | None = eqx.field(static=True, default=None)
    limit: GroupLimit | None = eqx.field(static=True, default=None)
    copies: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    unvisited: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    zero_experts: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)

    @property
    def slots(self) -> Scalar:
        """Experts that all ranks hold together, copies included [1]."""
        return self.experts + self.copies

    def width(self, hidden: Scalar) -> Scalar:
        """Elements of a token as the routed experts see it [1]."""
        return self.latent if self.has_latent else hidden

    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        tokens, routing = phase.tokens, Routing(self.experts, self.chosen, deployment.routing_skew)
        dispatch, combine = exchange_costs(deployment, self.width(hidden), routing, phase, self.limit)
        return (
            {"router": plain_linear(deployment, tokens, self.experts + self.zero_experts, hidden)}
            | self._latent_kernel("latent_down_projection", deployment, tokens, self.latent, hidden)
            | {"expert_dispatch": dispatch}
            | self._expert_kernels(deployment, routing, self.width(hidden), tokens)
            | {"expert_combine": combine}
            | self._latent_kernel("latent_up_projection", deployment, tokens, hidden, self.latent)
            | self._shared_kernels(deployment, hidden, tokens)
        )

    def _latent_kernel(self, name: str, deployment: Deployment, tokens: Scalar, n: Scalar, k: Scalar) -> Kernels:
        """A projection into or out of the latent width, held whole by every rank."""
        return {name: linear(deployment, tokens, n, k)} if self.has_latent else {}

    def _expert_kernels(self, deployment: Deployment, routing: Routing, depth: Scalar, tokens: Scalar) -> Kernels:
        """The routed experts; `tokens` are those of one attention replica, the experts see the tokens of all."""
        device, layout, efficiencies = deployment.device, deployment.layout, deployment.efficiencies
        weights, activations = deployment.weights, deployment.activations
        everyone = tokens * layout.data_parallel
        # Few tokens leave some ranks idle, never all: the rank that the others wait for has an expert to read.
        rows = jnp.maximum(rank_rows(routing, everyone, layout.expert_parallel), 1.0)
        local = ceil_div(self.slots, layout.expert_parallel)
        groups = jnp.maximum(touched_experts(Routing(self.slots, self.chosen), everyone, local), 1.0)
        width = ceil_div(self.intermediate, layout.expert_tensor_parallel)
        up = GroupedGemm(rows, groups, (1.0 + self.gates) * width, depth)
        down = GroupedGemm(rows, groups, depth, width)
        return {
            "expert_up_projection": routed_gemm_cost(device, up, weights, activations, efficiencies.moe),
            "expert_activation": activation_cost(
                device, rows, width, self.gates, activations.itemsize, efficiencies.elementwise
            ),
            "expert_down_projection": routed_gemm_cost(device, down, weights, activations, efficiencies.moe),
        }

    def _shared_kernels(self, deployment: Deployment, hidden: Scalar, tokens: Scalar) -> Kernels:
        """The expert every token visits, split over the tensor-parallel ranks; costs nothing where its width is 0.

        With one attention replica the combining all-reduce adds its partial sums too; with several, or when the routed
        experts work in another width, it needs its own.
        """
        own = self.shared_format
        layout, at = deployment.layout, deployment if own is None else in_format(deployment, own)
        width = ceil_div(self.shared_intermediate, layout.tensor_parallel)
        exists = (width > 0.0).astype(width.dtype)
        some = jnp.maximum(width, 1.0)
        apart = as_float(1.0) if self.has_latent else (layout.data_parallel > 1.0).astype(width.dtype)
        return {
            "shared_up_projection": exists * linear(at, tokens, (1.0 + self.gates) * some, hidden),
            "shared_activation": exists * activation(deployment, tokens, some, self.gates),
            "shared_down_projection": exists * linear(at, tokens, hidden, some),
            "shared_all_reduce": exists * apart * reduce(deployment, tokens, hidden),
        }

    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        experts = ceil_div(self.slots, layout.expert_parallel)
        width = ceil_div(self.intermediate, layout.expert_tensor_parallel)
        routed = (2.0 + self.gates) * self.width(hidden) * experts * width + 2.0 * hidden * self.latent
        routed = routed + self.unvisited / (layout.expert_parallel * layout.expert_tensor_parallel)
        return routed if self.shared_format is not None else routed + self.shared_elements(hidden, layout)

    def shared_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        """Elements of the shared expert, which are matrix elements unless it has a format of its own [1]."""
        return (2.0 + self.gates) * hidden * ceil_div(self.shared_intermediate, layout.tensor_parallel)

    def other_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        return hidden * (self.experts + self.zero_experts)

    def alive(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        copies = self.chosen * layout.data_parallel / layout.expert_parallel
        width = ceil_div(self.intermediate, layout.expert_tensor_parallel)
        # Each copy of a token is also held as the input and the output of its expert.
        return ((2.0 + self.gates) * width + 2.0 * self.width(hidden)) * copies

    def uneven(self, layout: Parallelism) -> Bool[Array, ""]:
        return ~divides(layout.tensor_parallel, self.shared_intermediate)

    def uneven_experts(self, layout: Parallelism) -> Bool[Array, ""]:
        spread = divides(layout.expert_parallel, self.slots)
        return ~(spread & divides(layout.expert_tensor_parallel, self.intermediate))


def moe_ffn(moe: Moe, own: Formats = ()) -> MoeFfn:
    """The arrays of a described block; `own` as in `block_formats.own_formats`."""
    return MoeFfn(
        moe.experts,
        moe.experts_per_token,
        moe.intermediate,
        1.0 if moe.gated else 0.0,
        moe.shared_intermediate,
        latent=moe.latent or 0,
        has_latent=moe.latent is not None,
        shared_format=dict(own).get("shared"),
        limit=group_limit(moe),
        unvisited=moe.unvisited,
        zero_experts=moe.zero_experts,
    )


def group_limit(moe: Moe) -> GroupLimit | None:
    """The groups that a token of a described block keeps to, None where it may use all of them."""
    if moe.groups_per_token == moe.groups:
        return None
    return GroupLimit(moe.experts, moe.experts_per_token, moe.groups, moe.groups_per_token)
