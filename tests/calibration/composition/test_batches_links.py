"""All-reduce times from measured curves: exact at what was measured, in proportion to rate and traffic elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hwspecs
from calibration.composition.batches_links import (
    Curve,
    all_reduce_time,
    curve_arrays,
    curve_of,
    curves_from,
    curves_of,
    link_rate,
    without,
)
from calibration.composition.batches_parameters import load_steps
from calibration.datasets.schema import KernelTable


def curve(device: str, ranks: int, order: int = 0, alpha: float = 1e-5, rate: float = 1e11) -> Curve:
    size = 2.0 ** np.arange(11, 31)
    return curve_of(device, ranks, order, np.log(size), np.log(alpha + size / rate))


A100, H20, PCIE = curve("a100-sxm-80gb", 4), curve("h20", 4, alpha=2e-5), curve("rtx-6000-ada", 2, rate=1e10)


def test_a_measured_size_has_its_measured_time() -> None:
    spec = hwspecs.load("a100-sxm-80gb")
    for size in (2.0**11, 2.0**20, 2.0**30):
        assert all_reduce_time([A100, H20], spec, 4, size) == pytest.approx(1e-5 + size / 1e11, rel=1e-12)


def test_beyond_the_table_time_grows_with_size_and_below_it_is_constant() -> None:
    assert A100.at(2.0**32) == pytest.approx(4.0 * A100.at(2.0**30), rel=1e-12)
    assert A100.at(2.0**5) == pytest.approx(A100.at(2.0**11), rel=1e-12)


def test_half_the_rate_takes_as_long_as_twice_the_bytes() -> None:
    slow, fast = hwspecs.load("a800-sxm-80gb"), hwspecs.load("a100-sxm-80gb")
    ratio = fast.node.link_bandwidth.si / slow.node.link_bandwidth.si
    assert ratio == 1.5
    assert all_reduce_time([A100], slow, 4, 2.0**24) == pytest.approx(A100.at(1.5 * 2.0**24), rel=1e-12)


def test_more_ranks_send_more() -> None:
    ada = hwspecs.load("rtx-6000-ada")  # 2 (n - 1) / n: 1 of two ranks, 3/2 of four
    assert all_reduce_time([PCIE], ada, 4, 2.0**24) == pytest.approx(PCIE.at(1.5 * 2.0**24), rel=1e-12)


@pytest.mark.parametrize(
    ("device", "ranks", "nearest"),
    [("h800-sxm", 4, H20), ("a800-sxm-80gb", 4, A100), ("h20", 8, H20), ("l40s", 2, PCIE), ("b200", 4, A100)],
)
def test_the_nearest_group_is_joined_alike_and_of_the_generation(device: str, ranks: int, nearest: Curve) -> None:
    spec = hwspecs.load(device)
    rate = hwspecs.load(nearest.device).node.link_bandwidth.si / spec.node.link_bandwidth.si
    traffic = ((ranks - 1) / ranks) / ((nearest.ranks - 1) / nearest.ranks)
    expected = nearest.at(2.0**22 * rate * traffic)
    assert all_reduce_time([A100, H20, PCIE], spec, ranks, 2.0**22) == pytest.approx(expected, rel=1e-12)


def test_the_first_table_is_preferred() -> None:
    later = curve("a100-sxm-80gb", 4, order=1, alpha=1.0)
    assert all_reduce_time([later, A100], hwspecs.load("a100-sxm-80gb"), 4, 4096.0) < 1e-3


def test_without_a_group_joined_alike_the_datasheet_decides() -> None:
    spec = hwspecs.load("mi300x")  # a mesh
    size, rate = 2.0**30, spec.node.link_bandwidth.si
    # Two of eight use one of seven links; the time is at least that of the bytes over the assumed three quarters.
    assert all_reduce_time([A100, PCIE], spec, 8, size) == pytest.approx(2.0 * 7 / 8 * size / (0.75 * rate), rel=0.02)
    assert all_reduce_time([A100, PCIE], spec, 2, size) == pytest.approx(size / (0.75 * rate / 7.0), rel=0.02)


def test_one_rank_sends_nothing() -> None:
    assert all_reduce_time([A100], hwspecs.load("a100-sxm-80gb"), 1, 1e9) == 0.0


@given(st.floats(1.0, 2.0**40), st.floats(1.0, 8.0))
def test_more_bytes_never_take_less(size: float, factor: float) -> None:
    spec = hwspecs.load("h100-sxm")
    assert all_reduce_time([A100, H20], spec, 4, size) <= all_reduce_time([A100, H20], spec, 4, size * factor) * (
        1 + 1e-12
    )


def test_the_link_rate_gives_the_measured_time_back() -> None:
    rate = link_rate([A100], hwspecs.load("a100-sxm-80gb"), 4, 2.0**20)
    assert 2.0 * 3 / 4 * 2.0**20 / rate == pytest.approx(A100.at(2.0**20), rel=1e-12)


def test_curves_come_back_from_their_arrays() -> None:
    back = curves_from(curve_arrays([A100, PCIE]))
    assert {(each.device, each.ranks, each.order) for each in back} == {("a100-sxm-80gb", 4, 0), ("rtx-6000-ada", 2, 0)}
    assert all(np.array_equal(each.size, A100.size) for each in back)


def test_a_device_can_be_left_out() -> None:
    assert without([A100, H20, PCIE], ["h20", "rtx-6000-ada"]) == (A100,)


def all_reduces(size: list[float], time: list[float], node: list[float], flag: list[int]) -> KernelTable:
    """Measured on four H20; `node`: devices of one."""
    rows = len(size)
    texts = lambda value: np.full(rows, value, dtype=object)  # noqa: E731
    return KernelTable(
        family="collective",
        row=np.arange(rows),
        device=texts("h20"),
        framework=texts(""),
        version=texts(""),
        kernel=texts(""),
        dtype=texts(""),
        cache=texts(""),
        shape={"bytes": np.array(size), "num_gpus": np.full(rows, 4.0), "gpus_per_node": np.array(node)},
        latency=np.array(time),
        flag=np.array(flag),
        text={"op": texts("all_reduce")},
    )


def test_curves_hold_medians_of_usable_rows_on_one_node() -> None:
    size, time = [*5 * [4096.0], 2.0**20], [1e-5, 2e-5, 9e-5, 5.0, 7.0, 1e-3]
    (found,) = curves_of([all_reduces(size, time, [4.0, 4.0, 4.0, 4.0, 2.0, math.nan], [0, 0, 0, 16, 0, 0])])
    assert (found.device, found.ranks) == ("h20", 4)
    assert np.exp(found.size) == pytest.approx([4096.0, 2.0**20])
    assert np.exp(found.time) == pytest.approx([2e-5, 1e-3])  # neither the flagged row nor the one on two nodes


def test_no_smaller_buffer_takes_longer_where_the_measured_ones_do() -> None:
    """Octaves out of order take their geometric mean, others stay as measured."""
    size, time = [2.0**12, 2.0**13, 2.0**14, 2.0**15, 2.0**16], [80e-6, 20e-6, 45e-6, 40e-6, 90e-6]
    (found,) = curves_of([all_reduces(size, time, 5 * [4.0], 5 * [0])])
    pooled = (45e-6 * 40e-6) ** 0.5
    assert np.exp(found.time) == pytest.approx([40e-6, 40e-6, pooled, pooled, 90e-6])


def test_no_smaller_buffer_takes_longer_on_any_shipped_curve() -> None:
    for curve in load_steps().curves:
        assert (np.diff(curve.time) >= 0.0).all(), (curve.device, curve.ranks)
