"""Which model a row belongs to, and the ratios that the law takes powers of."""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.kernels.fit import new_law
from calibration.kernels.inputs import prepare
from calibration.kernels.levels import NO_NAMES
from calibration.kernels.model import Law
from calibration.kernels.priors import PRIORS
from calibration.kernels.regimes import INSTEAD, regime, regimes
from tests.calibration.tables import blank_table


def gemms(*formats: str):
    rows = len(formats)
    shape = {"m": np.full(rows, 512.0), "n": np.full(rows, 4096.0), "k": np.full(rows, 4096.0), "batch": np.ones(rows)}
    table = blank_table("gemm", shape, np.full(rows, "h100-sxm", dtype=object))
    table.dtype[:] = formats
    return table


def prefill(**sizes: float):
    ordinary = {"batch": 4, "q_len": 4096, "prefix": 0, "heads": 32, "kv_heads": 32, "head_dim": 128, "window": 0}
    shape = {name: np.array([float(value)]) for name, value in (ordinary | sizes).items()}
    return prepare(blank_table("attention_prefill", shape, np.array(["h100-sxm"], dtype=object))).habits[0]


def test_every_row_has_one_model() -> None:
    found = dict(regimes(gemms("bf16", "fp32", "fp8", "fp64")))
    assert {name: rows.tolist() for name, rows in found.items()} == {"gemm": [0, 2], "gemm_vector": [1, 3]}
    assert regime(gemms("fp32", "fp32")) == "gemm_vector"
    with pytest.raises(ValueError, match="too many"):
        regime(gemms("fp32", "bf16"))


def test_batches_of_products_have_a_model_on_vector_units_alone() -> None:
    table = dataclasses.replace(gemms("bf16", "fp32"), family="bmm")
    assert {name: rows.tolist() for name, rows in regimes(table)} == {"bmm_matrix": [0], "bmm": [1]}
    assert INSTEAD["bmm_matrix"] == "gemm"


def test_an_ordinary_prefill_wastes_nothing() -> None:
    np.testing.assert_allclose(prefill(), 0.0, atol=1e-6)


def test_habits_are_logarithms_of_what_is_wasted() -> None:
    assert prefill(q_len=64)[1] == pytest.approx(math.log(2))  # a block of 128 queries holds 64
    assert prefill(batch=1, heads=1, kv_heads=1, q_len=128)[2] == pytest.approx(math.log(132))  # one block, 132 cores
    assert prefill(kv_heads=4)[3] == pytest.approx(math.log(8))
    seen, all_pairs = 1024 * 4096 - 1024**2 / 2, 4096**2 / 2
    assert prefill(window=1024)[0] == pytest.approx(math.log(all_pairs / seen))


@settings(max_examples=20, deadline=None)
@given(tokens=st.integers(1, 10**6), experts=st.sampled_from([1, 8, 256]), topk=st.sampled_from([1, 8]))
def test_habits_of_experts_are_finite(tokens: int, experts: int, topk: int) -> None:
    sizes = {"tokens": tokens, "hidden": 4096, "inter": 1024, "experts": experts, "topk": topk, "tp": 1, "ep": 1}
    shape = {name: np.array([float(value)]) for name, value in sizes.items()}
    data = prepare(blank_table("moe", shape, np.array(["h100-sxm"], dtype=object)))
    assert np.isfinite(data.habits).all()
    assert (data.habits[:, :3] >= 0.0).all()


def time_of(law: Law, data) -> float:
    return float(law(_one(data)))


def _one(data):
    return jax.tree.map(lambda leaf: leaf[0], data.inputs(NO_NAMES))


