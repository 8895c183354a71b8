"""The recurrent block of Griffin (arXiv:2402.19427): two branches, one through a convolution and an RG-LRU."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Bool, Float

from jaxperf.core.numerics import Scalar, as_float, ceil_div, divides
from jaxperf.kernels.batched_gemm import BatchedGemm, batched_gemm_cost
from jaxperf.kernels.channel_scan import ChannelScan
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import gate, linear
from jaxperf.models.blocks.phase import Phase
from jaxperf.models.blocks.recurrent import AbstractRecurrent, convolve
from jaxperf.models.blocks.rwkv4 import scan
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.mixers import RgLru

OPERATIONS = 15.0  # two gates: 6; the decay from one, and its complement: 5; gated input: 2; a h + that: 2
VECTORS = 4.0  # input, two gates and output


class RgLruMixer(AbstractRecurrent):
    """Blocks on the diagonal of the gates' matrices, channels of one, taps [1]. Tensor ranks divide the blocks."""

    blocks: Float[Array, "*batch"] = eqx.field(converter=as_float)
    block: Float[Array, "*batch"] = eqx.field(converter=as_float)
    taps: Float[Array, "*batch"] = eqx.field(converter=as_float)

    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        tokens, width = phase.tokens, self.rank_width(deployment.layout)
        blocks = ceil_div(self.blocks, deployment.layout.tensor_parallel)
        gates = BatchedGemm(2.0 * blocks, tokens, self.block, self.block)
        weights, activations, gemm = deployment.weights, deployment.activations, deployment.efficiencies.gemm
        return {
            "lru_in_projection": linear(deployment, tokens, 2.0 * width, hidden),
            "lru_convolution": convolve(deployment, phase, width, self.taps),
            "lru_gate_projection": batched_gemm_cost(deployment.device, gates, weights, activations, gemm),
            "rg_lru": scan(deployment, phase, ChannelScan(width, 1.0, OPERATIONS, VECTORS)),
            "branch_gate": gate(deployment, tokens, width),
            "lru_out_projection": linear(deployment, tokens, hidden, width),
        }

    def rank_width(self, layout: Parallelism) -> Scalar:
        """Channels of one tensor-parallel rank [1]."""
        return ceil_div(self.blocks, layout.tensor_parallel) * self.block

    def recurrent_elements(self, layout: Parallelism) -> Scalar:
        return self.rank_width(layout)

    def convolution(self, layout: Parallelism) -> tuple[Scalar, Scalar]:
        return self.rank_width(layout), self.taps

    def decay_elements(self, layout: Parallelism) -> Scalar:
        return 3.0 * self.rank_width(layout)

    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        return self.rank_width(layout) * (3.0 * hidden + 2.0 * self.block)

    def uneven(self, layout: Parallelism) -> Bool[Array, ""]:
        return ~divides(layout.tensor_parallel, self.blocks)


def rg_lru_mixer(mixer: RgLru) -> RgLruMixer:
    """The arrays of a described mixer."""
    return RgLruMixer(mixer.blocks, mixer.block, mixer.conv)
