"""Kernels that write fewer bits: what they move, what their blocks wait for, and a launch that is hidden."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.datasets.launches import PROFILED
from calibration.datasets.text import as_text
from calibration.kernels.fit import counts, new_law
from calibration.kernels.inputs import Prepared, prepare
from calibration.kernels.levels import NO_NAMES
from calibration.kernels.model import CHAINED
from calibration.kernels.priors import priors_of
from calibration.kernels.quantizing import BYTES_PER_CYCLE, COMPILED_STEP, FROM_L2, FROM_MEMORY, WAIT
from tests.calibration.tables import blank_table

CORES, CLOCK = 132, 1.83e9  # H100


def one(m: int, k: int, framework: str, op: str = "scale_matrix", device: str = "h100-sxm") -> Prepared:
    shape = {"m": np.full(1, float(m)), "k": np.full(1, float(k))}
    table = blank_table("quantize", shape, np.full(1, device, dtype=object), "fp8")
    table.text["op"] = as_text(np.full(1, op, dtype=object))
    return prepare(dataclasses.replace(table, framework=np.full(1, framework, dtype=object)))


@pytest.mark.parametrize(
    ("framework", "op", "each"),
    [
        ("vllm", "scale_matrix", 3),
        ("trtllm", "scale_matrix", 3),
        ("trtllm", "compute_scale", 2),
        ("sglang", "scale_matrix", 21),
    ],
)
def test_bytes_of_an_element(framework: str, op: str, each: int) -> None:
    """A search for a scale writes none; elementary operations go to fp32 and back."""
    assert one(512, 4096, framework, op).demand.moved[0] == pytest.approx(each * 512 * 4096, rel=1e-6)


@settings(max_examples=15, deadline=None)
@given(m=st.integers(1, 33000), k=st.integers(1, 3000))
def test_rows_wait_in_turn(m: int, k: int) -> None:
    """Eight blocks of 256 threads at a time on a core, each of 16 elements a thread."""
    found = one(m, k, "vllm").on_chip[0]
    waits = -(-m // (CORES * 8)) * (1 + -(-k // 4096)) * WAIT / CLOCK
    assert found == pytest.approx(max(waits, 3.0 * m * k / (64 * CORES * CLOCK)), rel=1e-4)


@pytest.mark.parametrize(("k", "latency"), [(8192, FROM_L2), (65536, FROM_MEMORY)])
def test_a_search_waits_for_every_number_of_its_threads(k: int, latency: float) -> None:
    """1,024 blocks of 1,024 threads, two of them on a core of the H100, one on one of the L40S."""
    steps = 1 + 2048 * k // 1024**2
    assert one(2048, k, "trtllm", "compute_scale").on_chip[0] == pytest.approx(4 * steps * latency / CLOCK, rel=1e-4)
    shares = [one(2048, 65536, "trtllm", "compute_scale", device).on_chip[0] for device in ("h100-sxm", "l40s")]
    assert shares[1] / shares[0] == pytest.approx(8 / 4 * CLOCK / 2.52e9, rel=1e-4)


def test_a_launch_that_the_kernel_before_hides_halves_the_floor() -> None:
    chained, apart = (one(1, 32, framework) for framework in ("trtllm", "vllm"))
    assert (chained.chained[0], apart.chained[0]) == (1.0, 0.0)
    assert one(1, 32, "trtllm", device="l40s").chained[0] == one(1, 32, "trtllm", "compute_scale").chained[0] == 0.0
    means = {name: mean for name, (mean, _) in priors_of("quantize").scalars.items()}
    law = new_law(means, counts(NO_NAMES), 0)
    floors = [float(jax.vmap(law.parts)(each.inputs(NO_NAMES))[2][0]) for each in (apart, chained)]
    assert floors[0] - floors[1] == pytest.approx(CHAINED, rel=1e-5)


def product(
    m: int,
    k: int,
    kernel: str,
    framework: str = "vllm",
    dtype: str = "fp8",
    columns: int = 128,
    device: str = "h100-sxm",
) -> Prepared:
    shape = {name: np.full(1, float(size)) for name, size in (("batch", 1), ("m", m), ("n", columns), ("k", k))}
    table = blank_table("gemm", shape, np.full(1, device, dtype=object), dtype)
    named = {"framework": framework, "version": "0.24.0", "kernel": kernel}
    return prepare(dataclasses.replace(table, **{key: np.full(1, word, dtype=object) for key, word in named.items()}))


@settings(max_examples=15, deadline=None)
@given(m=st.integers(1, 33000), k=st.integers(16, 20000))
def test_rows_of_a_compiled_kernel_have_a_core_each(m: int, k: int) -> None:
    """A row a block, 2,048 elements a step, and two passes, unless its bytes take longer."""
    compiled = product(m, k, "CutlassFP8ScaledMMLinearKernel")
    same = product(m, k, "another")  # quantized by a kernel of CUDA, multiplied alike
    rounds, steps = -(-m // CORES), -(-k // COMPILED_STEP)
    waits = rounds * (1 + 2 * steps) * WAIT / CLOCK
    assert compiled.on_chip[0] == same.on_chip[0]
    assert compiled.before[0] == pytest.approx(max(same.before[0], waits), rel=1e-4)


@pytest.mark.parametrize(
    ("framework", "kernel", "dtype"),
    [
        ("vllm", "CutlassFp8BlockScaledMMKernel", "fp8_block"),
        ("sglang", "CutlassFP8ScaledMMLinearKernel", "bf16"),
        ("vllm", "torch.nn.functional.linear", "bf16"),
    ],
)
def test_no_other_product_waits_for_a_compiled_kernel(framework: str, kernel: str, dtype: str) -> None:
    short, tall = (product(rows, 128, kernel, framework, dtype) for rows in (1, 64))
    assert tall.on_chip[0] == pytest.approx(short.on_chip[0])
    assert tall.before[0] <= 64 * 128 * 3.0 / (BYTES_PER_CYCLE * CORES) / CLOCK * (1.0 + 1e-5)


@pytest.mark.parametrize(
    ("framework", "kernel", "dtype", "bytes_each"),
    [
        ("trtllm", "torch_flow", "fp8", 5.0),  # read once more for its maximum
        ("trtllm", "torch_flow", "fp8_block", 3.0),
        ("sglang", "sglang_sgl_kernel_fp8_scaled_mm", "fp8", 3.0),
        ("vllm", "torch.nn.functional.linear", "bf16", 0.0),
    ],
)
def test_a_product_starts_after_its_rows_are_quantized(
    framework: str, kernel: str, dtype: str, bytes_each: float
) -> None:
    """As cores move what L2 holds; the law adds it to what overlaps."""
    found = product(512, 2048, kernel, framework, dtype)
    cores = bytes_each * 512 * 2048 / (BYTES_PER_CYCLE * CORES) / CLOCK
    assert found.before[0] == pytest.approx(cores, rel=1e-4)
    means = {name: mean for name, (mean, _) in priors_of("gemm").scalars.items()}
    law = new_law(means, counts(NO_NAMES), 0)
    alone = dataclasses.replace(found, before=np.zeros(1, np.float32))
    late, early = (np.exp(float(jax.vmap(law)(each.inputs(NO_NAMES))[0])) for each in (found, alone))
    assert late - early == pytest.approx(cores, rel=1e-3, abs=1e-12)


def test_what_l2_does_not_hold_is_quantized_from_memory() -> None:
    """SGLang's rows a second time too, where those in flight exceed L2."""
    sizes = {"vllm": 3.0, "trtllm": 5.0, "sglang": 3.0 + 2.0}
    kernels = {"vllm": "another", "trtllm": "torch_flow", "sglang": "sglang_sgl_kernel_fp8_scaled_mm"}
    for framework, each in sizes.items():
        found = product(65536, 65536, kernels[framework], framework, device="l40s")
        assert found.before[0] == pytest.approx(each * 65536.0**2 / 864e9, rel=0.01)


def test_calls_of_pytorch_are_launched_by_the_host_for_products_too() -> None:
    """LLMCompass times them as NeuSight does; a profiler's rows are not, and on vector units the floor is a call's."""
    rows = (("torch", "bf16"), ("torch rocm", "fp16"), ("torch", "fp32"), ("hf_torch", "bf16"), (PROFILED, "bf16"))
    found = [np.asarray(product(64, 64, "", framework, dtype).eager)[0] for framework, dtype in rows]
    assert found == [1.0, 1.0, 0.0, 0.0, 0.0]
