"""What a few rows of a device teach: its cells together, and each row judged without itself."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.ridge import NOISE, shared_ridge

ROWS, HEADS = 60, 5


def rows_of(cells: int, noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of a device whose cells differ by a tenth of what they share."""
    generator = np.random.default_rng(seed)
    basis, cell = generator.uniform(-1.0, 1.0, (ROWS, HEADS)), np.arange(ROWS) % cells
    heads = 0.3 * generator.standard_normal(HEADS) + 0.03 * generator.standard_normal((cells, HEADS))
    return basis, np.sum(basis * heads[cell], axis=1) + noise * generator.standard_normal(ROWS), cell


def dense(basis: np.ndarray, target: np.ndarray, cell: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """The least squares of small residuals, with one column for each coefficient of the device and of each cell."""
    cells = cell.max() + 1
    columns = np.concatenate([basis, *(basis * (cell == each)[:, None] for each in range(cells))], axis=1)
    prior = np.kron(np.eye(1 + cells), np.linalg.inv(covariance / 2.0))
    gram = columns.T @ columns / NOISE**2 + prior
    found = np.linalg.solve(gram, columns.T @ target / NOISE**2).reshape(1 + cells, -1)
    return found[0] + found[1:]


@pytest.mark.parametrize("cells", [1, 3])
def test_coefficients_are_those_of_the_whole_system(cells: int) -> None:
    basis, target, cell = rows_of(cells, noise=1e-4)
    covariance = np.diag(np.linspace(0.05, 0.5, HEADS))
    found, _ = shared_ridge(basis, target, cell, covariance)
    np.testing.assert_allclose(found, dense(basis, target, cell, covariance), atol=1e-4)


def test_a_row_is_judged_by_the_others() -> None:
    basis, target, cell = rows_of(3, noise=2e-3)
    covariance = np.eye(HEADS) * 0.1
    found, left = shared_ridge(basis, target, cell, covariance)
    fitted = np.sum(basis * found[cell], axis=1) - target
    for row in range(6):
        others = np.arange(ROWS) != row
        without, _ = shared_ridge(basis[others], target[others], cell[others], covariance)
        assert left[row] == pytest.approx(basis[row] @ without[cell[row]] - target[row], rel=0.03, abs=2e-5)
    assert np.abs(left).mean() > 1.1 * np.abs(fitted).mean()


def test_a_cell_with_one_row_learns_from_its_device() -> None:
    basis, target, _ = rows_of(1, noise=0.01)
    cell = np.r_[1, np.zeros(ROWS - 1, int)]
    found, _ = shared_ridge(basis, target, cell, np.eye(HEADS) * 0.1)
    truth = np.linalg.lstsq(basis, target, rcond=None)[0]
    assert np.linalg.norm(found[1] - truth) < 0.5 * np.linalg.norm(truth)


def test_one_wrong_row_moves_little() -> None:
    basis, target, cell = rows_of(1, noise=0.01)
    wrong = target + 5.0 * (np.arange(ROWS) == 7)
    right, spoiled = (shared_ridge(basis, each, cell, np.eye(HEADS))[0] for each in (target, wrong))
    assert np.abs(right - spoiled).max() < 0.05
