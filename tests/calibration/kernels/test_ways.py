"""What names of software tell of a kernel, and what it then asks of a device."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from calibration.kernels.fit import new_law
from calibration.kernels.hardware import issued
from calibration.kernels.inputs import Prepared, prepare
from calibration.kernels.levels import LEVELS, NO_NAMES
from calibration.kernels.priors import priors_of
from tests.calibration.tables import blank_table

LINEAR = {"m": 4096.0, "n": 512.0, "k": 8192.0, "batch": 1.0}
PROJECTION = {"batch": 512.0, "heads": 16.0, "q_len": 1.0, "kv_len": 0.0}
GROUPED = {"batch": 64.0, "kv_heads": 1.0, "kv_len": 4096.0, "head_dim": 128.0, "window": 0.0}
EXPERTS = {"tokens": 2.0**15, "hidden": 4096.0, "inter": 4096.0, "topk": 2.0, "experts": 8.0, "tp": 1.0, "ep": 1.0}


def one(family: str, shape: dict[str, float], device: str = "h100-sxm", **names: str) -> Prepared:
    """One kernel with these names in place of the usual ones."""
    columns = {name: np.full(1, value) for name, value in shape.items()}
    table = blank_table(family, columns, np.full(1, device, dtype=object))
    return prepare(dataclasses.replace(table, **{key: np.full(1, name, dtype=object) for key, name in names.items()}))


@pytest.mark.parametrize("framework", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("dtype", ["fp8", "fp8_block"])
def test_a_layer_in_eight_bits_quantizes_first(framework: str, dtype: str) -> None:
    """By kernels of their own, so that the product is the same."""
    layer, product = (one("gemm", LINEAR, framework=framework, dtype=dtype, kernel=name) for name in ("linear", ""))
    assert layer.demand.moved[0] == product.demand.moved[0] and layer.waves[0] == product.waves[0]
    assert layer.before[0] > product.before[0] == 0.0


def test_a_layer_in_sixteen_bits_is_its_product() -> None:
    layer, product = (one("gemm", LINEAR, framework=name) for name in ("vllm", "sglang"))
    assert layer.demand.moved[0] == product.demand.moved[0] and layer.before[0] == product.before[0] == 0.0


@pytest.mark.parametrize(("family", "depth"), [("mla_pre", 128), ("mla_post", 512)])
@pytest.mark.parametrize("framework", ["sglang", "another"])
def test_projections_of_latent_attention_quantize_first_everywhere(family: str, depth: int, framework: str) -> None:
    """A block for each token and head, whose `depth` elements it reads in two bytes and writes in one; the product then
    reads one byte where it read two, also of the weights."""
    wide, narrow = (one(family, PROJECTION, framework=framework, dtype=dtype) for dtype in ("bf16", "fp8"))
    rows, weights = 512 * 16, 16 * 128 * 512
    assert narrow.demand.moved[0] - wide.demand.moved[0] == pytest.approx((3 - 1) * rows * depth - weights, rel=1e-5)
    assert narrow.waves[0] - wide.waves[0] == pytest.approx(rows / 132, abs=1.0)


@pytest.mark.parametrize(("heads", "times"), [(1.0, 1.0), (32.0, 1.0), (33.0, 33.0), (128.0, 128.0)])
def test_a_large_group_is_read_for_each_of_its_heads(heads: float, times: float) -> None:
    """From L2 only: the heads of a sequence run side by side."""
    shape = GROUPED | {"heads": heads}
    masked, grouped = (one("attention_decode", shape, framework=name) for name in ("trtllm", "vllm"))
    assert masked.on_chip[0] / grouped.on_chip[0] == pytest.approx(times, rel=1e-6)
    assert masked.demand.memory[0] == grouped.demand.memory[0]


@pytest.mark.parametrize(
    ("device", "kernel", "share"),
    [
        ("h100-sxm", "sglang_marlin_moe", 0.63),
        ("h100-sxm", "vllm_compressedtensorswna16MarlinMoE", 0.63),
        ("h100-sxm", "sglang_fused_moe_triton", 1.0),
        ("a100-sxm-80gb", "sglang_marlin_moe", 1.0),
    ],
)
def test_marlin_leaves_hoppers_fast_instructions_unused(device: str, kernel: str, share: float) -> None:
    """Of large products nearly all arithmetic is the matrix unit's."""
    named, plain = (one("moe", EXPERTS, device, kernel=name) for name in (kernel, "default"))
    assert plain.demand.compute[0] / named.demand.compute[0] == pytest.approx(share, rel=5e-3)
    assert named.demand.memory[0] == plain.demand.memory[0]


@pytest.mark.parametrize(
    ("architecture", "threads"),
    [("pascal-gp100", 64), ("pascal-gp104", 128), ("volta", 128), ("hopper", 128), ("cdna1", 64), ("cdna3", 64)],
)
def test_what_a_core_issues(architecture: str, threads: float) -> None:
    """Warp schedulers times 32 (whitepapers on the P100 and the GTX 1080), or four units of 16 lanes."""
    assert issued(architecture) == threads


