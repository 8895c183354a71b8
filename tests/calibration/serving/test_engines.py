"""What engines do with the memory of the cache, and what it changes of what is priced."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from calibration.serving.clients import BUDGET, mixes, prompts_room, set_up
from calibration.serving.engines import (
    cache_format,
    held_share,
    mixing_share,
    most_running,
    prompts_together,
    works_ahead,
)
from calibration.serving.fit import FREEDOM, penalties
from calibration.serving.kernel_counts import added_kernels, counted
from calibration.serving.pieces import KERNEL_GAP, KINDS, PRICED, by_column, split_norm_kernels
from calibration.serving.priors import CANDIDATES, STANDING, changed, chosen_by_others, without_pairs
from calibration.serving.scalars import SCALARS, tailed
from jaxperf.io.huggingface import load_model


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


@pytest.mark.parametrize(
    ("checkpoint", "weights", "cache"),
    [
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "fp8", "fp8"),  # names the format of its cache
        ("nvidia/Llama-3.1-8B-Instruct", "bf16", "bf16"),
        ("Qwen/Qwen3-32B-FP8", "fp8", "bf16"),
    ],
)
def test_a_checkpoint_can_name_the_format_of_its_cache(checkpoint: str, weights: str, cache: str):
    assert cache_format("vllm", weights, "bf16", checkpoint) == cache


def test_how_many_requests_an_engine_runs_together():
    assert most_running("trtllm", 141e9) == most_running("trtllm", 24e9) == 2048.0
    assert most_running("vllm", 80e9) == most_running("an engine nobody measured", 80e9) == 1024.0
    assert most_running("vllm", 48e9) == 256.0


@pytest.mark.parametrize(
    ("prompt", "together"), [(128.0, 8.0), (256.0, 4.0), (512.0, 2.0), (1024.0, 1.0), (4096.0, 1.0)]
)
def test_a_step_of_engines_that_aiconfigurator_set_up_has_room_for_a_prompt_and_some_more(
    prompt: float, together: float
):
    assert prompts_together("trtllm", prompts_room("trtllm", prompt), prompt) == together
    assert prompts_together("vllm", prompts_room("vllm", prompt), prompt) == 1.0


@pytest.mark.parametrize(
    ("source", "engine", "version", "drawn", "found"),
    [
        ("lab", "trtllm", "1.0.0rc3", False, False),
        ("aiconfigurator silicon_sample.csv", "trtllm", "1.0.0rc3", False, True),
        ("aiconfigurator", "vllm", "", False, True),
        ("aiconfigurator", "vllm", "0.12.0", True, False),
        ("aiconfigurator", "sglang", "0.5.1.post1", False, False),
        ("aiconfigurator", "sglang", "0.5.3.post2", False, True),
        ("aiconfigurator", "sglang", "0.5.10", False, True),
        ("aiconfigurator", "sglang", "", False, True),
        ("aiconfigurator", "an engine nobody measured", "", False, False),
    ],
)
def test_aiconfigurator_sets_up_what_its_templates_can_tell_the_engine(
    source: str, engine: str, version: str, drawn: bool, found: bool
):
    assert set_up(source, engine, version, drawn) is found


def test_of_these_sglang_alone_is_told_to_decode_in_prefill_steps():
    assert mixes("sglang") and not mixes("vllm") and not mixes("trtllm")


def test_a_prompt_longer_than_a_step_is_one():
    assert prompts_together("trtllm", BUDGET, 10000.0) == prompts_together("vllm", BUDGET, 10000.0) == 1.0


def test_an_engine_that_never_evicts_holds_memory_for_all_of_the_output():
    assert held_share("trtllm") == 1.0
    assert held_share("vllm") == held_share("sglang") == 0.5


@pytest.mark.parametrize(
    ("engine", "version", "ahead"),
    [
        ("vllm", "0.12.0", False),
        ("vllm", "0.13.0rc1", False),
        ("vllm", "0.14.0", True),
        ("vllm", "v1.0", True),
        ("vllm", "", True),
        ("vllm", "nightly", True),
        ("sglang", "0.5.1.post1", True),
        ("trtllm", "1.0.0rc3", True),
        ("an engine nobody measured", "0.1.0", True),
    ],
)
def test_the_device_waits_for_the_host_in_vllm_before_0_14(engine: str, version: str, ahead: bool):
    assert works_ahead(engine, version) is ahead


def test_sglang_alone_prefills_in_steps_of_their_own():
    assert mixing_share("sglang") == 0.0
    assert mixing_share("vllm") == mixing_share("trtllm") == mixing_share("an engine nobody measured") == 1.0


@pytest.mark.parametrize("alone", [0.0, 1.0])
def test_floors_are_of_every_kernel_and_experts_may_have_their_own_as_well(alone: float):
    times = np.full((2, 3, len(PRICED)), 2.0)
    times[0] += 3.0  # with the floors of kernels measured alone, of which at most those of experts are kept
    columns = by_column(jnp.asarray(times), jnp.array([0.1, 0.2, 0.4]), jnp.asarray(100.0), jnp.asarray(alone))
    assert columns.shape == (3, len(KINDS))
    np.testing.assert_allclose(columns[:, : len(PRICED)], 2.0)
    np.testing.assert_allclose(columns[:, KINDS.index("peers")], [0.1, 0.2, 0.4])
    np.testing.assert_allclose(columns[:, KINDS.index("floor")], 100.0 * KERNEL_GAP + 3.0 * alone)


@pytest.mark.parametrize(
    ("model", "engine", "weights", "added"),
    [
        ("llama-3.1-8b", "vllm", "bf16", 0),
        ("llama-3.1-8b", "vllm", "fp8", 32 * 4),  # a kernel that quantizes before each of four products
        ("llama-3.1-8b", "trtllm", "fp8", 0),
        ("qwen3-235b-a22b", "sglang", "fp8", 94 * (4 + 4)),
        ("qwen3-235b-a22b", "trtllm", "fp8", 0),
        ("deepseek-v3", "sglang", "fp8", 61 * 5 + 58 * (4 - 3)),  # its first three layers are dense
        ("deepseek-v3", "trtllm", "fp8", 61 * (3 + 2 + 2)),  # products, absorbed ones, shared or dense
        ("deepseek-v3", "trtllm", "fp4", 0),
        ("kimi-k2.5", "an engine nobody measured", "int4", 60 * (4 - 3)),  # multiplied in 16 bits
    ],
)
def test_kernels_of_engines_are_counted(model: str, engine: str, weights: str, added: int):
    assert added_kernels(load_model(model), engine, weights) == added
    assert counted(engine) is (engine != "trtllm")


@pytest.mark.parametrize(("model", "layers"), [("minimax-m2", 62.0), ("qwen3-32b", 0.0), ("llama-3.1-8b", 0.0)])
def test_a_norm_over_all_heads_is_split_where_heads_are(model: str, layers: float):
    config = load_model(model)
    assert float(split_norm_kernels(config, jnp.asarray(8.0))) == 2.0 * layers
    assert float(split_norm_kernels(config, jnp.asarray(1.0))) == 0.0


def test_what_is_far_off_costs_little_more_in_a_model_or_a_campaign():
    assert tailed(["decode/kin/vllm x", "wait/site/vllm 1 agg y", "step/all/", "step/engine/vllm"]).tolist() == [
        True,
        True,
        False,
        False,
    ]
    far = jnp.array([True, False])
    near, off = penalties(jnp.full(2, 1e-3), far), penalties(jnp.full(2, 10.0), far)
    np.testing.assert_allclose(near[0] / near[1], (FREEDOM + 1.0) / FREEDOM, rtol=1e-5)  # Student's t near its middle
    np.testing.assert_allclose(off, [0.5 * (FREEDOM + 1.0) * np.log1p(100.0 / FREEDOM), 50.0])


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
