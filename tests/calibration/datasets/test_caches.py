"""Which way a latent cache is read: in 8 bits or 16, once for all heads or for each 16, in parts or as a whole."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from calibration.kernels.inputs import Prepared, prepare
from tests.calibration.tables import blank_table

BATCH, HEADS, KEYS = 32, 128, 8192
LATENTS = BATCH * KEYS * (512 + 64)


def prepared(device: str, framework: str, kernel: str, cache: str, batch: int = BATCH, heads: int = HEADS) -> Prepared:
    """One absorbed decode, queries in bf16."""
    shape = {"batch": np.full(1, float(batch)), "heads": np.full(1, float(heads)), "kv_len": np.full(1, float(KEYS))}
    table = blank_table("mla_decode", shape | {"q_len": np.zeros(1)}, np.full(1, device, dtype=object))
    names = {"framework": framework, "kernel": kernel, "cache": cache}
    table = dataclasses.replace(table, **{name: np.full(1, text, dtype=object) for name, text in names.items()})
    return prepare(table)


def moved(framework: str, kernel: str, cache: str, device: str = "h100-sxm") -> float:
    """The bytes of one for 16 heads."""
    return float(prepared(device, framework, kernel, cache, heads=16).demand.moved[0])


@pytest.mark.parametrize("kernel", ["flash_attention", "FA3", "flashinfer"])
def test_a_converted_cache_is_read_written_and_read_again(kernel: str) -> None:
    """One byte read, two written, two read, where a kernel for 8 bits reads one."""
    extra = moved("sglang", kernel, "fp8") - moved("trtllm", kernel, "fp8")
    assert extra == pytest.approx(4 * LATENTS, rel=1e-6)


@pytest.mark.parametrize(("framework", "kernel"), [("sglang", "triton"), ("trtllm", "flash_attention"), ("", "")])
def test_others_read_what_is_cached(framework: str, kernel: str) -> None:
    wide, narrow = (moved(framework, kernel, cache) for cache in ("bf16", "fp8"))
    assert wide - narrow == pytest.approx(LATENTS, rel=1e-6)


def test_a_cache_as_wide_as_the_queries_is_not_converted() -> None:
    assert moved("sglang", "fa3", "bf16") == moved("trtllm", "default", "bf16")


@pytest.mark.parametrize(("heads", "times"), [(1, 1), (16, 1), (17, 2), (128, 8)])
def test_a_triton_block_takes_16_heads(heads: int, times: int) -> None:
    """So many sequences that none is divided, and nothing but latents and queries moves."""
    apart, together = (
        float(prepared("h100-sxm", "vllm", kernel, "bf16", batch=1024, heads=heads).demand.moved[0])
        for kernel in ("triton", "flash_attention")
    )
    assert apart - together == pytest.approx((times - 1) * 1024 * KEYS * (512 + 64) * 2, rel=1e-5, abs=1.0)


@pytest.mark.parametrize("device", ["a100-sxm-80gb", "l40s"])
def test_a_prefill_kernel_reads_16_bits_whatever_is_cached(device: str) -> None:
    assert moved("trtllm", "default", "fp8", device) == moved("trtllm", "default", "bf16", device)


def test_an_undivided_sequence_takes_a_core_the_cycles_of_its_keys() -> None:
    """An A100's core: 2,048 FLOP a cycle in bf16 (312 TFLOP/s at 1.41 GHz, 108 cores) and 128 bytes from shared memory.

    Two blocks share 64 rows of a key, 139,264 FLOP, and what each of four warps loads, its 576 elements for the scores
    and 512 for the values; each waits for a tile of 64 keys.
    """
    cycles = (64 * 2 * (576 + 512) / 2048 + 4 * (576 + 512) * 2 / 128) / 2 + 5900 / 64
    found = prepared("a100-sxm-80gb", "trtllm", "default", "bf16", batch=1)
    assert found.core[0] * 1.41e9 / KEYS == pytest.approx(cycles, rel=2e-3)


@pytest.mark.parametrize(("batch", "heads", "products", "waits"), [(54, 64, 1, 1), (108, 64, 2, 1), (55, 128, 3, 2)])
def test_two_undivided_blocks_wait_together_on_an_a100(batch: int, heads: int, products: int, waits: int) -> None:
    own = (64 * 2 * (576 + 512) / 2048 + 4 * (576 + 512) * 2 / 128) / 2
    found = prepared("a100-sxm-80gb", "trtllm", "default", "bf16", batch=batch, heads=heads)
    assert found.core[0] * 1.41e9 / KEYS == pytest.approx(products * own + waits * 5900 / 64, rel=2e-3)


def test_a_converted_cache_takes_a_core_its_elements() -> None:
    """H100: 132 cores at 1.83 GHz."""
    found = prepared("h100-sxm", "sglang", "fa3", "fp8")
    assert found.special[0] == pytest.approx(LATENTS / (1.2 * 132 * 1.83e9), rel=1e-5)
    assert prepared("h100-sxm", "sglang", "fa3", "bf16").special[0] == 0.0


def test_what_fills_a_core_hides_no_start() -> None:
    assert prepared("h100-sxm", "vllm", "triton", "bf16").alone[0] == 1.0
