"""Step times in closed form: what a steady state needs of an engine's step, from a few probes of any model of it.

A step computes n decodes with `context` tokens each and prompts, the linear layers once over all tokens T:

    t = linear(T) + (d0 + d1 n + d2 n context) + (p0 + p1 q + p2 q^2 + c (p3 + p4 q))

with q tokens of a prompt after c cached ones; the first bracket only where there are decodes, the second only where
there are prompts. `linear` keeps the stairs that tiles make: a straight line inside each cell of `grain` tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div
from jaxperf.serving.simulator.step_time import StepTimeTable

GRAIN = 64.0  # tokens: what the tiles of products are multiples of
CELLS = 128  # at most: longer steps have a coarser grain
PROBES = 16  # counts of decodes, and of tokens, that attention is fitted to
GOLDEN = 0.5 * (5.0**0.5 - 1.0)  # whose multiples' fractions are evenly spread
SHORTEST = 5e-3  # s beside which errors of attention are weighed: about a decode step


class StepLaw(eqx.Module):
    """`first`, `last` [G]: linear layers of the first and the last count of tokens in each cell of `grain` tokens [s];
    `decode`: d0, d1, d2; `prefill`: p0 to p4, in s, s/token, s/token^2 as they stand in the equation."""

    first: Float[Array, "*batch G"]
    last: Float[Array, "*batch G"]
    grain: Float[Array, "*batch"]
    decode: Float[Array, "*batch 3"]
    prefill: Float[Array, "*batch 5"]


def linear_time(law: StepLaw, tokens: Scalar) -> Scalar:
    """Linear layers of a step with so many tokens, at least one; beyond the last cell in proportion to tokens [s]."""
    reach = law.first.shape[-1] * law.grain
    inside = jnp.clip(tokens, 1.0, reach)
    cell = ceil_div(jax.lax.stop_gradient(inside), law.grain) - 1.0
    index = cell.astype(jnp.int32)
    # The index is inside by its making; a gather that checks it again takes half of a sweep's time.
    start, stop = (ends.at[index].get(mode="promise_in_bounds") for ends in (law.first, law.last))
    time = start + (stop - start) * (inside - cell * law.grain - 1.0) / (law.grain - 1.0)
    return time * jnp.maximum(tokens / reach, 1.0)


def mean_linear_time(law: StepLaw, tokens: Scalar) -> Scalar:
    """Linear layers of steps whose tokens vary by a cell or more, so many in the mean: a line from the middle of a cell
    to that of the next [s]. A mean on an edge of a stair would have no fixed point, but go to and fro."""
    cells = law.first.shape[-1]
    middles = 0.5 * (law.first + law.last)
    place = jnp.clip((tokens - 0.5 * (law.grain + 1.0)) / law.grain, 0.0, cells - 1.0)
    cell = jnp.minimum(jax.lax.stop_gradient(place).astype(jnp.int32), max(cells - 2, 0))
    start, stop = (middles.at[each].get(mode="promise_in_bounds") for each in (cell, jnp.minimum(cell + 1, cells - 1)))
    time = start + (stop - start) * (place - cell.astype(place.dtype))
    return time * jnp.maximum(tokens / (cells * law.grain), 1.0)


def decode_attention(law: StepLaw, decodes: Scalar, context: Scalar) -> Scalar:
    """What decodes add to the linear layers [s]."""
    start, each, token = law.decode
    return start + decodes * (each + token * context)


def prompt_attention(law: StepLaw, tokens: Scalar, chunk: Scalar, cached: Scalar | float = 0.0) -> Scalar:
    """What a whole prompt adds to the linear layers of its steps, p0 aside, computed in chunks of `chunk` tokens after
    so many `cached` ones [s].

    Of p tokens in chunks of x after c the prefixes add up to p ((p - x) / 2 + c) / x, their products with the chunks to
    x times it.
    """
    _, each, pair, prefix, pairs = law.prefill
    prefixes = tokens * (0.5 * (tokens - chunk) + cached) / chunk
    return each * tokens + pair * tokens * chunk + prefixes * (prefix + pairs * chunk)


Probe = Callable[..., Scalar]


def probed_law(
    linear: Probe,
    decode: Probe,
    prefill: Probe,
    *,
    tokens: float,
    decodes: float,
    context: float,
    chunk: float,
    unit: float = 1.0,
) -> StepLaw:
    """The law of an engine from three functions of one point: linear layers of T tokens, attention of n decodes with
    a context, attention of a prompt's q tokens after so many cached ones; all in seconds.

    **Arguments:** the reach of its steps: most `tokens` and `decodes`, longest `context` and `chunk` of a prompt, which
    `prefill` tells apart by so many `unit` tokens.
    **Returns:** `StepLaw`; the attention by least squares over the reach, relative to a step.
    """
    cells = min(CELLS, max(1, -(-int(tokens) // int(GRAIN))))
    grain = max(GRAIN, -(-int(tokens) // cells))
    starts = jnp.arange(cells, dtype=jnp.result_type(float)) * grain
    shares, lengths = _scattered(PROBES), np.array([1.0, 0.5, 0.125])
    units = unit * np.maximum(chunk * shares / unit, 1.0).round()
    n, c = (each.ravel() for each in np.meshgrid(np.maximum(decodes * shares, 1.0).round(), context * lengths))
    q, p = (each.ravel() for each in np.meshgrid(units, context * lengths - context / 8))
    columns = np.stack([np.ones_like(n), n, n * c], axis=1), np.stack([np.ones_like(q), q, q * q, p, p * q], axis=1)
    return StepLaw(
        first=jax.vmap(linear)(starts + 1.0),
        last=jax.vmap(linear)(starts + grain),
        grain=as_float(grain),
        decode=_fitted(columns[0], jax.vmap(decode)(as_float(n), as_float(c))),
        prefill=_fitted(columns[1], jax.vmap(prefill)(as_float(p), as_float(q))),
    )


def _scattered(count: int) -> np.ndarray:
    """Shares of a range, evenly spread and at no round number: steps have stairs there, and a probe at a round number
    sees the lower edge of one (multiples of the golden ratio; Weyl 1916)."""
    return np.append((np.arange(1, count) * GOLDEN) % 1.0, 1.0)


def _fitted(columns: np.ndarray, times: Float[Array, " rows"]) -> Float[Array, " columns"]:
    """Least squares of times, errors relative to a step that has them."""
    scale = np.abs(columns).max(axis=0)
    weight = 1.0 / (jnp.maximum(times, 0.0) + SHORTEST)
    return jnp.linalg.lstsq(as_float(columns / scale) * weight[:, None], times * weight)[0] / as_float(scale)


def table_law(table: StepTimeTable) -> StepLaw:
    """The law of a table of step times, as far as the table reaches.

    A step takes the time at the end of the bucket that its mean context is in: the law's at the middle of it.
    """
    bucket, step = table.bucket, table.length_step
    last = table.decode.shape[1] - 1

    def linear(tokens: Scalar) -> Scalar:
        return table.tokens[jnp.minimum(tokens.astype(jnp.int32), table.tokens.shape[0] - 1)]

    def decode(number: Scalar, length: Scalar) -> Scalar:
        end = length + 0.5 * (bucket - 1.0)  # of a bucket whose middle is at `length`
        start = jnp.clip(floor_div(end, bucket), 0.0, max(last - 1.0, 0.0))
        row, column = table.decode[number.astype(jnp.int32)], start.astype(jnp.int32)
        return row[column] + (row[jnp.minimum(column + 1, last)] - row[column]) * (end / bucket - start)

    def prefill(prefix: Scalar, length: Scalar) -> Scalar:
        return table.prefill[ceil_div(prefix, bucket).astype(jnp.int32), ceil_div(length, step).astype(jnp.int32)]

    return probed_law(
        linear,
        decode,
        prefill,
        tokens=float(table.tokens.shape[0] - 1),
        decodes=float(table.decode.shape[0] - 1),
        context=float(bucket) * (table.decode.shape[1] - 1),
        chunk=float(step) * (table.prefill.shape[1] - 1),
        unit=float(step),
    )
