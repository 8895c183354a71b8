"""Rows some at a time: of any number of them one size is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

BLOCK = 512


def blocks(rows: int, size: int = BLOCK) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All rows, `size` at a time; the last ones padded to as many by the last row."""
    for start in range(0, rows, size):
        padded = np.minimum(np.arange(start, start + size), rows - 1)
        yield padded[: rows - start], padded


def in_blocks(function: Callable[[Any], Any], x: Any, rows: int) -> np.ndarray:
    """`function` of `rows` rows of a tree of arrays [rows, ...], as it gives them for a block [BLOCK, ...]."""
    whole = jax.tree.map(np.asarray, x)
    if not rows:
        like = jax.eval_shape(function, whole)
        return np.empty(like.shape, like.dtype)
    parts = [
        np.asarray(function(jax.tree.map(lambda leaf, padded=padded: leaf[padded], whole)))[: len(block)]
        for block, padded in blocks(rows)
    ]
    return np.concatenate(parts)
