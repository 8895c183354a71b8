"""Prefill on the latents themselves: blocks and tiles counted one by one, and what stands beside their products."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.kernels import latent_prefill
from calibration.kernels.asked import Shape
from tests.calibration.kernels.test_ways import one

SHAPE = {"batch": 1.0, "heads": 16.0, "q_len": 64.0, "kv_len": 64.0}
TOGETHER = {"framework": "sglang", "kernel": "flash_attention"}
APART = {"framework": "sglang", "kernel": "triton"}


def asked(apart: float, **sizes: float) -> Shape:
    return {name: jnp.asarray(float(value)) for name, value in (SHAPE | sizes | {"apart": apart}).items()}


def counted(rows_of_query: int, queries: int, prefix: int, rows: int, keys: int) -> tuple[int, int]:
    """Blocks, and the tiles of their last rows' queries, one block after the other."""
    total = rows_of_query * queries
    last = [(min((block + 1) * rows, total) - 1) // rows_of_query for block in range(-(-total // rows))]
    return len(last), sum(-(-(query + 1) // keys) + -(-prefix // keys) for query in last)


@given(
    heads=st.sampled_from([1, 2, 8, 16, 64, 128]),
    queries=st.integers(1, 700),
    prefix=st.integers(0, 300),
    batch=st.integers(1, 9),
)
def test_blocks_of_64_rows_go_through_the_tiles_that_their_queries_see(
    heads: int, queries: int, prefix: int, batch: int
) -> None:
    x = asked(0.0, heads=heads, q_len=queries, kv_len=queries + prefix, batch=batch)
    blocks, tiles = counted(heads, queries, prefix, 64, 64)
    assert float(latent_prefill.blocks(x)) == batch * blocks
    assert float(latent_prefill.tiles(x)) == batch * tiles


@given(heads=st.integers(1, 128), queries=st.integers(1, 700))
def test_a_kernel_in_triton_takes_32_queries_of_a_head(heads: int, queries: int) -> None:
    x = asked(1.0, heads=heads, q_len=queries, kv_len=queries)
    blocks, tiles = counted(1, queries, 0, 32, 32)
    assert float(latent_prefill.blocks(x)) == heads * blocks
    assert float(latent_prefill.tiles(x)) == heads * tiles


@pytest.mark.parametrize(("names", "width"), [(TOGETHER, 2 * 512 + 64), (APART, 2 * 512 + 64), ({}, 192 + 128)])
def test_sglang_multiplies_the_latents_themselves(names: dict[str, str], width: int) -> None:
    """Pairs of 64 queries with each other, by as many elements."""
    assert one("mla_prefill", SHAPE, **names).demand.flops[0] == pytest.approx(2 * 16 * 64 * 65 / 2 * width, rel=1e-6)


def test_a_long_sequence_takes_as_long_as_its_last_block() -> None:
    few, many = (one("mla_prefill", SHAPE | {"batch": batch}, **TOGETHER) for batch in (1.0, 8.0))
    assert few.core[0] == many.core[0]
    assert few.core[0] == pytest.approx(64 * 64 * 2 * 1088 * 132 / 989.4e12, rel=1e-3)


@pytest.mark.parametrize("device", ["h100-sxm", "l40s"])
def test_triton_waits_for_each_tile(device: str) -> None:
    found = one("mla_prefill", SHAPE | {"q_len": 32.0, "kv_len": 32.0}, device, **APART)
    clock = {"h100-sxm": 1.83e9, "l40s": 2.52e9}[device]
    peak = {"h100-sxm": 989.4e12 / 132, "l40s": 362e12 / 142}[device]
    assert found.core[0] == pytest.approx(5000 / clock + 32 * 32 * 2 * 1088 / peak, rel=3e-3)


def test_a_narrow_cache_is_written_anew_in_a_kernel_of_its_own() -> None:
    wide, narrow = (one("mla_prefill", SHAPE, **TOGETHER, cache=cache) for cache in ("bf16", "fp8"))
    assert narrow.core[0] == wide.core[0]
    assert narrow.waves[0] - wide.waves[0] == pytest.approx(3.0 * 0.45, rel=1e-5)


def test_tensorrt_llm_narrows_what_it_multiplies_on_hopper() -> None:
    """Two bytes of every query, key and value are read, and one written; attention then moves one where it moved two of
    them and of the output, and multiplies twice as fast."""
    names = {"framework": "trtllm", "kernel": "default"}
    wide, narrow = (one("mla_prefill", SHAPE, **names, cache=cache) for cache in ("bf16", "fp8"))
    operands, outputs = 16 * 64 * (192 + 192 + 128), 16 * 64 * 128
    assert narrow.demand.moved[0] - wide.demand.moved[0] == pytest.approx(2 * operands - outputs, rel=1e-5)
    assert wide.demand.compute[0] / narrow.demand.compute[0] == pytest.approx(2.0, rel=0.05)
    before = [one("mla_prefill", SHAPE, "l40s", **names, cache=cache) for cache in ("bf16", "fp8")]
    assert np.ptp([each.demand.moved[0] for each in before]) == 0.0
