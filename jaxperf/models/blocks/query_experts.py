"""Projections of queries and outputs that are experts, chosen by a router (JetMoE, arXiv:2404.07413): each has as many
heads as there are keys, and a token uses several. Tensor parallelism splits the heads, and with them every expert."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.kernels.moe import GroupedGemm, Routing, routed_gemm_cost, touched_experts
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import plain_linear
from jaxperf.models.deployment import Deployment


class QueryExperts(eqx.Module):
    """Experts, and those that a token uses [1]."""

    experts: Float[Array, "*batch"] = eqx.field(converter=as_float)
    chosen: Float[Array, "*batch"] = eqx.field(converter=as_float)

    def queries(self, at: Deployment, tokens: Scalar, width: Scalar, depth: Scalar) -> Kernels:
        """The choice of experts, and `width` elements of queries from `depth` by all chosen together."""
        router = plain_linear(at, tokens, self.experts, depth)
        return {"query_router": router, "query_projection": self._product(at, tokens, width / self.chosen, depth)}

    def outputs(self, at: Deployment, tokens: Scalar, hidden: Scalar, width: Scalar) -> Cost:
        """The residual's width from `width` elements of all chosen experts' heads."""
        return self._product(at, tokens, hidden, width / self.chosen)

    def _product(self, at: Deployment, tokens: Scalar, n: Scalar, k: Scalar) -> Cost:
        touched = touched_experts(Routing(self.experts, self.chosen, at.routing_skew), tokens, self.experts)
        gemm = GroupedGemm(tokens * self.chosen, jnp.maximum(touched, 1.0), n, k)
        return routed_gemm_cost(at.device, gemm, at.weights, at.activations, at.efficiencies.moe)