def test_a_power_of_zero_leaves_the_law_and_more_makes_it_slower() -> None:
    shape = {
        "batch": 1.0,
        "q_len": 64.0,
        "prefix": 0.0,
        "heads": 8.0,
        "kv_heads": 1.0,
        "head_dim": 128.0,
        "window": 0.0,
    }
    columns = {name: np.array([value]) for name, value in shape.items()}
    data = prepare(blank_table("attention_prefill", columns, np.array(["h100-sxm"], dtype=object)))
    means = {name: mean for name, (mean, _) in PRIORS.items()}
    none = dict.fromkeys(("format", "framework", "stack", "device", "cell"), 0)
    plain = new_law(means, none, habits=data.habits.shape[1])
    powers = [
        time_of(type(plain)(**{**vars(plain), "habits": jnp.full_like(plain.habits, power)}), data)
        for power in (0.0, 0.5, 1.0)
    ]
    assert powers[0] == pytest.approx(time_of(plain, data))
    assert powers[0] < powers[1] < powers[2]


def test_a_power_limit_slows_by_the_power_throttle_of_what_it_would_at_one_voltage() -> None:
    means = {name: mean for name, (mean, _) in PRIORS.items()} | {"block": -40.0}
    none, x = dict.fromkeys(("format", "framework", "stack", "device", "cell"), 0), _one(prepare(gemms("fp32")))

    def core(energy: float, throttle: float) -> float:
        law = new_law(means | {"power": energy, "throttle": throttle}, none, habits=len(x.habits))
        return float(law.parts(x)[0])

    free, limited = core(-20.0, 1.0), core(6.0, 1.0)
    assert limited - free > 3.0
    assert core(6.0, 0.5) == pytest.approx(0.5 * (free + limited), abs=1e-3)
    assert core(-20.0, 0.5) == pytest.approx(free, abs=1e-3)


def test_gddr_and_check_bits_on_its_bus_change_the_memory_time_alone() -> None:
    """An A40, an A6000 and an H100: the same product, and a law whose efficiencies are alike but for those two."""
    devices = np.array(["a40", "rtx-a6000", "h100-sxm"], dtype=object)
    sizes = {"m": np.full(3, 64.0), "n": np.full(3, 8192.0), "k": np.full(3, 8192.0), "batch": np.ones(3)}
    data = prepare(blank_table("gemm", sizes, devices))
    none = dict.fromkeys(("format", "framework", "stack", "device", "cell"), 0)
    means = {name: mean for name, (mean, _) in PRIORS.items()} | {"on_chip": -40.0, "cache_share": -40.0}

    def parts(gddr: float, inline_ecc: float):
        law = new_law(means | {"gddr": gddr, "inline_ecc": inline_ecc}, none, habits=data.habits.shape[1])
        return np.array(jax.vmap(law.parts)(data.inputs(NO_NAMES)))

    added = parts(-0.25, 0.5) - parts(0.0, 0.0)
    np.testing.assert_allclose(added[1], [0.25, -0.25, 0.0], atol=1e-5)
    np.testing.assert_array_equal(added[[0, 2]], 0.0)


@pytest.mark.parametrize(("sharpness", "longer"), [(1.0, 1.5), (64.0, 1.0)])
def test_bytes_stream_through_dram_and_l2_at_once_or_one_after_the_other(sharpness: float, longer: float) -> None:
    """L2 takes half of DRAM's time: all of it is hidden, or none."""
    sizes = {"m": np.full(1, 64.0), "n": np.full(1, 8192.0), "k": np.full(1, 8192.0), "batch": np.ones(1)}
    data = prepare(blank_table("gemm", sizes, np.array(["h100-sxm"], dtype=object)))
    x = data.inputs(NO_NAMES)
    x = eqx.tree_at(lambda row: row.on_chip, x, x.memory - math.log(2.0))
    means = {name: mean for name, (mean, _) in PRIORS.items()}
    means |= {"memory": 0.0, "on_chip": 0.0, "cache_share": -40.0, "on_chip_sharpness": math.log(sharpness)}
    none = dict.fromkeys(("format", "framework", "stack", "device", "cell"), 0)
    _, memory, _ = jax.vmap(new_law(means, none, habits=data.habits.shape[1]).parts)(x)
    np.testing.assert_allclose(np.exp(memory - x.memory), longer, rtol=1e-5)
