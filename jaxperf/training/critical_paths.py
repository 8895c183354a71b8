"""How long a pipeline of uneven stages takes: the longest walk through its passes, of the few that can be longest.

A walk goes from pass to pass that waits for it, on the same stage or on a neighbor; a step ends with the longest. With
S = `total`, m micro-batches on p stages:

- 1F1B, stage j the bottleneck: (m - q) A_j + max(q F_j, b) + max(q B_j, b) + sum_(s < j) A_s with the q = p - 1 - j
  stages behind it, which take b for a micro-batch: it works, or waits for them, while the pipeline fills and while it
  empties. Of equal stages between the ends the one before the last.
- Interleaved, a chunk of v on each stage for p micro-batches in turn (Megatron-LM, arXiv:2104.04473): all stages change
  chunks together, and the longest chunk sets the pace of a turn. The first stage is in its first chunk, forward and
  backward, while the last is in its last. So the walk stays in the last stage, between the ends or in the first.

Both are exact against a simulation of every pass where chunks have one share of forward time (tests/training).
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar


class StageTimes(eqx.Module):
    """One micro-batch, forward and backward [s]: `total` of all stages, of the `first`, of the `last` and of a full one
    `between` them; of the `first_chunk` of the pipeline and the `last_chunk`, which have fewer layers and the ends of
    the model, the other chunks being full."""

    total: Float[Array, "*batch"]
    first: Float[Array, "*batch"]
    between: Float[Array, "*batch"]
    last: Float[Array, "*batch"]
    first_chunk: Float[Array, "*batch"]
    last_chunk: Float[Array, "*batch"]


def gpipe_time(times: StageTimes, p: Scalar, m: Scalar) -> Scalar:
    """All forward passes, then all backward passes: S + (m - 1) max_j A_j [s]; `p` stages, `m` micro-batches [1]."""
    return times.total + (m - 1.0) * _longest(times, p)


def one_forward_one_backward_time(times: StageTimes, p: Scalar, m: Scalar, forward: Scalar) -> Scalar:
    """The 1F1B schedule [s]; `p` stages, `m` micro-batches, `forward` share of a stage's time [1]."""
    first, between, last = times.first, times.between, times.last
    behind = times.total - first
    there, back = (jnp.minimum(m, p) - 1.0) * forward * first, (jnp.minimum(m, p) - 1.0) * (1.0 - forward) * first
    once = jnp.maximum(there + back, behind + jnp.maximum(there, back))
    waited = jnp.where(m >= p, jnp.maximum(once, 2.0 * behind), once)
    on_first = first + jnp.maximum(m - p, 0.0) * first + waited
    filled = jnp.maximum(forward * between, last) + jnp.maximum((1.0 - forward) * between, last)
    before_last = times.total - last + (m - 2.0) * between + filled
    on_last = times.total + (m - 1.0) * last
    return jnp.maximum(jnp.maximum(on_first, on_last), jnp.where((p > 2.5) & (m > 1.5), before_last, 0.0))


def interleaved_time(times: StageTimes, p: Scalar, v: Scalar, m: Scalar, forward: Scalar) -> Scalar:
    """The interleaved schedule [s], with micro-batches in groups of p, all of them where they are fewer.

    **Arguments:** `p` stages of `v` chunks, two or more, `m` micro-batches; `forward` share of a chunk's time [1].
    """
    chunk = times.between / v
    few = _few_microbatches(times, chunk, m, forward)
    in_groups = jnp.maximum(
        _from_the_end(times, chunk, p, v, m, forward), _on_the_first(times, chunk, p, v, m, forward)
    )
    return jnp.where(m < p, few, in_groups)


def _few_microbatches(times: StageTimes, chunk: Scalar, m: Scalar, forward: Scalar) -> Scalar:
    """Fewer than stages: each chunk waits for the one before it, and the longest is passed m times, on one way or on
    both."""
    last, longest = times.last_chunk, jnp.maximum(times.first_chunk, chunk)
    both = (m - 1.0) * longest - jnp.minimum(last, 2.0 * forward * chunk)
    one = (m - 1.0) * (1.0 - forward) * longest
    return times.total + jnp.maximum(jnp.maximum(both, one), (m - 1.0) * last)


def _from_the_end(times: StageTimes, chunk: Scalar, p: Scalar, v: Scalar, m: Scalar, forward: Scalar) -> Scalar:
    """The first p micro-batches pass the first chunk; then the walk stays on the last stage, or before it."""
    last = times.last_chunk
    filling = (p - 1.0) * jnp.maximum(times.first_chunk - chunk, 0.0)
    rounds = (m - p) * (v - 1.0) * chunk
    none_between = jnp.where(p < 2.5, jnp.maximum((1.0 - forward) * chunk - last, 0.0), 0.0)
    on_last = rounds + (m - 1.0) * last + jnp.maximum(filling, none_between)
    before = ((m - p) * v + p - 1.0) * chunk - jnp.minimum(last, 2.0 * forward * chunk) + filling
    return times.total + jnp.maximum(on_last, jnp.where(p > 2.5, before, 0.0))


def _on_the_first(times: StageTimes, chunk: Scalar, p: Scalar, v: Scalar, m: Scalar, forward: Scalar) -> Scalar:
    """The walk stays on the first stage, to the end or until the last p micro-batches pass the others."""
    first, last, others = times.first_chunk, times.last_chunk, m * (v - 1.0)
    one, short = forward * chunk, forward * jnp.minimum(first, chunk)
    forwards = forward * ((m - p + 1.0) * first + (others + 1.0) * chunk)
    backwards = (1.0 - forward) * (m * first + (others + p - 2.0) * chunk + jnp.maximum(chunk - first, 0.0))
    left = forwards + backwards + jnp.maximum(last - one - short, 0.0)
    return jnp.maximum(m * first + others * chunk, left)


def _longest(times: StageTimes, p: Scalar) -> Scalar:
    ends = jnp.maximum(times.first, times.last)
    return jnp.maximum(ends, jnp.where(p > 2.5, times.between, 0.0))
