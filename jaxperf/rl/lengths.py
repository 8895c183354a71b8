"""Sequences of many lengths as fewer of one length, with the same tokens and the same attention."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Alike(NamedTuple):
    """`sequences` of `length` tokens each; neither need be whole."""

    sequences: float
    length: float


def alike(lengths: np.ndarray) -> Alike:
    """n' = (sum L)^2 / sum L^2 sequences of S = sum L^2 / sum L tokens, for sequences of L tokens [N].

    n' S = sum L, so that what works token by token is the same, and n' S^2 = sum L^2, so that attention is: packing
    makes nothing else of them.
    """
    tokens, squares = float(np.sum(lengths, dtype=float)), float(np.sum(np.square(lengths, dtype=float)))
    return Alike(tokens * tokens / squares, squares / tokens)
