"""What predictions say that they do not know of a kernel."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from calibration.kernels.point import load_kinds
from calibration.kernels.remarks import STAND_IN, of_device, told
from tests.calibration.tables import blank_table

PREFILL = {"batch": 1.0, "q_len": 128.0, "prefix": 0.0, "heads": 1.0, "kv_heads": 1.0, "head_dim": 128.0, "window": 0.0}
GEMM = {"m": 128.0, "n": 128.0, "k": 128.0}


@pytest.mark.parametrize(("family", "shape"), [("attention_prefill", PREFILL), ("gemm", GEMM)])
def test_products_in_a_format_that_the_device_lacks(family: str, shape: dict[str, float]) -> None:
    devices = np.array(["a100-sxm-80gb", "a100-sxm-80gb", "l40s", "l40s"], dtype=object)
    columns = {name: np.full(4, value) for name, value in shape.items()}
    formats = np.array(["fp8", "bf16"] * 2, dtype=object)
    table = dataclasses.replace(blank_table(family, columns, devices), dtype=formats)
    found = of_device(table, load_kinds(table), np.zeros(4, bool), ())
    assert found.tolist() == [STAND_IN, 0, 0, 0]
    assert told(STAND_IN) == "the device has no units for this format: multiplied in another"