def test_half_the_threads_issued_take_a_core_twice_the_cycles() -> None:
    """Softmax of the same rows; a P100 has 56 cores at 1.303 GHz, a P4 20 at 1.114."""
    p100, p4 = (one("softmax", {"rows": 4096.0, "columns": 1024.0}, name).core[0] for name in ("p100-pcie-16gb", "p4"))
    assert p100 / p4 == pytest.approx(2 * (20 * 1.114) / (56 * 1.303), rel=1e-3)


def test_products_in_blocks_of_eight_bits_are_launched_by_a_host() -> None:
    """vLLM's, by the kernels that the table names."""
    kernel = "CutlassFp8BlockScaledMMKernel"
    by_host = one("gemm", LINEAR, framework="vllm", dtype="fp8_block", kernel=kernel)
    replayed = one("gemm", LINEAR, framework="vllm", dtype="bf16", kernel="torch.nn.functional.linear")
    assert (by_host.eager[0], replayed.eager[0]) == (1.0, 0.0)
    assert one("gemm", LINEAR, framework="trtllm", dtype="fp8_block", kernel=kernel).eager[0] == 0.0
    assert one("gemm", LINEAR, "arc-pro-b60", framework="vllm", dtype="bf16").eager[0] == 1.0


def test_each_kernel_of_a_layer_takes_the_floor_or_the_host() -> None:
    """vLLM 0.14 quantizes by four operations, or by ten where scales are of blocks; a host launches each of two."""
    means = {name: mean for name, (mean, _) in priors_of("gemm").scalars.items()}
    law = new_law(means, dict.fromkeys(LEVELS, 0), habits=0)
    tiny = {"m": 1.0, "n": 16.0, "k": 16.0, "batch": 1.0}

    def time(dtype: str, version: str, kernel: str) -> float:
        data = one("gemm", tiny, framework="vllm", version=version, kernel=kernel, dtype=dtype)
        return float(np.exp(jax.vmap(law)(data.inputs(NO_NAMES)))[0])

    once, apart = time("bf16", "0.14", "vllm_default"), time("fp8", "0.14", "vllm_default")
    assert apart - once == pytest.approx(4 * 2e-6, rel=0.2)
    assert time("fp8_block", "0.14", "vllm_default") - apart == pytest.approx(6 * 2e-6, rel=0.1)
    by_host = time("fp8_block", "0.24", "DeepGemmFp8BlockScaledMMKernel")
    assert by_host == pytest.approx(2 * np.exp(means["host"]), rel=0.01)


def test_matrix_units_of_an_older_chip_take_more_energy_than_vector_units_do() -> None:
    """The geometric mean of 8LPP over 4N, 0.9 x 0.85 / 0.5 / 0.7 x 1.22, and of the A40's power per peak over the
    H100's, at its clock; fp32 keeps the energy of the process's multipliers."""
    old, new = (one("gemm", LINEAR, device=name) for name in ("a40", "h100-sxm"))
    left = [limit - 0.05 * area for limit, area in ((300.0, 628.0), (700.0, 814.0))]  # for operations [W]
    power = old.demand.power[0] * left[0] / (new.demand.power[0] * left[1])
    process, budget = 0.9 * 0.85 / 0.5 / 0.7 * 1.22, 300.0 / 149.7 * (1.83 / 1.74) ** 2 / (700.0 / 989.4)
    assert power == pytest.approx((process * budget) ** 0.5, rel=5e-3)  # three digits are written
    old, new = (one("gemm", LINEAR, device=name, dtype="fp32") for name in ("a40", "h100-sxm"))
    assert old.demand.power[0] * left[0] < 1.5 * new.demand.power[0] * left[1]


@pytest.mark.parametrize(("family", "wide", "depth"), [("mla_pre", 128, 128), ("mla_post", 64, 512)])
def test_products_of_heads_have_tiles_of_their_own(family: str, wide: int, depth: int) -> None:
    """16 heads of 64 tokens, 512 and 128 columns: a tile a core at most, the 16 of 128 columns as 32 of 64. Each waits
    for its steps."""
    found = one(family, PROJECTION | {"batch": 64.0}, "a100-sxm-80gb")
    assert found.demand.compute[0] == pytest.approx(2 * 64 * wide * depth * 108 / 312e12, rel=1e-3)
    assert found.on_chip[0] == pytest.approx(depth * 2 / 128 * 600 / 1.41e9, rel=1e-3)


def test_what_is_narrowed_is_held_once() -> None:
    """Written before the product and read by it: bytes that move twice, and take their place in L2 once."""
    narrow = one("mla_post", PROJECTION, dtype="fp8")
    held = np.exp(narrow.footprint[0]) * 50 * 2**20
    assert narrow.demand.moved[0] - held == pytest.approx(512 * 16 * 512, rel=1e-3)


def test_a_copy_of_a_rotary_embedding_is_the_librarys() -> None:
    """Both load one element a thread where PyTorch's operations load four."""
    shape = {"elements_in": 2.0**20, "elements_out": 2.0**20, "rows": 64.0}
    copy, own, another = (one("rope", shape, framework=name) for name in ("vidur", "vllm", "unknown"))
    assert copy.spelled["library"][0] == own.spelled["library"][0] == "vllm"
    assert copy.core[0] == own.core[0] == pytest.approx(4 * another.core[0], rel=1e-6)
