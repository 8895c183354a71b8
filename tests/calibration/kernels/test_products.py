"""Matrix products step by step: tiles of libraries that divide and that do not, waits on the busiest core, energy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.datasets.engine_products import engine_products
from calibration.datasets.library_tiles import (
    SGLANG_ADA,
    SGLANG_HOPPER,
    SWAPPED_HOPPER,
    TABLES,
    TRTLLM_BLOCKS_ADA,
    VLLM_ADA,
    VLLM_HOPPER,
    Table,
)
from calibration.datasets.text import as_text
from calibration.kernels.asked import READ_APART, WRITTEN_APART, quantized
from calibration.kernels.demand import demands
from calibration.kernels.formats import Formats, format_columns
from calibration.kernels.hardware import Hardware, load_hardware
from calibration.kernels.products import (
    ACCUMULATING,
    ADDING,
    CUT,
    FILLING,
    GROUP_ROWS,
    HALF,
    IN_INTEGERS,
    LIGHTER,
    MOST_AT_ONCE,
    MULTIPLYING_INTEGERS,
    SMALL_TILES,
    STEP,
    TALL_ROWS,
    WAIT,
    WAIT_BY_COPIES,
    WAIT_DEEP,
    cut,
    stepping,
    steps,
    switched,
    tile,
)
from jaxperf.kernels.tiling import busiest_core_flops, choose_tile, deepest_split
from tests.calibration.tables import blank_table

CORES = {"h100-sxm": 132, "l40s": 142}


def hardware(name: str) -> Hardware:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), load_hardware([name]))


def formats(dtype: str) -> Formats:
    one = {name: np.ones(1) for name in ("m", "n", "k", "batch")}
    found, _ = format_columns(blank_table("gemm", one, np.array(["h100-sxm"], dtype=object), dtype))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), found)


def shape(m: int, n: int, k: int, **ways: float) -> dict[str, jax.Array]:
    return {name: jnp.asarray(float(each)) for name, each in {"m": m, "n": n, "k": k, "batch": 1, **ways}.items()}


@settings(max_examples=30)
@given(m=st.integers(1, 9000), n=st.integers(1, 9000), k=st.integers(1, 70000), small=st.booleans())
def test_steps_are_whole_numbers_of_whole_tiles(m: int, n: int, k: int, small: bool) -> None:
    device, f = hardware("h100-sxm").device, formats("fp8")
    cut = tile(device, x := shape(m, n, k, unsplit=1, small_tiles=small))
    assert float(cut.split_k) == 1.0 and (small or float(cut.m) >= GROUP_ROWS)
    tiles = -(-m // int(cut.m)) * -(-n // int(cut.n))
    at_once = min(max(int(FILLING) // int(cut.m + cut.n), 1), int(MOST_AT_ONCE))
    deep = -(-k // int(STEP))
    assert float(steps(device, x, f, cut, jnp.asarray(1.0))) == -(-tiles // (CORES["h100-sxm"] * at_once)) * deep
    # Steps in flight fill what blocks beside each other would.
    assert float(steps(device, x | shape(m, n, k, deep=1), f, cut, jnp.asarray(1.0))) == -(-tiles // 132) * deep


@given(st.integers(1, 40_000), st.integers(1, 40_000), st.integers(1, 40_000), st.booleans())
def test_a_tile_that_was_settled_is_the_tile(m: int, n: int, k: int, unsplit: bool) -> None:
    device, own = hardware("a100-sxm-80gb").device, shape(m, n, k, unsplit=float(unsplit))
    first, again = tile(device, own), tile(device, own | cut(device, own))
    assert jax.tree.leaves(first) == jax.tree.leaves(again)
    other = dict(zip(CUT, (jnp.full((), size) for size in (64.0, 96.0, 3.0)), strict=True))
    assert tile(device, own | other).n == 96.0


def test_a_library_that_does_not_divide_waits_for_the_whole_reduction() -> None:
    h100, f = hardware("h100-sxm"), formats("fp8")
    divided, whole = (float(stepping(h100, shape(16, 128, 16384, unsplit=each), f)) for each in (0, 1))
    assert whole == pytest.approx(128 * WAIT_BY_COPIES / float(h100.clock), rel=1e-6)
    parts = 16384 // 512
    assert divided == pytest.approx(128 / parts * WAIT_BY_COPIES / float(h100.clock) + ADDING, rel=1e-6)
    # A short reduction is left whole: adding its parts would take longer.
    short = float(stepping(h100, shape(16, 128, 1024), f))
    assert short == pytest.approx(8 * WAIT_BY_COPIES / float(h100.clock), rel=1e-6)


def test_small_tiles_where_instructions_are_of_one_warp() -> None:
    ada = hardware("l40s")
    large, small = (tile(ada.device, shape(256, 256, 8192, unsplit=1, small_tiles=each)) for each in (0, 1))
    assert float(small.m) * float(small.n) < float(large.m) * float(large.n)
    f = formats("fp8")
    one = float(stepping(ada, shape(64, 64, 8192, unsplit=1, small_tiles=1), f))
    assert one == pytest.approx(64 * WAIT / float(ada.clock), rel=1e-6)
    deep = float(stepping(ada, shape(64, 64, 8192, unsplit=1, small_tiles=1, deep=1), f))
    assert deep == pytest.approx(one * WAIT_DEEP / WAIT, rel=1e-6)


@settings(max_examples=30)
@given(st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 70000))
def test_a_library_that_divides_has_small_tiles_where_large_ones_leave_cores_idle(m: int, n: int, k: int) -> None:
    device, x = hardware("l40s").device, shape(m, n, k)
    found, large = (
        tile(device, x),
        choose_tile(device, x["m"], x["n"], x["k"], one := jnp.ones(()), deepest_split(x["k"])),
    )
    load, usual = (float(busiest_core_flops(device, x["m"], x["n"], x["k"], one, each)) for each in (found, large))
    small = (float(found.m), float(found.n)) != (float(large.m), float(large.n))
    assert load <= usual and (not small or load < LIGHTER * usual)
    if small:
        assert float(found.n) in {wide for _, wide in SMALL_TILES}
        assert -(-m // int(large.m)) * -(-n // int(large.n)) < CORES["l40s"]


def test_few_rows_have_narrow_tiles_where_a_library_has_them() -> None:
    h20 = hardware("h20").device
    few, more = (tile(h20, shape(rows, 1024, 2048, unsplit=1)) for rows in (64, 65))
    assert (float(few.m), float(few.n)) == (GROUP_ROWS, 64.0) and float(more.n) > 64.0
    tall = [tile(h20, shape(rows, 1024, 2048, unsplit=1, tall_tiles=1)) for rows in (1, 64, 128)]
    assert {(float(each.m), float(each.n)) for each in tall} == {(TALL_ROWS, 128.0)}


@pytest.mark.parametrize(
    ("table", "tiles"),
    [
        (VLLM_HOPPER, {(16, 9000): (16, 64), (17, 1280): (16, 64), (17, 1281): (64, 64), (65, 64): (64, 128)}),
        (VLLM_ADA, {(16, 8192): (16, 64), (17, 16384): (32, 128), (129, 4097): (128, 128), (257, 8192): (256, 128)}),
        (SGLANG_HOPPER, {(256, 64): (64, 64), (257, 64): (128, 128)}),
        (SGLANG_ADA, {(1, 8193): (32, 64), (64, 16385): (16, 64), (256, 9000): (64, 128), (257, 1): (128, 128)}),
        (SWAPPED_HOPPER, {(32, 1281): (32, 64), (128, 4096): (64, 64), (128, 4097): (64, 128), (129, 1): (128, 128)}),
        (TRTLLM_BLOCKS_ADA, {(1, 1): (32, 128), (9000, 9000): (32, 128)}),
    ],
)
def test_a_table_of_tiles_is_read_from_its_first_row_that_fits(
    table: Table, tiles: dict[tuple[int, int], tuple[int, int]]
) -> None:
    device, number = hardware("h100-sxm").device, 1.0 + TABLES.index(table)
    found = {size: tile(device, shape(*size, 512, unsplit=1, tile_table=number)) for size in tiles}
    assert {size: (float(cut.m), float(cut.n)) for size, cut in found.items()} == tiles
    assert {float(cut.split_k) for cut in found.values()} == {1.0}


def test_kernels_that_exchange_the_operands_of_few_rows_go_two_steps_at_a_time() -> None:
    h100, f = hardware("h100-sxm"), formats("fp8")
    few, more = (
        [float(stepping(h100, shape(rows, 128, 8192, unsplit=1, deep=1, exchanged=each), f)) for each in (0, 1)]
        for rows in (64, 65)
    )
    assert few[0] == pytest.approx(2.0 * few[1]) and more[0] == more[1]


def test_narrower_operands_save_less_than_their_bytes() -> None:
    device = hardware("h100-sxm").device
    half, narrow = (float(switched(device, formats(name))) for name in ("bf16", "fp8"))
    assert half == pytest.approx(1.0) and narrow == pytest.approx(1.2, rel=1e-6)


@pytest.mark.parametrize("dtype", ["fp8", "nvfp4"])
def test_what_a_device_lacks_takes_the_energy_of_what_it_is_multiplied_in(dtype: str) -> None:
    a100, x = hardware("a100-sxm-80gb"), shape(4096, 4096, 4096)
    assert float(switched(a100.device, formats(dtype))) == pytest.approx(1.0)
    power = [float(demands("gemm", a100, x, formats(name))[2]) for name in (dtype, "bf16")]
    assert power[0] == pytest.approx(power[1], rel=1e-6)


def test_integers_take_less_to_multiply_and_next_to_nothing_to_add() -> None:
    device = hardware("b200-sxm").device
    floats, integers, blocks = (switched(device, formats(name)) for name in ("fp8", "sq", "nvfp4"))
    added, multiplied = ACCUMULATING * HALF, 1.0 - ACCUMULATING
    assert float(floats) == pytest.approx(multiplied + added, rel=1e-6)
    assert float(integers) == pytest.approx(MULTIPLYING_INTEGERS * multiplied + IN_INTEGERS * added, rel=1e-6)
    # Of fp4 no more than the scales of its blocks, 9 bits for 4, would make of a sum that shrinks with the operands.
    assert float(blocks) == pytest.approx(1.0 - ACCUMULATING + IN_INTEGERS * ACCUMULATING * HALF * 16.0 / 9.0, rel=1e-6)


def test_quantizing_by_elementary_operations_moves_nine_times_the_bytes() -> None:
    device, f = hardware("h100-sxm").device, formats("fp8")
    elements = jnp.asarray(1e6)
    once, apart = (
        float(quantized(device, shape(1, 1, 1, quantized=1, composed=each), elements, f).bytes_moved) for each in (0, 1)
    )
    assert once == pytest.approx(3e6) and apart == pytest.approx((READ_APART + WRITTEN_APART) * 1e6)
    assert float(quantized(device, shape(1, 1, 1, composed=1), elements, f).bytes_moved) == 0.0


def test_what_engines_do() -> None:
    rows = (
        ("vllm", "0.14.0", "vllm_default", "fp8", "hopper", (1, 1, 0, 1, 0, 0, 1, 5, 27, 0, 1, 1, 1)),
        ("vllm", "0.14.0", "vllm_default", "fp8_block", "hopper", (1, 1, 0, 1, 0, 0, 0, 11, 35, 0, 1, 0, 0)),
        ("vllm", "0.26.0", "vllm_default", "fp8", "xe2", (0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0)),
        ("vllm", "0.24.0", "CutlassFP8ScaledMMLinearKernel", "fp8", "ada", (1, 0, 1, 1, 1, 0, 1, 2, 3, 0, 1, 2, 0)),
        (
            *("sglang", "0.5.14", "sglang_deepgemm_gemm_nt_f8f8bf16", "fp8_block", "hopper-h20"),
            (1, 0, 0, 1, 0, 0, 0, 2, 3, 0, 6, 0, 0),
        ),
        ("sglang", "0.5.10", "sglang", "fp8", "hopper", (1, 0, 0, 1, 0, 0, 1, 2, 3, 1, 6, 3, 0)),
        ("sglang", "0.5.10", "sglang", "fp8", "ada", (1, 0, 0, 1, 1, 0, 1, 2, 3, 1, 6, 4, 0)),
        (
            *("sglang", "0.5.14", "sglang_sgl_kernel_fp8_scaled_mm", "fp8", "hopper"),
            (1, 0, 0, 1, 0, 0, 1, 2, 3, 1, 6, 5, 1),
        ),
        ("sglang", "", "", "fp8", "hopper", (0, 0, 0, 1, 0, 1, 1, 1, 0, 0, 6, 0, 0)),  # products alone
        ("trtllm", "1.3.0rc20", "torch_flow", "fp8", "ada", (1, 0, 0, 0, 0, 0, 0, 4, 5, 0, 1, 0, 0)),
        ("trtllm", "1.3.0rc20", "torch_flow", "fp8_block", "ada", (1, 0, 0, 1, 1, 0, 0, 2, 3, 0, 1, 6, 0)),
        ("trtllm", "1.0.0", "smooth_quant_gemm", "sq", "ada", (0, 0, 0, 1, 1, 0, 1, 1, 0, 0, 1, 0, 0)),
        ("vllm", "0.14.0", "vllm_default", "bf16", "ada", (0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0)),
        ("torch", "2.9", "matmul", "fp8", "ada", (0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0)),
    )
    table = blank_table("gemm", {"m": np.ones(len(rows))}, np.full(len(rows), "h100-sxm", dtype=object))
    for row, (framework, version, kernel, dtype, _, _) in enumerate(rows):
        table.framework[row], table.version[row], table.kernel[row], table.dtype[row] = (
            framework,
            version,
            kernel,
            dtype,
        )
    found = engine_products(table, as_text(np.array([row[4] for row in rows], dtype=object)))
    assert list(found) == [
        "quantized",
        "composed",
        "compiled",
        "unsplit",
        "small_tiles",
        "tall_tiles",
        "deep",
        "kernels",
        "quantizing",
        "row_a_warp",
        "inputs",
        "tile_table",
        "exchanged",
    ]
    assert np.stack(list(found.values()), axis=1).tolist() == [list(row[5]) for row in rows]
