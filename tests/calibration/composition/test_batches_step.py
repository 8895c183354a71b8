"""The step of a fixed batch: bounds that hold exactly, what each scalar may change, and the power limit by hand."""

from __future__ import annotations

import functools
import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hwspecs
from calibration.composition import batches_step
from calibration.composition.batches_points import points_of, usual_efficiency
from calibration.composition.batches_rows import Batch
from calibration.composition.batches_step import JOULE, PRIORS, SHARPNESS, Point, step_times
from calibration.kernels.parameters import Parameters
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.models.layers import transformer

MODEL = "llama-3.2-1b"  # 16 layers, 2048 wide, 32 heads of 64, 8 KV heads, 8192 intermediate, tied 128256-row table
MATRIX_ELEMENTS = 16 * (2048 * (2048 + 2 * 512) + 2048 * 2048 + 3 * 2048 * 8192) + 128256 * 2048
# Every efficiency 1, no overhead, no power but the arithmetic's.
IDEAL = {**dict.fromkeys(PRIORS, 0.0), **dict.fromkeys(("launch", "step", "sequence", "static"), -60.0)}
KINDS = ("ada", "ampere")
COLD = {JOULE + kind: -80.0 for kind in KINDS}  # arithmetic takes no energy
UNLIMITED = {**IDEAL, **COLD}


@functools.cache
def network():
    return load_model(MODEL), transformer(load_model(MODEL))


@functools.cache
def compiled():
    model = network()[1]
    return jax.jit(lambda scalars, point: step_times(model, scalars, point))


def point(device: str = "l20", prompts: tuple[int, ...] = (300, 200), output: int = 100, ranks: int = 1) -> Point:
    batch = Batch(0, device, ranks, MODEL, "bf16", "sglang", prompts, output, (math.nan, math.nan))
    specs = {device: hwspecs.load(device)}
    return points_of([batch], [network()[0]], specs, Parameters({}, {}), (), KINDS, most_prompts=8)[0]


def times(scalars: dict[str, float], at: Point) -> np.ndarray:
    return np.asarray(compiled()({name: as_float(value) for name, value in scalars.items()}, at))


def test_decode_streams_weights_and_cache_once() -> None:
    """With every efficiency 1 the step is at least its bytes over the bandwidth, and one token's work adds little."""
    spec = hwspecs.load("l20")
    cache = 2 * 16 * 8 * 64 * 2  # bytes a token
    context = 300 + 200 + 2 * 50
    bound = (2 * MATRIX_ELEMENTS + cache * context) / spec.memory_bandwidth.si
    found = times(UNLIMITED, point())[1]
    assert bound < found < 1.02 * bound


