"""What of a communication its compute cannot hide.

Compute hides one message at a time: what runs beside one kind is no window of another. So what shows of all kinds
together grows by no more than their compute shrinks, and a faster chip makes no step longer. Windows are of compute and
of what it waits for the host, without what shows of other messages: with that, a faster link of the one would leave the
other a shorter window, and a step could grow with a faster link.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar


class Passes(eqx.Module):
    """Of the forward and of the backward pass of a micro-batch: messages, what shows of them, or compute beside which
    they run [s]."""

    forward: Float[Array, "*batch"]
    backward: Float[Array, "*batch"]

    @property
    def total(self) -> Float[Array, "*batch"]:
        """Both [s]."""
        return self.forward + self.backward

    def __add__(self, other: Passes) -> Passes:
        return Passes(self.forward + other.forward, self.backward + other.backward)

    def __sub__(self, other: Passes) -> Passes:
        return Passes(self.forward - other.forward, self.backward - other.backward)

    def __mul__(self, factor: Scalar) -> Passes:
        return Passes(self.forward * factor, self.backward * factor)

    def exposed(self, windows: Passes, share: Scalar) -> Passes:
        """`exposed_time` of messages beside the compute of their pass [s]."""
        forward = exposed_time(self.forward, windows.forward, share)
        return Passes(forward, exposed_time(self.backward, windows.backward, share))

    def left(self, hidden: Passes) -> Passes:
        """Of windows: what no message runs beside when those of that `hidden` time do [s]."""
        forward = jnp.maximum(self.forward - hidden.forward, 0.0)
        return Passes(forward, jnp.maximum(self.backward - hidden.backward, 0.0))


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
