"""What of a communication its compute cannot hide.

Windows are of compute alone, without what shows of other messages: with it, a faster link of the one would leave the
other a shorter window, and a step could grow with a faster link.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar


def exposed_time(communication: Scalar, window: Scalar, share: Scalar) -> Scalar:
    """t = c - min(share c, window): at most `share` of the communication runs beside compute, and no more than fits.

    **Arguments:** `communication` [s]; `window`: compute that may run meanwhile [s]; `share` in [0, 1] [1].
    **Returns:** what the step waits for [s].
    """
    return jnp.maximum(communication - jnp.minimum(share * communication, window), 0.0)


def inner_share(layers: Scalar) -> Scalar:
    """Share of a layer-by-layer communication that has another layer beside it: 1 - 1 / layers.

    The first gather has nothing before it and the last reduction nothing after it (FSDP, arXiv:2304.11277).
    """
    return 1.0 - 1.0 / jnp.maximum(layers, 1.0)
