"""Rows and blocks whose elements are needed twice: bytes with their scales, reads, the busiest core."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.numerics import as_float
from jaxperf.kernels.quantize import (
    ScaleBlock,
    dequantize_cost,
    per_channel_scale,
    per_tensor_scale,
    quantize_cost,
)
from jaxperf.kernels.softmax import softmax_cost
from tests.devices import H100, efficiencies

ROOFLINE = efficiencies("high").elementwise
L2 = 50 * 2**20
sizes = (st.integers(1, 5000), st.integers(1, 20_000))


def up(a: int, b: int) -> int:
    return -(-a // b)


@given(*sizes, st.sampled_from([2, 4]))
def test_a_softmax_reads_twice_where_the_rows_in_flight_leave_the_l2(rows: int, columns: int, itemsize: int) -> None:
    cost = softmax_cost(H100, as_float(rows), as_float(columns), as_float(itemsize), ROOFLINE)
    reads = 1 if min(rows, 132) * columns * itemsize <= L2 else 2
    assert float(cost.bytes_moved) == rows * columns * itemsize * (1 + reads)
    assert float(cost.flops) == 5 * rows * columns
    np.testing.assert_allclose(cost.compute, up(rows, 132) * columns * 5 / (67e12 / 132), rtol=1e-13)


def test_logits_of_a_large_vocabulary_are_read_twice() -> None:
    for rows, reads in ((8, 1), (512, 2)):  # 132 rows of 128,256 fp32 logits are 68 MB
        cost = softmax_cost(H100, as_float(rows), as_float(128_256), as_float(4), ROOFLINE)
        assert float(cost.bytes_moved) == rows * 128_256 * 4 * (1 + reads)


def quantize(rows: int, columns: int, stored: float, block: ScaleBlock) -> float:
    numbers = (as_float(x) for x in (rows, columns, 2, stored))
    return float(quantize_cost(H100, *numbers, block, ROOFLINE).bytes_moved)


@given(*sizes, st.integers(1, 200), st.integers(1, 300), st.sampled_from([1, 2, 4]))
def test_every_block_has_a_scale(rows: int, columns: int, height: int, width: int, scale: int) -> None:
    scales = up(rows, height) * up(columns, width)
    block = ScaleBlock(height, width, scale)
    elements = rows * columns
    reads = 1 if min(scales, 132) * (elements / scales) * 2 <= L2 else 2
    assert quantize(rows, columns, 1, block) == elements * (2 * reads + 1) + scales * scale
    back = dequantize_cost(H100, *(as_float(x) for x in (rows, columns, 1, 2)), block, ROOFLINE)
    assert float(back.bytes_moved) == elements * (1 + 2) + scales * scale
    assert float(back.flops) == 2 * elements


@given(*sizes)
def test_per_tensor_and_per_channel_scales(rows: int, columns: int) -> None:
    reads = 1 if rows * columns * 2 <= L2 else 2
    tensor = per_tensor_scale(as_float(rows), as_float(columns))
    assert quantize(rows, columns, 1, tensor) == rows * columns * (2 * reads + 1) + 4
    channel = per_channel_scale(as_float(columns))
    assert quantize(rows, columns, 1, channel) == rows * columns * 3 + rows * 4


@pytest.mark.parametrize(("stored", "block", "itemsize"), [(0.5, 32, 0.53125), (0.5, 16, 0.5625), (1.0, 32, 1.03125)])
def test_blocks_of_the_microscaling_formats_weigh_what_the_formats_say(
    stored: float, block: int, itemsize: float
) -> None:
    written = quantize(64, 4096, stored, ScaleBlock(1, block, 1)) - 64 * 4096 * 2
    assert written == 64 * 4096 * itemsize
