"""Rows some at a time are the rows at once, and one size is compiled for any number of them."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration.kernels.blocks import BLOCK, in_blocks


@pytest.mark.parametrize("rows", [0, 1, BLOCK, BLOCK + 1, 3 * BLOCK - 1])
def test_they_are_the_rows_at_once(rows: int) -> None:
    x = {"a": np.arange(float(rows)), "b": np.ones((rows, 2))}
    traced = []

    @eqx.filter_jit
    def twice(some: dict[str, jax.Array]) -> jax.Array:
        traced.append(some)
        return jnp.stack([some["a"], some["b"][:, 1]], axis=1) * 2.0

    found = in_blocks(twice, x, rows)
    np.testing.assert_array_equal(found, np.stack([x["a"], x["b"][:, 1]], axis=1) * 2.0)
    assert len(traced) == 1
