"""A Gaussian process is its textbook formulas: each row judged without its shape, in doubt far from all rows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from calibration.kernels.blocks import BLOCK
from calibration.kernels.gaussian_process import NOISE, Places, learned, prior
from calibration.kernels.neighbours import NEAREST, Neighbours

ROWS, FEATURES = 40, 3


def rows_of(count: int = ROWS, seed: int = 0) -> tuple[Places, np.ndarray]:
    """Rows of two stacks that differ by a constant, and a residual that is smooth in the first feature alone."""
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((count, FEATURES))
    stack = np.arange(count) % 2
    names = np.stack([*np.zeros((3, count), int), stack, stack], axis=1)
    residual = 0.3 * np.sin(features[:, 0]) + np.where(stack, 0.4, -0.1) + 0.01 * generator.standard_normal(count)
    return Places(features, names), residual


def dense(places: Places, residual: np.ndarray, other: Places) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance by the inverse of the covariance, entry by entry."""
    start = prior(FEATURES, 0.1)
    own = np.array(start(places, places)) + np.diag(start.noise_variance(places))
    cross = np.array(start(other, places))
    mean = cross @ np.linalg.inv(own) @ residual
    left = np.array(start(other, other)).diagonal() - np.sum(cross @ np.linalg.inv(own) * cross, axis=1)
    return mean, left + np.asarray(start.noise_variance(other))


def test_predictions_are_those_of_the_textbook() -> None:
    places, residual = rows_of()
    other, _ = rows_of(9, seed=1)
    mean, deviation = Neighbours(prior(FEATURES, 0.1), places, residual).predicted(other)
    expected, variance = dense(places, residual, other)
    np.testing.assert_allclose(mean, expected, atol=1e-8)
    np.testing.assert_allclose(np.square(deviation), variance, rtol=1e-6)


def test_of_many_rows_the_nearest_say_nearly_all() -> None:
    places, residual = rows_of(NEAREST * 10)
    other, _ = rows_of(BLOCK + 3, seed=1)
    start = prior(FEATURES, 0.1)
    mean, deviation = Neighbours(start, places, residual).predicted(other)
    expected, variance = dense(places, residual, other)
    apart = np.abs(mean - expected) / deviation
    assert np.median(apart) < 0.1 and apart.max() < 0.7
    assert (np.square(deviation) > (1.0 - 1e-6) * variance).all()  # less is known than of all rows
    assert np.median(np.square(deviation) / variance) < 1.1


def test_the_nearest_are_those_that_share_most() -> None:
    places, residual = rows_of(NEAREST * 4)
    start, (at, _) = prior(FEATURES, 0.1), rows_of(5, seed=1)
    near, there = Neighbours(start, places, residual).nearest(at)
    shared = np.array(start(at, places))
    least = np.sort(shared, axis=1)[:, -NEAREST]
    assert there.all() and all(len(set(rows)) == NEAREST for rows in near.tolist())
    assert (np.take_along_axis(shared, near, axis=1).min(axis=1) >= (1.0 - 1e-5) * least).all()


def test_a_row_is_judged_by_other_shapes() -> None:
    places, residual = rows_of()
    shape = np.r_[np.zeros(3, int), np.arange(1, ROWS - 2)]  # three rows of one shape, at its places in other stacks
    asked = np.array([0, 1, 2, 7])
    error, deviation = Neighbours(prior(FEATURES, 0.1), places, residual).left_out(asked, shape)
    for place, row in enumerate(asked):
        others = shape != shape[row]
        mean, variance = dense(places[others], residual[others], places[[row]])
        assert error[place] == pytest.approx(residual[row] - mean[0], abs=1e-8)
        assert deviation[place] ** 2 == pytest.approx(variance[0], rel=1e-6)


def test_the_covariance_is_the_matern_function_and_its_names() -> None:
    start = dataclasses.replace(prior(FEATURES, 1.0), lengths=np.zeros(FEATURES))
    places = Places(np.array([[0.0, 0.0, 0.0], [0.0, 2.0, 0.0]]), np.array([[0, 0, 0, 0, 0], [0, 1, 1, 1, 1]]))
    root = 2.0 * np.sqrt(3.0)
    matern = (1.0 + root) * np.exp(-root)  # Rasmussen and Williams 2006, eq. 4.17
    expected = 0.2 + 0.06 + (0.2 + 0.09) * matern  # of all rows, and of the one level where their names are the same
    np.testing.assert_allclose(np.array(start(places, places))[0, 1], expected, rtol=1e-6)
    np.testing.assert_allclose(np.array(start(places, places)).diagonal(), start.variance(places), rtol=1e-4)


