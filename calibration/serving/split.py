"""How the workers of two pools are divided: as a table states it, or all ways that are tried."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from calibration.datasets.serving import Configuration
from jaxperf.core.numerics import Scalar, ceil_div

SPLITS = 16  # shares of the workers that are tried for prefill; every split of up to so many workers
DECODING = "{:.0f} of {:.0f} workers decode: the fewest that hold the concurrency with a batch of {:g} on a rank"


def decode_workers(given: Configuration, workers: float, data: float) -> tuple[float, str]:
    """Of the `workers` of two pools those that decode [1], and what is said of it: as many as hold the requests in
    flight with `batch` of them on each of their `data` attention ranks; 0 where the table does not state both, or has
    fewer workers than that and one to prefill."""
    concurrency, batch = given.load["concurrency"], given.load["batch"]
    if given.mode != "disagg" or not math.isfinite(concurrency * batch):
        return 0.0, ""
    decoders = float(ceil_div(concurrency, batch * data))
    if decoders >= workers:
        return 0.0, ""
    return decoders, DECODING.format(decoders, workers, batch)


def prefillers(workers: Scalar, decoders: Scalar) -> Float[Array, " K"]:
    """How many of the workers may prefill: those that do not decode, where that is stated (`decoders` above 0) [1]."""
    tried = jnp.round(jnp.arange(1.0, float(SPLITS)) * jnp.maximum(workers / SPLITS, 1.0))
    return jnp.where(decoders > 0.0, workers - decoders, tried)
