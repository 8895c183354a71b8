"""Models of density against every placement there is, and formats against fibers written out by hand."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.numerics import as_float
from jaxperf.loopnest.shapes import gemm
from jaxperf.loopnest.sparse.density import Density, empty_probability, expected_blocks, most_words, share
from jaxperf.loopnest.sparse.formats import Format, Rank, units
from jaxperf.loopnest.sparse.whole import round_down, round_up

EMPTY, BLOCKS = jax.jit(empty_probability), jax.jit(expected_blocks)


def extents(*sides: float) -> list[jax.Array]:
    return [as_float(side) for side in sides]


@given(st.integers(1, 10).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_drawn_words_are_those_of_every_placement(case: tuple[int, int, int]) -> None:
    """All C(N, r) placements of r words among N, of which a tile covers the first n."""
    population, held, size = case
    density = Density(held / population, kind="hypergeometric")
    counts = [sum(place < size for place in places) for places in itertools.combinations(range(population), held)]
    tile, whole = extents(size), extents(population)
    assert EMPTY(density, tile, whole) == pytest.approx(counts.count(0) / len(counts), rel=1e-9, abs=1e-12)
    for block in (1, 2, 3):
        blocks = sum(math.ceil(count / block) for count in counts) / len(counts)
        assert BLOCKS(density, tile, whole, as_float(block)) == pytest.approx(blocks, rel=1e-9, abs=1e-12)
    assert most_words(density, tile, whole) == max(counts)


@given(st.sampled_from([2, 3, 4, 6, 12]), st.integers(0, 12), st.data())
def test_a_band_touches_the_tiles_that_it_touches(side: int, band: int, data: st.DataObject) -> None:
    divisors = [d for d in range(1, side + 1) if side % d == 0]
    rows, columns = data.draw(st.sampled_from(divisors)), data.draw(st.sampled_from(divisors))
    filled = [(r, c) for r in range(side) for c in range(side) if abs(r - c) <= band]
    touched = Counter((r // rows, c // columns) for r, c in filled)
    tiles = (side // rows) * (side // columns)
    density = Density(band=band, kind="banded")
    whole = extents(side, side)
    assert EMPTY(density, extents(rows, columns), whole) == pytest.approx(1 - len(touched) / tiles, abs=1e-12)
    assert share(density, whole) == pytest.approx(len(filled) / side**2, rel=1e-12)
    most = float(most_words(density, extents(rows, columns), whole))
    assert most >= max(touched.values()) and (rows != columns or most == max(touched.values()))


def test_a_long_band_is_sampled() -> None:
    """More rows of tiles than are counted one by one: 2 band + 1 of N diagonals stay, to the sampling of its ends."""
    density, side = Density(band=3.0, kind="banded"), 4096.0
    found = EMPTY(density, extents(1.0, 1.0), extents(side, side))
    assert found == pytest.approx(1.0 - 7.0 / side, abs=1e-5)


@given(st.integers(1, 10**6), st.integers(0, 1000))
def test_structured_words_are_rounded_down_or_up(size: int, thousandths: int) -> None:
    """The share of tiles with the larger number of words is what makes the mean right."""
    density, tile = Density(thousandths / 1000), extents(size)
    whole, rest = divmod(size * thousandths, 1000)
    assert EMPTY(density, tile, tile) == pytest.approx(0.0 if whole else 1.0 - rest / 1000, abs=1e-9)
    blocks = (1 - rest / 1000) * math.ceil(whole / 4) + rest / 1000 * math.ceil((whole + 1) / 4)
    assert BLOCKS(density, tile, tile, as_float(4.0)) == pytest.approx(blocks, rel=1e-9, abs=1e-9)
    assert most_words(density, tile, tile) == whole + (rest > 0)


@given(st.integers(1, 10**9), st.integers(1, 1000))
def test_shares_that_should_be_whole_are(count: int, parts: int) -> None:
    share_of = as_float(count / parts)
    assert round_down(share_of * parts) == round_up(share_of * parts) == count


# --- formats ----------------------------------------------------------------------------------------------------------


def metadata(*kinds: str, density: Density, rows: float = 4.0, columns: float = 6.0) -> list[tuple[float, float]]:
    """Metadata and payloads of a matrix, outermost rank first."""
    nest, names = gemm(rows, 1.0, columns)
    d = [names.dimensions.index(name) for name in "MK"]
    bounds = [as_float(1.0)] * 4
    inner = [as_float(columns) if i == d[1] else b for i, b in enumerate(bounds)]
    outer = [as_float(rows) if i == d[0] else b for i, b in enumerate(bounds)]
    layout = Format(tuple(Rank(kind) for kind in reversed(kinds)))
    whole = extents(1.0, rows, columns)
    found = units(layout, [inner, outer], nest.operands[0], nest, density, whole)
    return [(float(each.metadata), float(each.payload)) for each in reversed(found)]


def test_ranks_of_a_matrix_of_four_rows_of_six() -> None:
    half = Density(0.5)
    assert metadata("UOP", "CP", density=half) == [(0.0, 5.0), (12.0, 0.0)]  # CSR
    assert metadata("B", "B", density=half) == [(4.0, 4.0), (24.0, 0.0)]  # no row is empty
    assert metadata("UB", "UB", density=half) == [(4.0, 4.0), (24.0, 0.0)]
    assert metadata("U", "RLE", density=half) == [(0.0, 0.0), (12.0, 0.0)]
    assert metadata("CP", "CP", density=half) == [(4.0, 4.0), (12.0, 0.0)]


def test_empty_rows_have_no_fibers() -> None:
    """At one word in 24, a row of six holds it with probability 1/4; a rank of coordinates rounds up what it holds."""
    thin = Density(1 / 24)
    assert metadata("CP", "RLE", density=thin)[0] == (1.0, 1.0)
    assert metadata("UOP", "RLE", density=thin)[1][0] == pytest.approx(4 * 0.25 * 6 / 24)
    assert metadata("UOP", "CP", density=thin)[1][0] == pytest.approx(4 * 0.25 * 1)
    assert metadata("UOP", "B", density=thin)[1][0] == pytest.approx(4 * 0.25 * 6)
    assert metadata("UOP", "UB", density=thin)[1][0] == 24.0


def test_a_rank_of_one_coordinate_is_not_stored() -> None:
    assert metadata("UOP", "CP", density=Density(0.5), rows=1.0) == [(0.0, 0.0), (3.0, 0.0)]


def test_slopes_are_finite_everywhere() -> None:
    def energy(x: jax.Array, kind: str) -> jax.Array:
        density = Density(x, kind=kind)
        tile, whole = extents(4.0, 3.0), extents(8.0, 9.0)
        return EMPTY(density, tile, whole) + BLOCKS(density, tile, whole, as_float(2.0))

    for kind in ("fixed_structured", "hypergeometric"):
        slopes = [jax.grad(energy)(as_float(x), kind) for x in (0.0, 1e-9, 0.3, 1.0)]
        assert jnp.isfinite(jnp.stack(slopes)).all()
