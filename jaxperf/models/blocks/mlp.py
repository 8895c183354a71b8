"""The dense feed-forward block: up (and gate) projection, activation, down projection."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxperf.core.numerics import Scalar, as_float, ceil_div, divides
from jaxperf.models.block_formats import Formats
from jaxperf.models.blocks.base import AbstractFfn, Kernels
from jaxperf.models.blocks.launch import activation, linear, reduce
from jaxperf.models.blocks.phase import Phase
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.feedforward import Mlp


class DenseFfn(AbstractFfn):
    """Feed-forward width [1] and number of gate projections (1: SwiGLU, 0: plain)."""

    intermediate: Float[Array, "*batch"] = eqx.field(converter=as_float)
    gates: Float[Array, "*batch"] = eqx.field(converter=as_float)

    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        tokens, width = phase.tokens, ceil_div(self.intermediate, deployment.layout.tensor_parallel)
        return {
            "up_projection": linear(deployment, tokens, (1.0 + self.gates) * width, hidden),
            "activation": activation(deployment, tokens, width, self.gates),
            "down_projection": linear(deployment, tokens, hidden, width),
            "ffn_all_reduce": reduce(deployment, tokens, hidden),
        }

    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        return (2.0 + self.gates) * hidden * ceil_div(self.intermediate, layout.tensor_parallel)

    def other_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        return as_float(0.0)

    def alive(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        return (2.0 + self.gates) * ceil_div(self.intermediate, layout.tensor_parallel)

    def uneven(self, layout: Parallelism) -> Bool[Array, ""]:
        return ~divides(layout.tensor_parallel, self.intermediate)

    def uneven_experts(self, layout: Parallelism) -> Bool[Array, ""]:
        return jnp.asarray(False)


def dense_ffn(mlp: Mlp, own: Formats = ()) -> DenseFfn:
    """The arrays of a described block, which has one format as a whole."""
    return DenseFfn(mlp.intermediate, 1.0 if mlp.gated else 0.0)
