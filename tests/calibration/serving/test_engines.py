"""What engines do with the memory of the cache, and what it changes of what is priced."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from calibration.serving.engines import cache_format, held_share
from calibration.serving.pieces import KINDS, floors_apart
from calibration.serving.priors import CANDIDATES, STANDING, changed, chosen_by_others, without_pairs
from calibration.serving.scalars import SCALARS


@pytest.mark.parametrize(
    ("engine", "weights", "own", "cache"),
    [
        ("trtllm", "fp8", "bf16", "fp8"),  # a checkpoint of Model Optimizer
        ("trtllm", "bf16", "bf16", "bf16"),
        ("trtllm", "fp8", "fp8", "bf16"),  # trained in FP8
        ("trtllm", "int4", "bf16", "fp8"),
        ("vllm", "fp8", "bf16", "bf16"),
        ("sglang", "fp8", "bf16", "bf16"),
        ("an engine nobody measured", "fp8", "bf16", "bf16"),
    ],
)
def test_only_an_engine_that_follows_the_checkpoint_has_a_narrow_cache(engine: str, weights: str, own: str, cache: str):
    assert cache_format(engine, weights, own) == cache


def test_an_engine_that_never_evicts_holds_memory_for_all_of_the_output():
    assert held_share("trtllm") == 1.0
    assert held_share("vllm") == held_share("sglang") == 0.5


def test_floors_are_what_times_have_more_than_work():
    times = np.zeros((2, 3, len(KINDS) - 1))
    times[0] += 3.0
    times[1] += 2.0
    apart = floors_apart(jnp.asarray(times))
    assert apart.shape == (3, len(KINDS))
    np.testing.assert_allclose(apart[:, -1], len(KINDS) - 1.0)
    np.testing.assert_allclose(apart.sum(-1), times[0].sum(-1))


def test_sets_of_priors_change_levels_there_are_and_no_others():
    names = ("decode/kin/vllm x", "decode/engine/vllm", "prefill/kin/vllm x")
    own = np.array([0.1, 0.15, 0.3])
    assert changed(names, own, {("decode", "kin"): 0.7}).tolist() == [0.7, 0.15, 0.3]
    assert changed(names, own, CANDIDATES[STANDING]).tolist() == own.tolist()
    for changes in CANDIDATES.values():
        assert all(level in SCALARS[field].deviations for field, level in changes)


def test_a_model_has_no_say_in_the_set_that_is_chosen_for_it():
    """Set "b" is the better one on x, by far, and a little worse on y and z: only x itself would choose it."""
    models, weights = np.array(["x", "y", "z"]), np.ones(3)
    error = {"a": np.array([2.0, 0.1, 0.1]), "b": np.array([0.0, 0.2, 0.2])}
    found = {
        name: without_pairs(["x", "y", "z"], lambda left_out, own=own: np.column_stack([own, own]))
        for name, own in error.items()
    }
    assert found["a"].shape == (3, 3, 3, 2)
    assert chosen_by_others(found, weights, models) == {"x": "a", "y": "b", "z": "b"}


def test_pairs_are_fitted_once_and_each_leaves_both_out():
    asked: list[tuple[str, ...]] = []

    def errors(left_out) -> np.ndarray:
        asked.append(tuple(left_out))
        return np.full((1, 2), float(len(asked)))

    found = without_pairs(["x", "y"], errors)
    assert asked == [("x", "x"), ("x", "y"), ("y", "y")]
    assert found[0, 1, 0, 0] == found[1, 0, 0, 0] == 2.0
