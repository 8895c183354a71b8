"""How alike the orders are that predicted and measured values put the same things in."""

from __future__ import annotations

import math

import numpy as np


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's rank correlation, ties at their mean rank; NaN where one of the two does not vary [1]."""
    ranks = [_ranks(values) - (len(values) - 1) / 2.0 for values in (first, second)]
    scale = math.sqrt(float((ranks[0] @ ranks[0]) * (ranks[1] @ ranks[1])))
    return float(ranks[0] @ ranks[1]) / scale if scale else math.nan


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0, of equal values their mean."""
    distinct, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts + 1.0) / 2.0)[which]


def ordered_pairs(predicted: np.ndarray, measured: np.ndarray, noise: float) -> tuple[int, int]:
    """(pairs whose measured values differ by more than `noise`, those of them that are predicted in their order)."""
    first, second = np.triu_indices(len(measured), 1)
    apart = np.log(measured[first] / measured[second])
    beyond = np.abs(apart) > math.log1p(noise)
    right = beyond & (np.sign(predicted[first] - predicted[second]) == np.sign(apart))
    return int(beyond.sum()), int(right.sum())
