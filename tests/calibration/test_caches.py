"""A latent cache in 8 bits is read as it is, or by some kernels of one engine written anew in 16 bits before."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from calibration.inputs import prepare
from tests.calibration.kernels import blank_table

SHAPE = {"batch": np.full(1, 32.0), "heads": np.full(1, 16.0), "kv_len": np.full(1, 8192.0), "q_len": np.zeros(1)}
LATENTS = 32 * 8192 * (512 + 64)


def moved(framework: str, kernel: str, cache: str) -> float:
    """Bytes of one absorbed decode on an H100, queries in bf16."""
    table = blank_table("mla_decode", SHAPE, np.full(1, "h100-sxm", dtype=object))
    names = {"framework": framework, "kernel": kernel, "cache": cache}
    table = dataclasses.replace(table, **{name: np.full(1, text, dtype=object) for name, text in names.items()})
    return float(prepare(table).demand.moved[0])


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
