"""Robust ridge regression of a device's cells on a common basis, what the cells share being learned from all rows."""

from __future__ import annotations

import numpy as np

NOISE = 0.04  # residual that the model is not asked to explain [log 1]
REWEIGHTED = 4


def shared_ridge(
    basis: np.ndarray, target: np.ndarray, cells: np.ndarray, covariance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients of every cell: those of the device and those of its own, each normal with half of `covariance`.

    Minimizes sum |basis (d + w_c) - target| / NOISE + d' P d / 2 + sum_c w_c' P w_c / 2, P the inverse of half the
    covariance, by reweighted least squares; the cells' w_c are eliminated first (block Gaussian elimination).

    **Arguments:** `basis` [R, H]; `target` [R] [log 1]; `cells` [R]: which of C cells, 0 to C - 1, all of them there.
    **Returns:** d + w_c [C, H], and the residual of each row predicted without it [R]: over one minus its leverage
    (Allen's PRESS, 1974), the weights as they are.
    """
    prior = np.linalg.inv(covariance / 2.0)
    rows = [np.flatnonzero(cells == cell) for cell in range(int(cells.max()) + 1)]
    residual, leverage = -target, np.zeros(len(target))
    heads = np.zeros((len(rows), basis.shape[1]))
    for _ in range(REWEIGHTED):
        pull = basis / (np.sqrt(residual**2 + NOISE**2) * NOISE)[:, None]
        own = [np.linalg.inv(pull[at].T @ basis[at] + prior) for at in rows]
        kept = [each @ prior for each in own]  # of the device's coefficients, once the cell's follow them
        pulled = [pull[at].T @ target[at] for at in rows]
        left = prior + sum(pull[at].T @ basis[at] @ keep for at, keep in zip(rows, kept, strict=True))
        spread = np.linalg.inv(left)
        device = spread @ sum(keep.T @ each for keep, each in zip(kept, pulled, strict=True))
        for cell, at in enumerate(rows):
            heads[cell] = kept[cell] @ device + own[cell] @ pulled[cell]
            covariance_here = own[cell] + kept[cell] @ spread @ kept[cell].T
            leverage[at] = np.sum((pull[at] @ covariance_here) * basis[at], axis=1)
            residual[at] = basis[at] @ heads[cell] - target[at]
    return heads, residual / (1.0 - leverage)
