"""Techniques together: none is the plain cost, each changes what it should, what cannot run says why."""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import numpy as np
import pytest

from hwspecs.errors import InputError
from jaxperf.core.device import load_device
from jaxperf.core.feasible import Reason
from jaxperf.core.numerics import as_float
from jaxperf.serving.phases import serving_cost
from jaxperf.serving.techniques.checks import check_with_techniques
from jaxperf.serving.techniques.chosen import Techniques
from jaxperf.serving.techniques.drafts import DraftHeads, DraftModel
from jaxperf.serving.techniques.kv_offload import OffloadedCache
from jaxperf.serving.techniques.lora import Adapters, adapter_bytes, zipf_popularity
from jaxperf.serving.techniques.power import PowerCap, PowerLaw, step_power
from jaxperf.serving.techniques.serve import technique_cost
from jaxperf.serving.techniques.speculative import Speculation
from jaxperf.sweeps.once import host_first
from tests.devices import QUICK, close, deployment, model

SMALL = model("gpt2")
AT = deployment(load_device("h100-sxm"))
LAW = PowerLaw(0.3, 1.5, 0.4)
WORKLOAD = {"batch": 4.0, "prompt": 512.0, "output": 64.0}
FREE = PowerCap(LAW, 700.0)
cost_of = host_first(jax.jit(technique_cost, compiler_options=QUICK))


def costs(techniques: Techniques, at=AT, **changes: float):
    return cost_of(at, SMALL, techniques, *map(as_float, {**WORKLOAD, **changes}.values()))


@host_first
@functools.partial(jax.jit, compiler_options=QUICK)
def plain_and_none(at, *workload):
    """Traced together: compiled apart, the kernels may be added in another order."""
    return serving_cost(at, SMALL, *workload), technique_cost(at, SMALL, Techniques(), *workload)[0]


def test_no_technique_is_the_plain_cost_bit_for_bit_on_one_stage() -> None:
    workload = list(map(as_float, WORKLOAD.values()))
    plain, found = plain_and_none(AT, *workload)
    names = ("ttft", "tpot", "tokens_per_second", "memory", "reason")
    assert all(close(getattr(found, name), getattr(plain, name), 0.0) for name in names)
    plain, found = plain_and_none(deployment(load_device("h100-sxm"), pipeline=2), *workload)
    assert int(plain.reason) == 0 and Reason(int(found.reason)) == Reason.PIPELINE_PARALLEL
    assert math.isnan(float(found.tpot))


def test_a_cache_on_the_host_makes_room_and_a_hit_makes_a_prompt_shorter() -> None:
    tight = deployment(AT.device.replace(memory_capacity=0.6e9))
    inside, outside = (Techniques(offload=OffloadedCache(*each, 5e10), cap=FREE) for each in ((0, 1, 0), (0.5, 1, 0.9)))
    full, _ = costs(inside, tight, batch=16.0)
    assert Reason(int(full.reason)) == Reason.MEMORY and math.isnan(float(full.tpot))
    roomy, told = costs(outside, tight, batch=16.0)
    assert int(roomy.reason) == 0 and float(roomy.tpot) > 0.0
    np.testing.assert_allclose(told["decode_load"], 0.9 * 16 * 544 * 12 * 2 * 768 * 2 / 5e10, rtol=1e-12)
    np.testing.assert_allclose(told["prefill_load"], 256 * 12 * 2 * 768 * 2 / 5e10, rtol=1e-12)
    here, there = (costs(each)[0] for each in (inside, outside))
    assert float(there.ttft) < float(here.ttft) and float(there.tpot) > float(here.tpot)


def test_energy_is_the_mean_power_over_the_tokens() -> None:
    offload = OffloadedCache(0.0, 1.0, 0.0, 5e10)
    found, told = costs(Techniques(offload=offload, cap=PowerCap(LAW, 300.0)))
    prefills, decodes = 4 * float(found.prefill.time), 63 * float(found.tpot)
    spent = prefills * float(told["prefill_power"]) + decodes * float(told["decode_power"])
    np.testing.assert_allclose(told["drawn_energy_per_token"], spent / (4 * 64), rtol=1e-12)
    assert float(told["prefill_power"]) <= 300.0 * (1 + 1e-9)
    slower = [float(costs(Techniques(offload=offload, cap=PowerCap(LAW, limit)))[0].ttft) for limit in (220, 300, 700)]
    assert slower == sorted(slower, reverse=True) and slower[0] > slower[2]