def test_prefill_multiplies_every_weight_with_every_token() -> None:
    """At 0.95 of the peak, the best that a product may be, and with the last tokens' logits only."""
    spec = hwspecs.load("l20")
    prompts = (4096, 2048)
    layers = MATRIX_ELEMENTS - 128256 * 2048
    linear = 2 * layers * sum(prompts) / (0.95 * spec.peak_flops["bf16"].si)
    attention = 4 * 32 * 64 * 16 * sum(p * (p + 1) // 2 for p in prompts) / spec.peak_flops["bf16"].si
    at = point(prompts=prompts)._replace(matrix=as_float(1.0))
    found = times(UNLIMITED, at)[0]
    assert linear + attention < found < 1.15 * (linear + attention)  # waves, norms, rotary embedding, cache writes


@settings(max_examples=10)
@given(st.permutations((700, 10, 300, 1200)))
def test_the_order_of_the_prompts_does_not_matter(prompts: list[int]) -> None:
    expected = times(UNLIMITED, point(prompts=(700, 10, 300, 1200)))
    assert times(UNLIMITED, point(prompts=tuple(prompts))) == pytest.approx(expected, rel=1e-12)


def test_uneven_prompts_of_as_many_tokens_cost_prefill_more_and_decode_the_same() -> None:
    even, uneven = (times(UNLIMITED, point(prompts=prompts)) for prompts in ((4000, 4000), (7990, 10)))
    assert uneven[0] > even[0]
    assert uneven[1] == pytest.approx(even[1], rel=1e-12)


@pytest.mark.parametrize("name", ["matrix", "gddr", "inline_ecc", "attention", "cache_reads", "elementwise"])
def test_a_higher_efficiency_is_never_slower(name: str) -> None:
    at = point(prompts=(3000, 2000))._replace(matrix=as_float(0.5))
    slow, fast = (times({**UNLIMITED, name: value}, at) for value in (-1.0, -0.2))
    assert (fast <= slow).all() and (fast < slow).any()


def test_memory_of_another_kind_is_not_touched() -> None:
    assert times({**UNLIMITED, "hbm": -1.0}, point()) == pytest.approx(times(UNLIMITED, point()), rel=1e-12)
    plain = point("rtx-6000-ada")
    assert times({**UNLIMITED, "inline_ecc": -1.0}, plain) == pytest.approx(times(UNLIMITED, plain), rel=1e-12)


def test_overheads_are_added() -> None:
    more = {**UNLIMITED, "step": math.log(3e-3), "sequence": math.log(1e-4)}
    assert times(more, point()) - times(UNLIMITED, point()) == pytest.approx([3e-3, 3e-3 + 2e-4], rel=1e-9)


def test_the_power_limit_is_the_norm_of_both_times() -> None:
    """A board of 275 W whose 92 cores take 1 W each has 183 W for arithmetic."""
    spec, at = hwspecs.load("l20"), point(prompts=(4096, 2048))
    busy = times(UNLIMITED, at)[0]
    joule = 1e-10  # far above what the board has
    hot = {**UNLIMITED, "static": 0.0, JOULE + "ada": math.log(joule)}
    attention = 4 * 32 * 64 * 16 * sum(p * (p + 1) // 2 for p in (4096, 2048))
    flops = 2 * (MATRIX_ELEMENTS - 128256 * 2048) * 6144 + 2 * 128256 * 2048 * 2 + attention
    energy = flops * joule / (spec.tdp.si - spec.num_cores.si)
    expected = (busy**SHARPNESS + energy**SHARPNESS) ** (1.0 / SHARPNESS)
    # Norms and rotary embedding are a few operations an element beside thousands.
    assert times(hot, at)[0] == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("device", "limited"), [("l20", True), ("rtx-pro-6000", True), ("h100-sxm", False)])
def test_only_boards_with_gddr_are_held_back(device: str, limited: bool) -> None:
    hot = {**IDEAL, **dict.fromkeys(COLD, math.log(1e-10))}
    ratio = times(hot, point(device))[0] / times(UNLIMITED, point(device))[0]
    assert (ratio > 2.0) == limited
    assert limited or ratio == pytest.approx(1.0, abs=1e-12)


def test_a_kind_never_measured_has_the_mean_of_those_known() -> None:
    assert np.asarray(point("rtx-pro-6000").kind).tolist() == [0.5, 0.5]
    assert np.asarray(point("l40s").kind).tolist() == [1.0, 0.0]
    assert np.asarray(point("a100-sxm-80gb").kind).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("device", "low", "high"),
    [("rtx-4090", 0.94, 0.96), ("a100-sxm-80gb", 0.80, 0.85), ("h100-sxm", 0.74, 0.79), ("l20", 0.94, 0.96)],
)
def test_cores_with_more_arithmetic_reach_less_of_it(device: str, low: float, high: float) -> None:
    """Large products of the shared tables: RTX 4090 0.95-1.0 of the peak, A100 0.79-0.84, H100 0.71-0.78."""
    assert low < usual_efficiency(hwspecs.load(device), "bf16") < high


def test_the_same_model_is_compiled_once() -> None:
    times(UNLIMITED, point())
    before = compiled()._cache_size()
    times(UNLIMITED, point("a40", prompts=(5, 6, 7), output=3))
    assert compiled()._cache_size() == before
    assert batches_step.BEST_MATRIX < 1.0
