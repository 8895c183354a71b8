"""The programs of a table are compiled with loops of several results, which is for plain programs alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibration.datasets.schema import FAMILIES
from calibration.kernels import answers
from calibration.kernels.parameters import Parameters, load_parameters
from calibration.kernels.predict import predict_table
from jaxperf.sweeps.program import Program, flatten
from tests.calibration.tables import blank_table

PROGRAMS = ("_settled", "_said", "_told")
SIZES = {"kv_heads": 8.0, "window": 0.0, "prefix": 0.0, "tp": 1.0, "ep": 1.0, "topk": 2.0, "experts": 8.0}


@pytest.fixture(scope="module")
def shipped() -> Parameters:
    return load_parameters()


@pytest.mark.parametrize("family", sorted(load_parameters().families))
def test_no_family_loops_or_writes_into_an_array(
    shipped: Parameters, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs: list[Program] = []

    def recorded(name: str) -> Any:
        program = getattr(answers, name)

        def call(*given: Any) -> Any:
            programs.append(flatten(program.trace(*given).jaxpr))
            return program(*given)

        return call

    for name in PROGRAMS:
        monkeypatch.setattr(answers, name, recorded(name))
    rows = "gemm" if family == "gemm_vector" else family  # fp32 products of one table
    columns = {each.name: np.full(2, SIZES.get(each.name, 128.0)) for each in FAMILIES[rows]}
    dtype = "fp32" if family in ("gemm_vector", "bmm", "convolution") else "bf16"
    predict_table(blank_table(rows, columns, np.array(["h100-sxm", "b200"], object), dtype), shipped)
    assert len(programs) >= len(PROGRAMS)
    assert all(each.plain for each in programs)
