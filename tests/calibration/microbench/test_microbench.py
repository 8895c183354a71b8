"""The harness: sizes, times, operations that compute what they say, rows that read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.datasets import data_hash, read_table
from calibration.microbench import OPERATIONS, Measurement, Plan, TimingSettings, families, measure, time_calls
from calibration.microbench.grid import draw, round_size
from calibration.microbench.moe import experts
from calibration.microbench.operation import Operation, random_array
from calibration.microbench.points import Point, shortest_times, wanted
from calibration.microbench.quantize import quantize_fp8, quantize_int8
from calibration.microbench.rows import layernorm, look_up, rmsnorm
from calibration.microbench.store import card_path, save, summary
from calibration.microbench.timing import dispatch_floor, live, stream_bandwidth, summarize
from hwspecs.errors import InputError

DEVICE = "xeon-cloud-2-core"
QUICK = TimingSettings(least=2, most=2, seconds=0.0, warm_up=1)
BY_NAME = {operation.name: operation for operation in OPERATIONS}
TINY = {"m": 8, "n": 64, "k": 64, "batch": 2, "q_len": 16, "kv_len": 16, "heads": 2, "kv_heads": 1, "head_dim": 64}
TINY |= {"rows": 4, "columns": 64, "tokens": 6, "hidden": 128, "inter": 64, "topk": 2, "experts": 4}


pytestmark = pytest.mark.usefixtures("plain_jax")


def tiny(operation: Operation, dtype: str | None = None, state: str = "resident") -> Point:
    """A point that takes microseconds."""
    return Point(operation, {name: TINY[name] for name in operation.sizes}, dtype or operation.dtypes[0], state)


def measured(points: list[Point], **changes: Any) -> list[Measurement]:
    return list(measure(Plan(DEVICE, timing=QUICK, **changes), points))


# --- sizes ------------------------------------------------------------------------------------------------------------


@given(st.floats(1.0, 1e7))
def test_round_sizes_are_near_and_round(size: float) -> None:
    found = round_size(size)
    assert abs(found - size) <= max(0.5, size / 16 + 1e-9)
    assert found % 2 ** max(0, round(size).bit_length() - 4) == 0
    assert round_size(found) == found


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_sizes_are_distinct_accepted_bounded_and_repeat_with_the_seed(operation: Operation) -> None:
    every = lambda sizes: np.ones(len(sizes), bool)  # noqa: E731
    first, again, other = (draw(operation, 30, seed, every) for seed in (3, 3, 4))
    assert first == again != other
    assert len({tuple(sizes.items()) for sizes in first}) == 30
    assert all(operation.accepts(sizes) for sizes in first)
    for name, allowed in operation.sizes.items():
        values = [sizes[name] for sizes in first]
        low, high = (min(allowed), max(allowed)) if isinstance(allowed, tuple) else (allowed.low, allowed.high)
        assert low <= min(values) and max(values) <= high


def test_no_size_takes_longer_than_the_limit() -> None:
    points = Plan(DEVICE, operations=(BY_NAME["gemm"],), count=12, longest=1e-4).points()
    times = shortest_times(BY_NAME["gemm"], [point.sizes for point in points], DEVICE)
    assert len(points) == 24 and times.max() <= 1e-4
    flops = [2.0 * np.prod([float(size) for size in point.sizes.values()]) for point in points]
    assert max(flops) / 345.6e9 <= 1.01e-4  # two cores at 2.7 GHz and 64 FLOP a cycle


def test_a_short_run_has_some_of_every_operation() -> None:
    points = Plan(DEVICE, operations=(BY_NAME["gemm"], BY_NAME["softmax"]), count=3).points()
    assert {point.operation.name for point in points[:4]} == {"gemm", "softmax"}
    assert [point.dtype for point in points[:2]] == ["fp32", "bf16"]


# --- time -------------------------------------------------------------------------------------------------------------


def test_times_are_of_the_calls_alone() -> None:
    """A clock that only the call and the flush move: the flush is not in the times, the warm-up not among them."""
    now, calls = [0.0], [0]

    def call() -> jax.Array:
        calls[0] += 1
        now[0] += 100.0 if calls[0] <= 2 else 1.0 * (1 + calls[0] % 3)
        return jnp.zeros(1)

    def flush() -> None:
        now[0] += 7.0

    timing = time_calls(call, TimingSettings(least=6, most=6, seconds=0.0, warm_up=2), flush, lambda: now[0])
    assert (timing.median, timing.fastest, timing.repeats, calls[0]) == (2.0, 1.0, 6, 8)


def test_repeats_follow_the_budget_between_least_and_most() -> None:
    now = [0.0]

    def call() -> jax.Array:
        now[0] += 1.0
        return jnp.zeros(1)

    def repeats(seconds: float) -> int:
        return time_calls(call, TimingSettings(3, 50, seconds, 0), clock=lambda: now[0]).repeats

    assert (repeats(0.5), repeats(10.0), repeats(1e9)) == (3, 10, 50)


def test_spread_is_the_interquartile_range_over_the_median() -> None:
    timing = summarize([1.0, 2.0, 3.0, 4.0, 9.0])
    assert (timing.median, timing.fastest, timing.spread) == (3.0, 1.0, pytest.approx(2.0 / 3.0))


def test_a_call_without_a_result_is_refused() -> None:
    with pytest.raises(ValueError, match="not be waited for"):
        time_calls(lambda: None, QUICK)


@pytest.mark.parametrize("function", [lambda x: jnp.ones(3), lambda x: x, lambda x: (x + 1.0, 2.0 * jnp.ones(2))])
def test_work_that_the_compiler_could_remove_is_refused(function: Any) -> None:
    with pytest.raises(ValueError, match="compute it once"):
        live(function, (jnp.ones(3),))


def test_the_work_is_still_there_when_it_is_timed() -> None:
    """Sixty-four times the work takes longer than the floor allows for none."""
    small, large = (
        time_calls(live(jnp.matmul, (jnp.ones((n, n)), jnp.ones((n, n)))), TimingSettings(seconds=0.05)).fastest
        for n in (16, 512)
    )
    assert large > 5.0 * small
    assert large > 2.0 * dispatch_floor(TimingSettings(seconds=0.05)).fastest
    assert large > 2.0 * 512**3 / 100e12  # faster than 100 TFLOP/s no processor is


def test_streams_have_a_bandwidth() -> None:
    assert 1e7 < stream_bandwidth(2**22, repeats=3) < 1e13


# --- operations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_every_operation_runs_in_every_format(operation: Operation) -> None:
    for dtype in operation.dtypes:
        point = tiny(operation, dtype)
        function, operands = operation.call(point.sizes, dtype, 0)
        for leaf in jax.tree.leaves(live(function, operands)()):
            assert np.isfinite(np.asarray(leaf, np.float32)).all()
        np.testing.assert_array_equal(operation.call(point.sizes, dtype, 0)[1][0], operands[0])


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_the_columns_are_those_of_the_operands(operation: Operation) -> None:
    """What the schema says of the shape is what the arrays hold."""
    shape = operation.shape(tiny(operation).sizes)
    function, operands = operation.call(tiny(operation).sizes, operation.dtypes[0], 0)
    result = jax.tree.leaves(jax.eval_shape(function, *operands))[0]
    if operation.family in ("gemm", "bmm"):
        assert operands[0].shape[-2:] == (shape["m"], shape["k"]) and result.shape[-2:] == (shape["m"], shape["n"])
        assert operands[0].size // (shape["m"] * shape["k"]) == shape.get("batch", 1)
    elif operation.family == "elementwise":
        assert sum(each.size for each in operands) == shape["elements_in"] and result.size == shape["elements_out"]
    elif operation.family.startswith("attention"):
        queries = shape.get("q_len", 1)
        assert operands[0].shape == (shape["batch"], queries, shape["heads"], shape["head_dim"])
        assert operands[1].shape[1:] == (shape.get("kv_len", queries), shape["kv_heads"], shape["head_dim"])
    elif operation.family == "moe":
        assert operands[1].shape == (shape["experts"], shape["hidden"], 2 * shape["inter"])
        assert operands[3].shape == (shape["tokens"], shape["topk"])
    else:
        assert result.shape == tuple(shape.values())


def test_norms_match_their_formulas() -> None:
    x, weight = (
        np.asarray(random_array(shape, "fp32", seed), np.float64) for shape, seed in (((3, 64), 0), ((64,), 1))
    )
    rms = x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6) * weight
    moments = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6) * weight
    single = jnp.asarray(x, jnp.float32), jnp.asarray(weight, jnp.float32)
    np.testing.assert_allclose(rmsnorm(*single), rms, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layernorm(*single), moments, rtol=1e-4, atol=1e-5)


def test_experts_are_the_sum_over_the_chosen() -> None:
    _, operands = BY_NAME["moe"].call({name: TINY[name] for name in BY_NAME["moe"].sizes}, "fp32", 0)
    x, up, down, chosen, weight = (np.asarray(each, np.float64) for each in operands)
    expected = np.zeros_like(x)
    for token, row in enumerate(x):
        for place, expert in enumerate(chosen[token].astype(int)):
            gate, linear = np.split(row @ up[expert], 2)
            expected[token] += weight[token, place] * (gate / (1.0 + np.exp(-gate)) * linear) @ down[expert]
        assert len(set(chosen[token])) == TINY["topk"]
    np.testing.assert_allclose(experts(*operands), expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(("function", "largest"), [(quantize_int8, 0.5 / 127), (quantize_fp8, 2.0**-4)])
def test_quantized_rows_come_back(function: Any, largest: float) -> None:
    x = random_array((4, 256), "bf16", 0)
    whole, scale = function(x)
    back = np.asarray(whole, np.float32) * np.asarray(scale)
    error = np.abs(back - np.asarray(x, np.float32)) / np.abs(np.asarray(x, np.float32)).max(axis=1, keepdims=True)
    assert error.max() <= 1.01 * largest


def test_embedding_takes_rows() -> None:
    table = jnp.arange(12.0).reshape(4, 3)
    np.testing.assert_array_equal(look_up(table, jnp.array([2, 0])), table[np.array([2, 0])])


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_a_run_reads_back_as_the_schema(tmp_path: Path, ending: str) -> None:
    points = [tiny(operation, dtype) for operation in OPERATIONS for dtype in operation.dtypes]
    points.append(tiny(BY_NAME["gemm"], "fp32", "cold"))
    done = measured(points)
    assert [each.problem for each in done] == [""] * len(points)
    rows = [each.row for each in done if each.row]
    path = tmp_path / f"run{ending}"
    save(rows, {"created": "2026-11-21", "device": DEVICE}, path)
    read = read_table(path)
    assert read.problems == () and read.rows == len(points)
    assert {table.family for table in read.tables} == set(families())
    for table in read.tables:
        assert set(table.device) == {DEVICE} and set(table.framework) == {"jax"} and not table.flag.any()
        for place, at in enumerate(table.row):
            expected = wanted(points[at].operation, [points[at].sizes], points[at].dtype, DEVICE)
            assert {name: column[place] for name, column in table.shape.items()} == {
                name: column[0] for name, column in expected.shape.items()
            }
            assert table.dtype[place] == points[at].dtype
            assert table.measured[place] == pytest.approx(1e-6 * rows[at]["median_us"])
    gemm = read.table("gemm")
    assert gemm is not None
    assert list(gemm.kernel) == ["jax.numpy.matmul", "jax.numpy.matmul", "jax.numpy.matmul, cold"]


def test_the_card_names_its_table(tmp_path: Path) -> None:
    rows = [each.row for each in measured([tiny(BY_NAME["add"])], statistic="fastest") if each.row]
    assert rows[0]["latency_us"] == rows[0]["fastest_us"] <= rows[0]["median_us"]
    save(rows, {"created": "2026-11-21", "device": DEVICE}, tmp_path / "t.csv")
    card = json.loads(card_path(tmp_path / "t.csv").read_text())
    assert card["sha256"] == data_hash(tmp_path / "t.csv") and card["families"] == summary(rows)
    with pytest.raises(InputError, match="the ending must be one of"):
        save(rows, {}, tmp_path / "t.xlsx")


def test_what_fails_is_told_and_the_run_goes_on() -> None:
    broken = Operation("broken", "softmax", "softmax", "none", BY_NAME["softmax"].sizes, dict, lambda *_: 1 / 0)  # type: ignore[arg-type]

    def dead(sizes: Any, dtype: str, seed: int) -> Any:
        return (lambda x: jnp.ones(2)), (jnp.ones(2),)

    folded = Operation("folded", "softmax", "softmax", "none", BY_NAME["softmax"].sizes, dict, dead)
    done = measured([tiny(folded), tiny(BY_NAME["softmax"])], operations=(folded, BY_NAME["softmax"]))
    assert [each.row is None for each in done] == [True, False]
    assert done[0].problem.startswith("folded {'rows': 4, 'columns': 64} fp32: a result does not depend")
    with pytest.raises(ZeroDivisionError):  # a mistake of ours is not hidden
        measured([tiny(broken)], operations=(broken,))


def test_no_kernel_is_begun_after_the_budget() -> None:
    assert measured([tiny(BY_NAME["add"])] * 3, budget=0.0) == []


def test_cold_operands_are_flushed_before_every_call() -> None:
    flushed = [0]

    def flush() -> None:
        flushed[0] += 1

    plan = Plan(DEVICE, timing=QUICK)
    list(measure(plan, [tiny(BY_NAME["add"]), tiny(BY_NAME["add"], state="cold")], flush=flush))
    assert flushed[0] == QUICK.least