def test_waiting_draws_no_more_than_the_background() -> None:
    """Half of the cache over a link so slow that a step is all but waiting: of the law its background is left."""
    offload, law = OffloadedCache(0.0, 1.0, 0.5, 1e6), PowerLaw(0.3, 0.5, 0.2)
    found, told = costs(Techniques(offload=offload, cap=PowerCap(law, 700.0)))
    busy = float(found.decode.time - told["decode_wait"]) / float(found.decode.time)
    assert busy < 0.01
    assert 0.3 * 700.0 <= float(told["decode_power"]) <= 700.0 * (0.3 + 0.7 * busy)
    # A limit that the work alone would not keep is kept by work that waits: the clock need not fall.
    _, tight = costs(Techniques(offload=offload, cap=PowerCap(law, 230.0)))
    assert float(tight["decode_clock"]) == 1.0 and float(tight["prefill_clock"]) < 1.0


def test_launches_hide_a_lower_clock_in_time_and_in_power() -> None:
    """Bound by a slow host, a step takes as long at any clock; its energy is power times that time."""
    slow = dataclasses.replace(AT, host=dataclasses.replace(AT.host, launch_interval=as_float(1e-3)))
    free, limited = (costs(Techniques(cap=PowerCap(LAW, limit)), slow) for limit in (700.0, 150.0))
    assert float(limited[0].tpot) == float(free[0].tpot)
    clock, kernels = limited[1]["decode_clock"], free[0].decode.kernels
    want = step_power(slow.device, LAW, kernels, lambda _: free[0].tpot, clock)
    np.testing.assert_allclose(limited[1]["decode_power"], want, rtol=1e-9)


@pytest.mark.long
def test_what_a_split_draft_exchanges_is_the_drafts() -> None:
    """The same model proposes on as many ranks: of a round of one position its pass is all but half."""
    at = deployment(load_device("h100-sxm"), tensor=4)
    found, told = costs(Techniques(Speculation(DraftModel(SMALL, 4.0), [0.0], [1.0])), at)
    plain, _ = costs(Techniques(), at)
    kernels = sum(float(cost.time) for cost in plain.decode.kernels.values())
    np.testing.assert_allclose(told["draft_time"], kernels, rtol=1e-9)
    exchanged = sum(float(cost.network) for cost in plain.decode.kernels.values())
    np.testing.assert_allclose(found.decode.kernels["draft_collectives"].time, exchanged, rtol=1e-9)
    np.testing.assert_allclose(found.tpot, found.decode.time, rtol=1e-12)  # nothing is accepted


def test_a_draft_and_adapters_are_in_memory_and_in_both_steps() -> None:
    speculation = Speculation(DraftHeads(768, 50257), [0.8, 0.5], [1.0, 1.0])
    adapters = Adapters(zipf_popularity(8, 0.0), 4.0, 8.0, 5e10)
    found, told = costs(Techniques(speculation, adapters))
    plain, _ = plain_and_none(AT, *map(as_float, WORKLOAD.values()))
    weights = speculation.draft.weight_bytes(AT, 2) + 8 * adapter_bytes(AT, SMALL, adapters)
    np.testing.assert_allclose(found.memory.weights, plain.memory.weights + weights, rtol=1e-12)
    np.testing.assert_allclose(found.tpot * 2.2, found.decode.time, rtol=1e-12)
    generation = 4 * found.prefill.stage_time + 63 * found.tpot
    np.testing.assert_allclose(found.tokens_per_second, 4 * 64 / generation, rtol=1e-12)
    assert {"lora_shrink", "lora_expand"} <= set(found.prefill.kernels) & set(found.decode.kernels)
    assert "draft" in found.decode.kernels and float(found.ttft) > float(plain.ttft)
    np.testing.assert_allclose(told["plain_tpot"], plain.tpot, rtol=1e-12)


def test_what_techniques_are_not_timed_for_is_refused() -> None:
    point = {"pipeline_parallel": 1, "tensor_parallel": 8, "prompt": 960, "output": 64}
    chain = Techniques(Speculation(DraftModel(SMALL, 8.0), [0.8], [1.0]))
    with pytest.raises(InputError, match="tp 8 does not divide the draft's heads"):
        check_with_techniques(SMALL, point, chain)
    with pytest.raises(InputError, match="A draft must be a decoder"):
        check_with_techniques(SMALL, point, Techniques(Speculation(DraftModel(model("t5-small"), 1.0), [0.8], [1.0])))
    whole = Techniques(Speculation(DraftModel(SMALL, 1.0), [0.8], [1.0]))
    check_with_techniques(SMALL, point, whole)
    with pytest.raises(InputError, match="draft's context is 1,024 tokens; prompt and output together are 1,025"):
        check_with_techniques(SMALL, {**point, "output": 65}, whole)
