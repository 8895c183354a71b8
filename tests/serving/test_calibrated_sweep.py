"""Sweeps over calibrated devices: each device at its own efficiencies, all in one compiled program."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import hwspecs
from jaxperf.core.numerics import as_float
from jaxperf.core.sustained import ROOFLINE
from jaxperf.core.sustained_file import calibration_of, load_sustained_table
from jaxperf.io.huggingface import load_model
from jaxperf.serving.explain import explain
from jaxperf.serving.study import Study, formats_of
from jaxperf.sweeps import Sweep
from jaxperf.sweeps.once import evaluate_once

NAMES = ("h100-sxm", "l40s", "mi300x", "b200", "epyc-9654")  # measured, transferred, assumed
TABLE = load_sustained_table()
DEVICES = {name: calibration_of(hwspecs.load(name), TABLE).calibrated for name in NAMES}
STUDY = Study(load_model("gpt2"), "decode", ("tpot", "memory"))
VALUES: dict[str, Any] = {"device": None, "batch": [1, 5, 32], "context": [64, 512], "weights": ["bf16", "fp8", "int4"]}


def dense(values: dict[str, Any], devices: dict[str, Any]) -> dict[str, np.ndarray]:
    return Sweep(STUDY.point(), STUDY.axes(values, devices)).dense().metrics


@pytest.fixture(scope="module")
def swept() -> dict[str, np.ndarray]:
    return dense(VALUES, DEVICES)


def test_one_compile_for_devices_of_every_tier() -> None:
    traces = eqx.debug.assert_max_traces(STUDY.point(), max_traces=1)
    assert Sweep(traces, STUDY.axes(VALUES, DEVICES)).dense().metrics["tpot"].shape[0] == len(NAMES)


def test_levels_bracket_the_nominal_everywhere(swept: dict[str, np.ndarray]) -> None:
    assert (swept["tpot_lower"] < swept["tpot"]).all() and (swept["tpot"] < swept["tpot_upper"]).all()


def test_layouts_and_single_points_agree(swept: dict[str, np.ndarray]) -> None:
    tolerance = 1e-12 if swept["tpot"].dtype == np.float64 else 1e-5
    turned = dense({name: VALUES[name] for name in ("weights", "context", "batch", "device")}, DEVICES)["tpot"]
    np.testing.assert_allclose(turned[..., 0].T, swept["tpot"][..., 0], rtol=tolerance)
    point = jax.jit(STUDY.at_level("nominal"))
    for index, name in enumerate(NAMES):
        given = formats_of("fp8", "bf16") | {"batch": as_float(5), "context": as_float(512)}
        alone = float(point(device=DEVICES[name], **given)["tpot"])
        assert float(swept["tpot"][index, 1, 1, 1, 0]) == pytest.approx(alone, rel=tolerance)


def test_a_device_does_not_depend_on_its_neighbours(swept: dict[str, np.ndarray]) -> None:
    alone = dense(VALUES, {"l40s": DEVICES["l40s"]})["tpot"]
    tolerance = 1e-12 if alone.dtype == np.float64 else 1e-5
    np.testing.assert_allclose(alone[0], swept["tpot"][1], rtol=tolerance)


@pytest.mark.long
def test_the_roofline_of_an_explanation_is_that_of_the_plain_device() -> None:
    study = Study(load_model("gpt2"), "serve", ("ttft", "tpot"))
    point = {"batch": 4, "prompt": 64, "output": 8, "weights": "bf16", "kv_cache": "bf16"}
    point |= dict.fromkeys(("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel"), 1)
    calibrated = DEVICES["h100-sxm"]
    fitted, plain = (explain(study, [each], [point])[0] for each in (calibrated, calibrated.device))
    for name in ("ttft", "tpot"):
        assert float(fitted.roofline[name]) == pytest.approx(float(plain.roofline[name]), rel=1e-5)
        assert float(fitted.roofline[name]) < float(fitted.metrics[f"{name}_lower"])
        assert float(plain.roofline[name]) == pytest.approx(float(plain.metrics[f"{name}_lower"]), rel=1e-5)


@pytest.mark.parametrize("level", ["nominal", ROOFLINE])
def test_gradients_through_a_calibrated_device_are_finite(level: str) -> None:
    given = formats_of("fp8", "bf16") | {"batch": as_float(8), "context": as_float(256)}
    point = STUDY.at_level(level)

    def time(numbers: Any, rest: Any) -> Any:
        return point(device=eqx.combine(numbers, rest), **given)["tpot"]

    slopes = evaluate_once(jax.jit(jax.grad(time)), *eqx.partition(DEVICES["h100-sxm"], eqx.is_inexact_array))
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(slopes))
    assert float(slopes.device.memory_bandwidth) < 0.0
