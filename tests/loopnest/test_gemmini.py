"""Cycles on Gemmini: instructions and requests counted one by one, limits, slopes."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.loopnest.gemmini import LINE, PAGE, GemminiPace, Tiling, gemmini_cycles

MESH = 4
FREE = GemminiPace(*map(jnp.asarray, (1.0, 0.0, 0.0, 0.0, 0.0, 8.0)))  # moves take no time
small = st.integers(1, 3)
bounds = st.tuples(small, small, st.integers(1, 9), small, st.integers(1, 9), st.integers(1, 9), st.integers(1, 2))


def tiling(tile: tuple[int, ...], tiles: tuple[int, ...] = (1,) * 7, strides: tuple[int, int] = (1, 1)) -> Tiling:
    return Tiling(*(jnp.asarray(each, float) for each in (tile, tiles, strides, MESH)))


@given(bounds)
def test_long_instructions_take_a_cycle_a_row(tile: tuple[int, ...]) -> None:
    r, s, p, q, c, k, n = tile
    blocks = itertools.product(range(r), range(s), range(0, c, MESH), range(0, k, MESH), range(q), range(n))
    rows = sum(p // MESH * MESH for _ in blocks)
    whole = (*tile[:2], p // MESH * MESH, *tile[3:])
    if p >= MESH:
        assert float(gemmini_cycles(tiling(whole), FREE)) == pytest.approx(rows, rel=1e-12)


def test_a_short_instruction_takes_no_less_than_its_floor() -> None:
    slow = FREE._replace(rows=jnp.asarray(3.0))
    one, full = (float(gemmini_cycles(tiling((1, 1, p, 1, 1, 1, 1)), slow)) for p in (1, MESH))
    assert 3.0 <= one < 3.1 and full == MESH


@given(bounds, st.tuples(*[small] * 7), st.tuples(small, small))
def test_requests_are_those_of_the_loops(tile, tiles, strides) -> None:
    """Work free of moves, and one cycle a request: what is left over is the requests, counted by walking the tiles."""
    loads = stores = 0
    last = {}
    # The unroller's order: pixels outside, then filters, then what is summed.
    order = [6, 2, 3, 5, 0, 1, 4]
    for place in itertools.product(*(range(tiles[axis]) for axis in order)):
        at = dict(zip(order, place, strict=True))
        r, s, p, q, c, k, n = tile
        inputs = (at[6], at[2], at[3], at[0], at[1], at[4])
        weights = (at[5], at[0], at[1], at[4])
        if last.get("inputs") != inputs:
            loads += ((p - 1) * strides[0] + r) * ((q - 1) * strides[1] + s) * n * -(-c // int(LINE))
        if last.get("weights") != weights:
            loads += r * s * c * -(-k // int(LINE))
        if (at[0], at[1], at[4]) == (tiles[0] - 1, tiles[1] - 1, tiles[4] - 1):
            stores += p * q * n * -(-k // MESH)
        last = {"inputs": inputs, "weights": weights}
    pace = FREE._replace(request=jnp.asarray(1e9), store=jnp.asarray(1e9))
    found = float(gemmini_cycles(tiling(tile, tiles, strides), pace)) / 1e9
    assert found == pytest.approx(loads + stores, rel=1e-6)


def test_far_neighbours_take_longer_up_to_a_page() -> None:
    pace = FREE._replace(stride=jnp.asarray(1e6))
    per_request = []
    for filters in (64, 512, 1024, 4096):
        wide = tiling((1, 1, 4, 1, 1024, filters, 1))
        requests = 1024 * filters / LINE
        pixels = 4 * 1024 / LINE
        per_request.append((float(gemmini_cycles(wide, pace)) / 1e6 - pixels) / requests)
    assert per_request == pytest.approx([64 / PAGE, 512 / PAGE, 1.0, 1.0], rel=1e-3)


def test_slopes_are_those_of_finite_differences() -> None:
    pace = GemminiPace(*map(jnp.asarray, (7.0, 5.0, 3.0, 4.0, 0.5, 2.5)))
    point = tiling((3, 3, 7, 5, 96, 40, 1), (1, 1, 2, 3, 2, 4, 1), (2, 1))
    slopes = jax.grad(lambda p: gemmini_cycles(point, p))(pace)
    for name in GemminiPace._fields:
        value, step = float(getattr(pace, name)), 1e-5
        ends = [float(gemmini_cycles(point, pace._replace(**{name: jnp.asarray(value + d)}))) for d in (-step, step)]
        assert float(getattr(slopes, name)) == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-5)


def test_many_points_are_as_one() -> None:
    pace = GemminiPace(*map(jnp.asarray, (7.0, 5.0, 3.0, 4.0, 0.5, 2.5)))
    points = [tiling((1, 1, p, 2, 64, k, 1), (1, 1, 2, 1, 1, 3, 1)) for p, k in ((4, 16), (7, 40), (33, 1))]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *points)
    together = jax.vmap(gemmini_cycles, in_axes=(0, None))(stacked, pace)
    np.testing.assert_allclose(together, [gemmini_cycles(each, pace) for each in points], rtol=1e-12)
