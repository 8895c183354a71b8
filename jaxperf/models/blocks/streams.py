"""A residual of several streams (hyper-connections, arXiv:2409.19606; manifold-constrained in DeepSeek V4).

Before a block, a projection of all streams of a token gives the weights of its input, of its output and of the streams
among each other; the block reads their weighted sum, and what it makes is added to the mixed streams (arXiv:2512.24880,
section 4.1). Every tensor-parallel rank holds and mixes all streams. A multiply-add is one vector operation.
"""

from __future__ import annotations

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.kernels.elementwise import Stream, stream_cost
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import plain_linear
from jaxperf.models.deployment import Deployment


def mixing_kernels(at: Deployment, tokens: Scalar, hidden: Scalar, streams: int, weights: int, block: str) -> Kernels:
    """Around one block: `weights` made of the streams of a token, their sum, and the streams that follow.

    Of `n` streams there are n for the sum and n for what is added, and n^2 where they are mixed too. The few hundred
    operations on a token's weights (softmax, the rounds that balance rows and columns) are left out.
    """
    wide, itemsize = tokens * hidden * streams, at.activations.itemsize
    expand = Stream((wide + tokens * hidden) * itemsize, wide * itemsize, (streams + 1.0) * wide)
    return collapse_kernels(at, tokens, hidden, streams, weights, block) | {
        f"{block}_streams_expand": stream_cost(at.device, expand, at.efficiencies.elementwise)
    }


def collapse_kernels(at: Deployment, tokens: Scalar, hidden: Scalar, streams: int, columns: int, name: str) -> Kernels:
    """The projection of all streams of a token to `columns` weights, and the weighted sum of the streams."""
    wide, itemsize = tokens * hidden * streams, at.activations.itemsize
    weighted = Stream(wide * itemsize, tokens * hidden * itemsize, wide)
    return {
        f"{name}_streams_projection": plain_linear(at, tokens, as_float(columns), hidden * streams),
        f"{name}_streams_collapse": stream_cost(at.device, weighted, at.efficiencies.elementwise),
    }
