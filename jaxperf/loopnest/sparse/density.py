"""How many words of a tile are not zero: three models of where the words of an operand lie.

Wu et al., MICRO 2022, section 5.3.2; Timeloop's src/workload/density-models. Tiles and whole operands are given by
their extents, one for each axis of the operand [1].
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float, floor_div
from jaxperf.loopnest.mapping import product
from jaxperf.loopnest.sparse.whole import round_down, round_up

STEPS = 128  # of a sum over tiles or words that has no closed form; longer ones are sampled or approximated


class Density(eqx.Module):
    """Where the words of an operand lie that are not zero.

    `share`: of all words [1]; `band`: diagonals on either side of the main one that hold words, of a banded matrix,
    whose share follows from them [1]; `population`: words among which those of a hypergeometric operand are spread,
    0 for its own size [word]. `kind`: "fixed_structured" puts the same share into every tile, rounded down or up;
    "hypergeometric" draws the words without order; "banded" keeps the diagonals of a square matrix.
    """

    share: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    band: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    population: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    kind: str = eqx.field(static=True, default="fixed_structured")


def share(density: Density, whole: Sequence[Scalar]) -> Scalar:
    """Share of an operand's words that are not zero [1]: drawn words are whole ones, and a banded matrix holds
    N + 2 sum_k (N - k) of its N^2."""
    if density.kind == "fixed_structured":
        return density.share
    if density.kind == "hypergeometric":
        return _drawn_words(density, whole) / _population(density, whole)
    side, band = whole[0], jnp.minimum(density.band, whole[0] - 1.0)
    return (side + 2.0 * band * side - band * (band + 1.0)) / (side * side)


def empty_probability(density: Density, tile: Sequence[Scalar], whole: Sequence[Scalar]) -> Scalar:
    """Probability that a tile holds nothing but zeros [1]."""
    if density.kind == "banded":
        return _empty_banded(density, tile, whole)
    size = product(tile)
    if density.kind == "hypergeometric":  # of one word it is known to the last bit
        return jnp.where(size == 1.0, 1.0 - share(density, whole), _drawn(density, size, whole, jnp.zeros_like(size)))
    return jnp.maximum(1.0 - size * density.share, 0.0)


def most_words(density: Density, tile: Sequence[Scalar], whole: Sequence[Scalar]) -> Scalar:
    """The most words a tile may have to hold [word]: all of it at worst, where they are not laid out evenly."""
    size = product(tile)
    if density.kind == "fixed_structured":
        return round_up(size * density.share)
    if density.kind == "hypergeometric":
        return jnp.minimum(size, _drawn_words(density, whole))
    return jnp.minimum(size, _on_band(density.band, jnp.minimum(tile[0], tile[1]), jnp.maximum(tile[0], tile[1])))


def expected_blocks(density: Density, tile: Sequence[Scalar], whole: Sequence[Scalar], block: Scalar) -> Scalar:
    """Expected blocks that the words of a tile fill, E[ceil(words / block)] [1].

    Exact where the number of words has two values, and for drawn words of tiles of up to `STEPS`; else the last block
    of a tile that is not empty is taken to be filled to any extent alike: E[words] / B + (1 - P0) (B - 1) / (2 B). The
    slope is that of the latter for all drawn words.
    """
    size = product(tile)
    words = size * share(density, whole)
    if density.kind == "fixed_structured":
        fewer = round_down(words)
        more = jnp.maximum(words - fewer, 0.0)
        return (1.0 - more) * round_up(fewer / block) + more * round_up((fewer + 1.0) / block)
    filled = 1.0 - empty_probability(density, tile, whole)
    smooth = words / block + filled * (block - 1.0) / (2.0 * block)
    if density.kind == "banded":
        return smooth
    counts = jnp.arange(1, STEPS + 1, dtype=size.dtype)
    chances = _drawn(density, size, whole, counts)
    exact = jnp.sum(round_up(counts / block) * jax.lax.stop_gradient(chances))
    return smooth + jax.lax.stop_gradient(jnp.where(size <= STEPS, exact - smooth, 0.0))


def _on_band(band: Scalar, short: Scalar, long: Scalar) -> Scalar:
    """Words of a tile in whose middle the band lies [word].

    Of the 2 band + 1 diagonals, `short` words each, the ones further out than (long - short) / 2 lose a word at either
    end for each step: sum_i (cut - i), i = 0 ... k - 1 on both sides, k of the `short` steps.
    """
    cut = jnp.maximum(band - 0.5 * (long - short), 0.0)
    steps = jnp.minimum(round_up(cut), short)
    return (2.0 * band + 1.0) * short - steps * (2.0 * cut - steps + 1.0)


def _population(density: Density, whole: Sequence[Scalar]) -> Scalar:
    return jnp.where(density.population > 0.0, density.population, product(whole))


def _drawn_words(density: Density, whole: Sequence[Scalar]) -> Scalar:
    """r = ceil(share N) of N words."""
    return round_up(density.share * _population(density, whole))


def _drawn(density: Density, size: Scalar, whole: Sequence[Scalar], words: Array) -> Array:
    """C(r, k) C(N - r, n - k) / C(N, n): k of the r words that are drawn fall among the n of a tile [1]."""
    population, held = _population(density, whole), _drawn_words(density, whole)
    rest = population - held
    possible = (words <= held) & (words <= size) & (size - words <= rest)
    k, zeros = jnp.where(possible, words, 0.0), jnp.where(possible, size - words, 0.0)
    logarithm = _choose(held, k) + _choose(rest, zeros) - _choose(population, jnp.minimum(size, population))
    return jnp.where(possible, jnp.exp(logarithm), 0.0)


def _choose(n: Array, k: Array) -> Array:
    """Logarithm of the binomial coefficient."""
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)


def _empty_banded(density: Density, tile: Sequence[Scalar], whole: Sequence[Scalar]) -> Scalar:
    """Share of the a x b tiles of an N x N matrix that lie off its band [1].

    The tiles of row i that touch the band are those between the columns i a - band and (i + 1) a - 1 + band. Rows are
    counted one by one, or at `STEPS` even places where there are more.
    """
    rows, columns = floor_div(whole[0], tile[0]), floor_div(whole[1], tile[1])
    steps = jnp.arange(STEPS, dtype=rows.dtype)
    row = floor_div(steps * jnp.maximum(rows, float(STEPS)), jnp.full_like(steps, float(STEPS)))
    first = floor_div(jnp.maximum(row * tile[0] - density.band, 0.0), jnp.broadcast_to(tile[1], row.shape))
    reach = (row + 1.0) * tile[0] - 1.0 + density.band
    last = jnp.minimum(floor_div(reach, jnp.broadcast_to(tile[1], row.shape)), columns - 1.0)
    touched = jnp.where(row < rows, jnp.maximum(last - first + 1.0, 0.0), 0.0)
    return 1.0 - jnp.sum(touched) / (jnp.minimum(rows, float(STEPS)) * columns)
