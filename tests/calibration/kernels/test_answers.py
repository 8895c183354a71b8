"""The programs of a table are compiled with loops of several results, which is for plain programs alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration.datasets import groups
from calibration.datasets.schema import FAMILIES
from calibration.kernels import answers
from calibration.kernels.parameters import Parameters, load_parameters
from calibration.kernels.predict import predict_table
from jaxperf.sweeps.program import Program, flatten
from tests.calibration.tables import blank_table

SIZES = {"kv_heads": 8.0, "window": 0.0, "prefix": 0.0, "tp": 1.0, "ep": 1.0, "topk": 2.0, "experts": 8.0}


@pytest.fixture(scope="module")
def shipped() -> Parameters:
    return load_parameters()


@pytest.mark.parametrize("family", sorted(load_parameters().families))
def test_no_family_loops_or_writes_into_an_array(
    shipped: Parameters, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs: list[Program] = []

    def recorded(program: Any) -> Any:
        def call(*given: Any) -> Any:
            traced = program.trace(*given)
            programs.append(flatten(traced.jaxpr))
            return jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), traced.out_info)

        return call

    compiled = answers._programs

    def every(few: bool, *of: Any) -> answers.Programs:
        return answers.Programs(*map(recorded, vars(compiled(False, *of)).values()))

    monkeypatch.setattr(answers, "_programs", every)
    rows = "gemm" if family == "gemm_vector" else family  # fp32 products of one table
    columns = {each.name: np.full(2, SIZES.get(each.name, 128.0)) for each in FAMILIES[rows]}
    dtype = "fp32" if family in ("gemm_vector", "bmm", "convolution") else "bf16"
    predict_table(blank_table(rows, columns, np.array(["h100-sxm", "b200"], object), dtype), shipped)
    assert len(programs) >= 3
    assert all(each.plain for each in programs)


@pytest.mark.parametrize("family", ["attention_decode", "gemm"])
def test_few_rows_and_many_get_the_same_answers(
    shipped: Parameters, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {each.name: np.array([SIZES.get(each.name, 128.0 * n) for n in (1, 3, 40)]) for each in FAMILIES[family]}
    table = blank_table(family, columns, np.array(["h100-sxm", "b200", "t4"], object), "bf16")
    few = predict_table(table, shipped)
    monkeypatch.setattr(groups, "FEW_ROWS", 0)
    many = predict_table(table, shipped)
    for name in ("predicted_us", "lower_us", "upper_us", "roofline_us"):
        np.testing.assert_allclose(few[name], many[name], rtol=1e-5)
    assert all((few[name] == many[name]).all() for name in ("limiter", "tier", "reason"))
