"""Habits: where kernels are known to waste a resource, each as the logarithm of a ratio that is 0 for an ordinary one.

The law takes powers of these ratios, one for the arithmetic and one for the memory time: 0 where a kernel knows how to
avoid the waste, 1 where it does not. What a kernel does is a property of its software, so a power learned on one device
is used on another.
"""

from __future__ import annotations

import jax.numpy as jnp

from calibration.kernels import experts
from calibration.kernels.asked import Shape, way
from calibration.kernels.formats import Formats
from calibration.kernels.hardware import Hardware
from calibration.kernels.prefill import prefill_of
from jaxperf.core.numerics import Scalar, as_float, ceil_div

QUERY_BLOCK = 128.0  # queries that a block of a prefill kernel takes
TILE_ROWS = 64.0  # rows that a tile of a grouped GEMM has
# Sizes of an ordinary mixture of experts.
HIDDEN, INTER, EXPERTS, TOKENS = 4096.0, 1024.0, 16.0, 256.0
UNTUNED = 1.4  # how much longer than its tiles say a kernel of an untuned library may take at most [log 1]
MOST_ROWS = 512.0  # of an expert, beyond which more of them change nothing


def habits(family: str, x: Shape, hardware: Hardware, skewed: Scalar, formats: Formats) -> dict[str, Scalar]:
    """The habits of one kernel by name [log 1]; none for a family where none is known.

    **Arguments:** as of `calibration.kernels.features.features`.
    """
    if family == "attention_prefill":
        return _prefill(x, hardware)
    if family == "moe":
        return _experts(x, skewed, formats)
    return {}


def _prefill(x: Shape, hardware: Hardware) -> dict[str, Scalar]:
    queries, window = x["q_len"], x["window"]
    seen = jnp.where(window > 0.0, jnp.minimum(window, queries), queries)
    blocks = ceil_div(queries, jnp.full_like(queries, QUERY_BLOCK)) * x["heads"] * x["batch"]
    return {
        "pairs outside the window": jnp.log(0.5 * queries**2 / (seen * queries - 0.5 * seen**2)),
        "block longer than the queries": _above(prefill_of("attention_prefill", x).step / queries),
        "idle cores": _above(hardware.device.num_cores / blocks),
        "queries per key head": jnp.log(x["heads"] / x["kv_heads"]),
        "head size": jnp.log(x["head_dim"] / 128.0),
    }


def _experts(x: Shape, skewed: Scalar, formats: Formats) -> dict[str, Scalar]:
    given = experts.work(x, formats)
    rows = jnp.maximum(given.rows / given.touched, 1.0)
    return {
        "tile taller than an expert's rows": _above(TILE_ROWS / rows),
        "rows beyond a tile": _above(jnp.minimum(rows, MOST_ROWS) / TILE_ROWS),
        "skewed routing": as_float(skewed),
        "hidden size": jnp.log(x["hidden"] / HIDDEN),
        "expert width": jnp.log(x["inter"] / x["tp"] / INTER),
        "experts": jnp.log(x["experts"] / x["ep"] / EXPERTS),
        "many tokens": _above(x["tokens"] / TOKENS),
        "untuned": way(x, "untuned") * UNTUNED,
        "own experts": jnp.log(given.copies / given.rows),
        "part of a line": jnp.log(experts.line_over_row(x, given, formats)),
    }


def _above(ratio: Scalar) -> Scalar:
    """Logarithm of what exceeds 1."""
    return jnp.log(jnp.maximum(ratio, 1.0))
