"""What runs before prefill attention and is timed with it, against whole numbers."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration.kernels.cache_writing import writing
from calibration.kernels.formats import Formats
from calibration.kernels.hardware import load_hardware
from calibration.kernels.inputs import prepare
from jaxperf.core.formats import number_format
from tests.calibration.tables import blank_table

SHAPE = {"batch": 8.0, "q_len": 128.0, "prefix": 0.0, "heads": 8.0, "kv_heads": 4.0, "head_dim": 128.0, "window": 0.0}
TOKENS, HEAD = 1024, 128
H100, A100 = 1.83e9 * 132, 1.41e9 * 108  # cycles of all cores [1/s]


def beside(framework: str, kernel: str = "", device: str = "h100-sxm", cache: str = "bf16", **sides: float) -> float:
    """Time beside the products [s]."""
    columns = {name: np.full(1, value) for name, value in (SHAPE | sides).items()}
    table = blank_table("attention_prefill", columns, np.full(1, device, dtype=object))
    names = {"framework": framework, "kernel": kernel, "cache": cache}
    table = dataclasses.replace(table, **{key: np.full(1, name, dtype=object) for key, name in names.items()})
    return float(prepare(table).special[0])


@pytest.mark.parametrize(("heads", "threads"), [(1.0, 128), (4.0, 512), (8.0, 512)])
def test_vllm_gives_each_token_a_block_of_a_thread_an_element_up_to_512(heads: float, threads: int) -> None:
    more = beside("vllm", kv_heads=heads) - beside("unknown", kv_heads=heads)
    assert more == pytest.approx(TOKENS * threads * 3.0 / H100, rel=1e-4)
    narrow = beside("vllm", kv_heads=heads, cache="fp8") - beside("unknown", kv_heads=heads, cache="fp8")
    assert narrow == pytest.approx(TOKENS * threads * 4.3 / H100, rel=1e-4)


@pytest.mark.parametrize("rewriting", [0.0, 1.0])
def test_keys_and_values_and_rotated_queries_are_read_and_written_once(rewriting: float) -> None:
    """At 20 bytes a core and cycle from L2; what exceeds half of it from memory."""
    hardware = load_hardware(["a100-sxm-80gb"], ())
    hardware = jax.tree.map(lambda leaf: leaf[0], hardware)
    sixteen = number_format("bf16")
    shape = {name: jnp.asarray(size) for name, size in SHAPE.items()} | {"writing": 1.0, "rewriting": rewriting}
    few, many = (
        float(writing(shape | {"batch": jnp.asarray(batch)}, hardware, Formats(*3 * (sixteen,)), sixteen))
        for batch in (8.0, 8000.0)
    )
    moved = TOKENS * HEAD * 4 * (2 * 4 + rewriting * 8)
    assert few == pytest.approx(moved / 20 / A100, rel=1e-3)
    assert many == pytest.approx((1000 * moved - 20e6) / 2.039e12, rel=0.02)


def test_flash_attention_3_turns_values_of_eight_bits_in_shared_memory() -> None:
    """128 keys of 128 elements, read and written at 128 bytes a cycle, for the one block of a core; SGLang has cast the
    query before: 9 bytes an element in place of 8."""
    one = {"batch": 132.0, "heads": 1.0, "kv_heads": 1.0}
    turned, usual = (beside("sglang", "fa3", cache=cache, **one) for cache in ("fp8", "bf16"))
    assert turned - usual == pytest.approx((256 + 128 * HEAD * (9 - 8) / 20) / 1.83e9, rel=1e-3)


def test_no_kernel_of_another_maker_writes_the_cache() -> None:
    assert beside("vllm", device="mi300x") == beside("unknown", device="mi300x")
