"""What prefill kernels do beside their products, and which queries their blocks take, against whole numbers."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from calibration.datasets.schema import KernelTable
from calibration.kernels.inputs import Prepared, prepare
from calibration.kernels.point import load_kinds, whole_shape
from calibration.kernels.prefill import prefill_of
from calibration.kernels.prefill_beside import beside_products_time
from tests.calibration.tables import blank_table

SHAPE = {"batch": 1.0, "q_len": 128.0, "prefix": 0.0, "heads": 1.0, "kv_heads": 1.0, "head_dim": 128.0, "window": 0.0}
CLOCK = {"h100-sxm": 1.83e9, "l40s": 2.52e9}


def row(
    device: str, framework: str, kernel: str, dtype: str = "bf16", cache: str = "bf16", **sides: float
) -> KernelTable:
    columns = {name: np.full(1, value) for name, value in (SHAPE | sides).items()}
    table = blank_table("attention_prefill", columns, np.full(1, device, dtype=object))
    names = {"framework": framework, "kernel": kernel, "dtype": dtype, "cache": cache, "version": "0.24.0"}
    return dataclasses.replace(table, **{key: np.full(1, name, dtype=object) for key, name in names.items()})


def one(device: str, framework: str, kernel: str, *formats: str, **sides: float) -> Prepared:
    return prepare(row(device, framework, kernel, *formats, **sides))


def cycles(device: str, framework: str, kernel: str, *formats: str, **sides: float) -> float:
    """Of the busiest core beside its products, without what writes the cache before them."""
    table = row(device, framework, kernel, *formats, **sides)
    kind = load_kinds(table).rows(0)
    x = whole_shape(kind, {name: jnp.asarray(column[0]) for name, column in table.shape.items()})
    return float(beside_products_time(prefill_of("attention_prefill", x), kind.hardware)) * CLOCK[device]


@pytest.mark.parametrize(("size", "rows"), [(128.0, 128), (256.0, 64)])
def test_each_warp_of_flashinfer_turns_all_keys_and_values_of_an_8_bit_cache(size: float, rows: int) -> None:
    """An eighth of a cycle an element, whatever the rows of a block."""
    ask = ("l40s", "vllm", "vllm_flashinfer_fiprefill", "bf16")
    sides = {"q_len": float(rows), "head_dim": size}
    assert cycles(*ask, "fp8", **sides) - cycles(*ask, "bf16", **sides) == pytest.approx(rows * 2 * size / 8, rel=1e-3)


def test_triton_of_sglang_turns_8_bit_keys_and_values_on_hopper_alone() -> None:
    sides = {"q_len": 32.0, "head_dim": 512.0}
    more = [cycles(name, "sglang", "triton", "bf16", "fp8", **sides) for name in ("h100-sxm", "l40s")]
    usual = [cycles(name, "sglang", "triton", "bf16", "bf16", **sides) for name in ("h100-sxm", "l40s")]
    assert np.subtract(more, usual).tolist() == pytest.approx([64 * 1024 / 8, 0.0], rel=1e-3)


def test_small_blocks_of_flashinfer_wait_for_what_turns_their_first_tile() -> None:
    """64 queries multiply one tile; its 128 keys' elements take 0.6 cycles each beside the eighth."""
    ask = ("l40s", "vllm", "vllm_flashinfer_fiprefill", "bf16")
    more = cycles(*ask, "fp8", q_len=64.0) - cycles(*ask, "bf16", q_len=64.0)
    assert more == pytest.approx(64 * 256 / 8 + 0.6 * 128 * 256, rel=1e-3)


@pytest.mark.parametrize(("queries", "merged"), [(128.0, 0), (256.0, 1)])
def test_flashinfer_merges_what_blocks_left_that_share_keys(queries: float, merged: int) -> None:
    """680 cycles of a core for each query and head, and the start of a kernel beside half a block's; no block has fewer
    than 128 keys."""
    found = one("l40s", "sglang", "flashinfer", q_len=queries)
    assert found.waves[0] == pytest.approx((0.5 + merged) * found.clock[0], rel=1e-6)
    few, many = (cycles("l40s", "sglang", "flashinfer", q_len=queries, batch=b) for b in (1.0, 2.0))
    assert many - few == pytest.approx(merged * 680 * queries / 142, rel=1e-3)


