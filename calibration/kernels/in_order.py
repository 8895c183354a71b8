"""When the last of a kernel's blocks ends, which cores take in the order of its grid, whichever core is free first.

Blocks that are alike go through the cores in rounds, and the last round may be nearly empty:

    t = (ceil(blocks / cores) - 1) mean + longest

Blocks that differ spread out. The last one, which is of the longest where a grid goes through a triangle of queries
and keys row by row, then starts once a core is free, when the others have `left` of theirs to do,

    t = max(shared, shared - left + longest),    left = sum l^2 / (2 sum l)

(the residual life of a renewal process; Cox, Renewal Theory, 1962). Where fewer long blocks than cores are strewn among
short ones, each that has started takes a core from the short ones, of `work` together, and the last one starts at

    t = work / long log(cores / (cores - long))

All functions are of one kernel.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from jaxperf.core.numerics import Scalar, as_float, ceil_div

TINY = 1e-30
MOST = 0.999  # share of the cores that long blocks take from short ones


class Blocks(eqx.Module):
    """Blocks of one kind: how many (`count`) [1], and `shortest`, `longest`, mean length and the mean of its square, in
    any unit of time and its square."""

    count: Scalar
    shortest: Scalar
    longest: Scalar
    mean: Scalar
    square: Scalar

    @property
    def work(self) -> Scalar:
        """Time of one core for all of them."""
        return self.count * self.mean


def evenly(count: Scalar, shortest: Scalar, longest: Scalar, mean: Scalar) -> Blocks:
    """Blocks whose lengths are spread evenly from the shortest to the longest."""
    return Blocks(count, shortest, longest, mean, mean**2 + (longest - shortest) ** 2 / 12.0)


def last_end(one: Blocks, other: Blocks, cores: Scalar) -> Scalar:
    """When the last block of two kinds ends, strewn among each other; kinds may have none."""
    blocks, work = one.count + other.count, one.work + other.work
    longest = jnp.maximum(_present(one) * one.longest, _present(other) * other.longest)
    shortest = jnp.minimum(*(jnp.where(each.count > 0.0, each.shortest, longest) for each in (one, other)))
    shared = work / cores
    left = (one.count * one.square + other.count * other.square) / (2.0 * jnp.maximum(work, TINY))
    start = jnp.maximum(jnp.minimum(shared - left, _last_long_start(one, other, shared - left, cores)), 0.0)
    strewn = jnp.maximum(shared, start + longest)
    rounds = jnp.maximum(ceil_div(blocks, cores) - 1.0, 0.0) * work / jnp.maximum(blocks, 1.0) + longest
    spread = _spread(longest - shortest, longest, blocks / cores)
    return spread * strewn + (1.0 - spread) * rounds


def last_end_rising(blocks: Blocks, cores: Scalar) -> Scalar:
    """When the last block ends where each is at least as long as the one before it."""
    rounds = ceil_div(blocks.count, cores)
    shorter = (blocks.longest - blocks.mean) * cores / jnp.maximum(blocks.count, 1.0)
    return rounds * blocks.longest - shorter * rounds * (rounds - 1.0)


def _last_long_start(one: Blocks, other: Blocks, renewed: Scalar, cores: Scalar) -> Scalar:
    """When the last block of the longer kind starts, after rounds of those that are alike, or at `renewed`."""
    swap = _present(one) * one.longest < _present(other) * other.longest
    long = jax.tree.map(lambda a, b: jnp.where(swap, b, a), one, other)
    work = jnp.where(swap, one.work, other.work)
    rounds = jnp.maximum(ceil_div(long.count, cores) - 1.0, 0.0)
    share = jnp.minimum((long.count - rounds * cores) / cores, MOST)
    alike = rounds * long.mean - work / jnp.maximum(long.count, 1.0) * jnp.log1p(-share)
    # The first round begins at once, whatever it is of.
    spread = _spread(long.longest - long.shortest, long.longest, long.count / cores - 1.0)
    return (1.0 - spread) * alike + spread * jnp.maximum(alike, renewed)


def _spread(difference: Scalar, longest: Scalar, rounds: Scalar) -> Scalar:
    """How far blocks are from going through the cores in rounds, 0 to 1."""
    return jnp.clip(difference / jnp.maximum(longest, TINY) * rounds, 0.0, 1.0)


def _present(blocks: Blocks) -> Scalar:
    return as_float(blocks.count > 0.0)