def test_what_matters_is_learned() -> None:
    places, residual = rows_of()
    start = prior(FEATURES, 0.1)
    found = learned(start, places, residual, [np.arange(ROWS)])
    assert np.argmin(np.asarray(found.lengths)) == 0
    assert (found.noise_variance(places) < NOISE**2).all()
    other, truth = rows_of(200, seed=2)
    errors = [np.abs(Neighbours(each, places, residual).predicted(other)[0] - truth).mean() for each in (start, found)]
    assert errors[1] < 0.7 * errors[0] and errors[1] < 0.06


def test_a_stack_has_its_own_scatter_and_its_own_layers() -> None:
    """Layers of the first stack differ by chance, rows of the second repeat to a percent, rows of the third do not."""
    count, generator = 120, np.random.default_rng(3)
    stack = np.arange(count) % 3
    layer = 8 * stack + np.arange(count) // 15
    names = np.stack([*np.zeros((3, count), int), stack, layer], axis=1)
    scatter = np.array([0.01, 0.01, 0.3])[stack] * generator.standard_normal(count)
    residual = np.where(stack == 0, 0.6 * (layer % 2), 0.0) + scatter
    places = Places(generator.standard_normal((count, FEATURES)), names)
    found = learned(prior(FEATURES, 0.1, 3), places, residual, [np.arange(count)])
    noise = np.sqrt(np.asarray(found.noise_variance(places)))[:3]
    assert max(noise[:2]) < 0.06 and noise[2] > 0.2
    assert found.layers[0] > max(found.layers[1:3]) + 1.0
    assert not np.asarray(found.layers[3:]).any()  # names that no row has
    error, _ = Neighbours(found, places, residual).left_out(np.flatnonzero(stack == 0), np.arange(count))
    assert np.abs(error).mean() < 0.06


def test_rows_scatter_by_their_features() -> None:
    places, smooth = rows_of(120)
    first = np.asarray(places.features)[:, 0]
    residual = smooth + 0.02 * np.exp(first) * np.random.default_rng(5).standard_normal(120)
    found = learned(prior(FEATURES, 0.1, 2), places, residual, [np.arange(120)])
    assert np.argmax(found.slope) == 0 and found.slope[0] > 0.5
    noise = np.sqrt(np.asarray(found.noise_variance(places)))
    assert noise[first.argmax()] > 4.0 * noise[first.argmin()]
    far = Places(np.full((1, FEATURES), 1e8), places.names[:1])
    assert np.isfinite(found.noise_variance(far)).all()


def test_learning_is_deterministic_and_padding_says_nothing() -> None:
    places, residual = rows_of()
    first, again = (learned(prior(FEATURES, 0.1), places, residual, [np.arange(ROWS)]) for _ in range(2))
    np.testing.assert_array_equal(first.lengths, again.lengths)
    one = learned(prior(FEATURES, 0.1), places[:1], np.zeros(1), [np.zeros(1, int)])
    np.testing.assert_allclose(one.lengths, prior(FEATURES, 0.1).lengths, atol=1e-3)  # no pair: only the prior speaks


def test_far_from_all_rows_only_what_all_share_is_left() -> None:
    places, residual = rows_of()
    start = prior(FEATURES, 0.1)
    far = Places(np.full((1, FEATURES), 50.0), np.full((1, 5), 7))
    process = Neighbours(start, places, residual)
    near = process.predicted(places[:1])[1][0]
    mean, deviation = process.predicted(far)
    assert abs(float(mean[0])) < np.abs(residual).max()
    assert float(deviation[0]) > 3.0 * float(near)


def test_how_far_all_rows_lie_from_zero_hides_no_small_distance() -> None:
    """The square of 1e8 has no digit left for a hundredth, nor has that of a thousand in single precision."""
    places, _ = rows_of()
    near = Places(1e-2 * np.asarray(places.features), places.names)
    far = Places(np.asarray(near.features) + 1e8, places.names)
    np.testing.assert_allclose(prior(FEATURES, 0.1)(far, far), prior(FEATURES, 0.1)(near, near), atol=1e-6)


def test_a_surer_prior_moves_less() -> None:
    places, residual = rows_of()
    start = prior(FEATURES, 0.1)
    usual, sure = (learned(start, places, residual, [np.arange(ROWS)], surety) for surety in (1.0, 3.0))
    moved, little = (np.abs(np.asarray(each.lengths - start.lengths)).max() for each in (usual, sure))
    assert little < 0.5 * moved
