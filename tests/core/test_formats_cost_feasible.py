"""Number formats, costs and their limiter, reasons of infeasibility, and bounded efficiencies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.core.cost import Cost, Limiter
from jaxperf.core.efficiency import (
    FAMILIES,
    ConstantEfficiency,
    Efficiencies,
    assumed_efficiencies,
    constant_efficiency,
)
from jaxperf.core.feasible import SENTENCES, Reason, reason_bits, sentences
from jaxperf.core.formats import (
    COMPUTE_FORMATS,
    FORMAT_ALIASES,
    FORMATS,
    STAND_INS,
    NumberFormat,
    format_name,
    number_format,
)
from tests.devices import DEVICES, H100

durations = st.floats(0.0, 1e3, allow_subnormal=False)


def cost(time: float, compute: float, memory: float, network: float, latency: float) -> Cost:
    return Cost(*(jnp.asarray(x) for x in (time, compute, memory, network, latency, 1.0, 2.0)))


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_multiplies_in_an_arithmetic_of_the_device(name: str) -> None:
    facts, arrays = FORMATS[name], number_format(name)
    assert COMPUTE_FORMATS[int(arrays.compute)] == facts.compute
    assert float(arrays.itemsize) == facts.itemsize and float(arrays.operand_itemsize) == facts.operand_itemsize
    assert (
        facts.activations in FORMATS
        and FORMATS[facts.activations].itemsize == facts.operand_itemsize
        or (facts.operand_itemsize < FORMATS[facts.activations].itemsize)
    )


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("fp64", 8.0),
        ("bf16", 2.0),
        ("fp8", 1.0),
        ("fp8_wo", 1.0),
        ("int8_wo", 1.0),
        ("int8_group", 1.0 + 2.0 / 128.0),
        ("fp4", 0.5625),  # NVFP4: an fp8 scale per 16 elements
        ("fp4_wo", 0.5625),
        ("mxfp8", 1.0 + 1.0 / 32.0),  # OCP MX 1.0: an 8-bit scale per 32 elements
        ("mxfp6", 0.75 + 1.0 / 32.0),
        ("mxfp4", 0.5 + 1.0 / 32.0),
        ("mxfp4_wo", 0.5 + 1.0 / 32.0),
        ("mxfp4_fp8", 0.5 + 1.0 / 32.0),
        ("int4", 0.515625),
        ("int4_fp8", 0.515625),
        ("int4_asym", 0.51953125),  # GPTQ and AWQ: fp16 scale and 4-bit zero per 128 elements
        ("int4_g32", 0.5625),  # Kimi K2 Thinking: a scale of 16 bits per 32 elements
        ("INT4-asym-g64", 0.5390625),
        ("int4_asym_g64s32", 0.5625),  # MLX: scale and bias of 16 bits per 64 elements
        ("int8_group_g64", 1.03125),
        ("int3", 0.390625),
        ("int6_asym_g64s32", 0.8125),
    ],
)
def test_stored_bytes_include_the_scales(name: str, stored: float) -> None:
    assert float(number_format(name).itemsize) == stored


@pytest.mark.parametrize("alias", FORMAT_ALIASES)
def test_aliases_and_spellings_name_the_same_format(alias: str) -> None:
    assert format_name(alias) == format_name(f" {alias.upper().replace('_', '-')} ") == FORMAT_ALIASES[alias]


def test_a_number_format_passes_through_and_an_unknown_name_says_what_is_allowed() -> None:
    made = NumberFormat(1.0, 1.0, 3)
    assert number_format(made) is made
    with pytest.raises(InputError, match="fp7.*allowed here: .*bf16"):
        number_format("fp7")
    with pytest.raises(InputError, match="tf32"):
        format_name("tf32", ("bf16", "fp8"))
    for wrong in ("int4_g0", "bf16_g32", "int4_g32s", "int4_g"):
        with pytest.raises(InputError, match="allowed here"):
            number_format(wrong)
    assert "int4_g32" in FORMATS and "int4_g32" not in list(FORMATS)


@pytest.mark.parametrize("name", COMPUTE_FORMATS)
def test_stand_ins_are_at_least_as_wide(name: str) -> None:
    width = {"fp64": 64, "fp32": 32, "tf32": 19, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp4": 4, "int4": 4}
    assert all(width[stand_in] >= width[name] for stand_in in STAND_INS[name])


@given(durations, durations, durations, durations)
def test_the_limiter_is_the_busiest_resource_and_the_first_of_equals(a: float, b: float, c: float, d: float) -> None:
    assert int(cost(1.0, a, b, c, d).limiter) == int(np.argmax([a, b, c, d]))


def test_limiters_are_numbered_in_the_order_of_the_busy_times() -> None:
    assert [Limiter.COMPUTE, Limiter.MEMORY, Limiter.NETWORK, Limiter.LATENCY] == [0, 1, 2, 3]


@given(durations, durations)
def test_costs_add_and_repeat_leaf_by_leaf(a: float, b: float) -> None:
    one, two = cost(a, b, a, b, a), cost(b, a, b, a, b)
    for got, x, y in zip(*(jax.tree.leaves(tree) for tree in (one + two, one, two)), strict=True):
        assert float(got) == float(x) + float(y)
    for got, x in zip(jax.tree.leaves(one * jnp.asarray(3.0)), jax.tree.leaves(one), strict=True):
        assert float(got) == 3.0 * float(x)
    assert jax.tree.leaves(jnp.asarray(3.0) * one.time) == [3.0 * a]


@given(st.sets(st.sampled_from(list(Reason))))
def test_bits_and_sentences_tell_exactly_the_failed_checks(failed: set[Reason]) -> None:
    bits = int(reason_bits({reason: jnp.asarray(reason in failed) for reason in Reason}))
    assert bits == sum(failed)
    assert sentences(bits) == [SENTENCES[reason] for reason in Reason if reason in failed]


def test_every_reason_has_its_own_bit_and_its_own_sentence() -> None:
    assert sorted(Reason) == [1 << position for position in range(len(Reason))]
    assert set(SENTENCES) == set(Reason) and len(set(SENTENCES.values())) == len(Reason)


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_efficiency_is_above_zero_and_at_most_one_for_any_log_odds(
    dtype: type, compute: float, memory: float
) -> None:
    with np.errstate(over="ignore"):
        logits = jnp.asarray(np.asarray([compute, memory], dtype))
    found = ConstantEfficiency(logits[0], logits[1])(H100, H100)
    assert 0.0 < float(found.compute) <= 1.0 and 0.0 < float(found.memory) <= 1.0


@given(st.floats(1e-5, 1.0), st.floats(1e-5, 1.0))
def test_a_constant_efficiency_returns_the_fractions_it_was_made_of(compute: float, memory: float) -> None:
    found = constant_efficiency(compute, memory)(H100, H100)
    np.testing.assert_allclose([found.compute, found.memory], [compute, memory], rtol=1e-10)
    if compute == 1.0:
        assert float(found.compute) == 1.0


def fractions(efficiencies: Efficiencies) -> dict[str, float]:
    found = {"link": float(efficiencies.link)}
    for family in FAMILIES:
        utilization = getattr(efficiencies, family)(H100, DEVICES["a100"])
        found |= {f"{family}.compute": float(utilization.compute), f"{family}.memory": float(utilization.memory)}
    return found


def test_assumed_levels_are_ordered_and_the_high_one_is_the_plain_roofline() -> None:
    low, nominal, high = (fractions(assumed_efficiencies(level)) for level in ("low", "nominal", "high"))
    assert len(low) == 15
    for name in low:
        assert 0.0 < low[name] < nominal[name] < high[name] == 1.0