def test_a_single_query_of_a_captured_graph_is_merged_whatever_its_keys() -> None:
    waves = [one("l40s", name, "flashinfer", q_len=1.0).waves[0] for name in ("vllm", "sglang")]
    assert waves[0] > waves[1]


def test_blocks_that_were_planned_for_two_heads_a_key_head_take_the_first_queries() -> None:
    """Eight heads: a quarter of the queries, whose products and bytes are those of a shorter sequence."""
    many = {"heads": 8.0 * 142, "kv_heads": 142.0, "batch": 64.0}
    planned = one("l40s", "vllm", "vllm_flashinfer", "bf16", "fp8", q_len=1024.0, **many)
    short = one("l40s", "vllm", "vllm_flashinfer_fiprefill", "bf16", "fp8", q_len=256.0, **many)
    for name in ("power", "memory"):
        assert getattr(planned.demand, name) == pytest.approx(getattr(short.demand, name), rel=1e-6)
    assert planned.core == pytest.approx(short.core, rel=1e-6)


def test_blocks_that_were_planned_for_two_heads_a_key_head_have_no_queries_of_one() -> None:
    """1,024 queries: 8 blocks of 128 to 1,024 keys, and 8 of 1,024 without any in half of the time."""
    many = {"heads": 142.0 * 8, "kv_heads": 142.0 * 8, "q_len": 1024.0}
    planned, usual = (one("l40s", "vllm", f"vllm_flashinfer{end}", "bf16", "fp8", **many) for end in ("", "_fiprefill"))
    assert planned.core / usual.core == pytest.approx((128 * 36 + 8 * 1024 / 2) / (128 * 36), rel=1e-5)
    pair = {"heads": 142.0 * 8, "kv_heads": 142.0 * 4, "q_len": 1024.0}
    same = [one("l40s", "vllm", f"vllm_flashinfer{end}", "bf16", "fp8", **pair) for end in ("", "_fiprefill")]
    assert same[0].core == same[1].core


@pytest.mark.parametrize(("size", "steps"), [(128.0, 5), (256.0, 18)])
def test_flash_attention_of_vllm_adds_8_bit_products_twice(size: float, steps: int) -> None:
    """Five instructions a number, or 18 where two sums of 128 queries exceed the registers, 128 threads at a time."""
    both = [cycles("h100-sxm", name, "fa3", "bf16", "fp8", head_dim=size) for name in ("vllm", "sglang")]
    assert both[0] - both[1] == pytest.approx(128 * size * steps / 128, rel=1e-3)
    wide = [cycles("h100-sxm", name, "fa3", head_dim=size) for name in ("vllm", "sglang")]
    assert wide[0] == wide[1]


def test_products_in_the_format_of_the_cache_take_its_power() -> None:
    cast, own = (one("h100-sxm", "sglang", "fa3", dtype, "fp8").demand.power for dtype in ("bf16", "fp8"))
    assert cast == own


def test_triton_waits_for_8_bit_tiles_half_as_long() -> None:
    """3,000 cycles, and 25 bytes of 128 keys and values of 64 elements in one."""
    wide, narrow = (cycles("l40s", "sglang", "triton", name, name, head_dim=64.0) for name in ("bf16", "fp8"))
    assert wide - narrow == pytest.approx(128 * 128 / 25, rel=1e-2)


def test_blocks_that_spill_pass_over_hidden_tiles_more_slowly() -> None:
    """Of 16-bit keys on Hopper: 14,000 cycles for 3,700."""
    sides = {"q_len": 16384.0, "head_dim": 256.0, "window": 128.0, "heads": 132.0, "kv_heads": 132.0}
    wide, narrow = (cycles("h100-sxm", "sglang", "triton", name, name, **sides) for name in ("bf16", "fp8"))
    hidden = 128 * 129 - 128 * 4 + 2  # of tiles of 64 keys, but those that a block sees
    assert (wide - narrow) / (14000 - 3700) == pytest.approx(hidden, rel=0.05)
