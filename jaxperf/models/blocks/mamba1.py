"""Mamba (arXiv:2312.00752): projection in, short convolution, step size, B and C from it, scan, projection out."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Bool, Float

from jaxperf.core.numerics import Scalar, as_float, ceil_div, divides
from jaxperf.kernels.selective_scan import SelectiveScan, selective_scan_cost, selective_scan_decode_cost
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import linear, plain_norm, reduce
from jaxperf.models.blocks.phase import Phase
from jaxperf.models.blocks.recurrent import AbstractRecurrent, convolve, recur
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.mixers import Mamba1


class Mamba1Mixer(AbstractRecurrent):
    """Channels, state elements of each, rank of the step-size projection, taps [1].

    Tensor parallelism splits the channels; step size, B and C are sums over all of them, hence an all-reduce.
    """

    inner: Float[Array, "*batch"] = eqx.field(converter=as_float)
    state: Float[Array, "*batch"] = eqx.field(converter=as_float)
    dt_rank: Float[Array, "*batch"] = eqx.field(converter=as_float)
    taps: Float[Array, "*batch"] = eqx.field(converter=as_float)
    inner_norms: bool = eqx.field(static=True)

    @property
    def selected(self) -> Float[Array, "*batch"]:
        """Elements of step size, B and C before the step size is spread over the channels [1]."""
        return self.dt_rank + 2.0 * self.state

    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        tokens, inner = phase.tokens, self.rank_channels(deployment.layout)
        scan = SelectiveScan(inner, self.state)
        kernels = {
            "mamba_in_projection": linear(deployment, tokens, 2.0 * inner, hidden),
            "mamba_convolution": convolve(deployment, phase, inner, self.taps),
            "mamba_selection": linear(deployment, tokens, self.selected, inner),
            "state_all_reduce": reduce(deployment, tokens, self.selected),
            "mamba_step_projection": linear(deployment, tokens, inner, self.dt_rank),
            "mamba_scan": recur(deployment, phase, scan, selective_scan_cost, selective_scan_decode_cost),
            "mamba_out_projection": linear(deployment, tokens, hidden, inner),
        }
        if self.inner_norms:
            kernels["mamba_norm"] = plain_norm(deployment, tokens, self.selected)
        return kernels

    def rank_channels(self, layout: Parallelism) -> Scalar:
        """Channels of one tensor-parallel rank [1]."""
        return ceil_div(self.inner, layout.tensor_parallel)

    def recurrent_elements(self, layout: Parallelism) -> Scalar:
        return self.rank_channels(layout) * self.state

    def convolution(self, layout: Parallelism) -> tuple[Scalar, Scalar]:
        return self.rank_channels(layout), self.taps

    def decay_elements(self, layout: Parallelism) -> Scalar:
        return self.rank_channels(layout) * (self.state + 2.0)

    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        return self.rank_channels(layout) * (3.0 * hidden + self.selected + self.dt_rank)

    def uneven(self, layout: Parallelism) -> Bool[Array, ""]:
        return ~divides(layout.tensor_parallel, self.inner)


def mamba1_mixer(mamba: Mamba1) -> Mamba1Mixer:
    """The arrays of a described mixer."""
    return Mamba1Mixer(mamba.inner, mamba.state, mamba.dt_rank, mamba.conv, mamba.inner_norms)
