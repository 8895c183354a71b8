"""Mixture-of-experts layers inside a step: exchange of tokens, imbalance, shared experts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.numerics import as_float
from jaxperf.kernels.moe import Routing
from jaxperf.models.blocks.exchange import exchange_costs
from jaxperf.models.blocks.moe import MoeFfn
from jaxperf.models.blocks.phase import Decode, Phase, Prefill
from jaxperf.models.layers import Transformer
from jaxperf.models.step import StepCost
from jaxperf.network.limited_routing import GroupLimit
from tests.devices import H100, MI300X, TPU_V5P, decode_step, deployment, model, prefill_step

MIXTRAL, QWEN, SHARED = model("mixtral-8x7b"), model("qwen3-30b-a3b"), model("qwen1.5-moe-a2.7b")
V3 = model("deepseek-v3")
ROOMY = H100.replace(memory_capacity=4e12)
LINK, NETWORK = 0.75 * 450e9, 0.75 * 50e9
ALPHA = float(ROOMY.launch_latency) + 2 * 3e-6  # a kernel's start, flags before and after


def leaves(cost: Cost) -> list[float]:
    return [float(x) for x in (cost.time, cost.compute, cost.memory, cost.network, cost.latency, cost.bytes_moved)]


@pytest.mark.parametrize(
    ("tensor", "data", "expert"),
    [(t, d, e) for t, d, e in itertools.product((1, 2, 8), (1, 4, 16), (1, 2, 8, 64)) if (t * d) % e == 0],
)
@pytest.mark.parametrize("device", [ROOMY, MI300X, TPU_V5P], ids=["switch", "mesh", "torus"])
def test_every_split_of_the_experts_has_a_finite_time(device: Device, tensor: int, data: int, expert: int) -> None:
    layout = {"tensor": tensor, "data": data, "expert": expert}
    at = deployment(device.replace(memory_capacity=4e12), **layout)
    for step in (decode_step(at, QWEN, 64, 1024), prefill_step(at, QWEN, 64, 256)):
        assert int(step.reason) == 0
        assert 0.0 < float(step.time) < 1.0
        assert all(math.isfinite(x) for cost in step.kernels.values() for x in leaves(cost))


def test_one_replica_dispatches_nothing_and_combines_by_the_all_reduce_of_its_group() -> None:
    for expert in (1, 8):
        step = decode_step(deployment(ROOMY, tensor=8, expert=expert), MIXTRAL, 16, 1024)
        assert leaves(step.kernels["expert_dispatch"]) == [0.0] * 6
        assert leaves(step.kernels["expert_combine"]) == leaves(step.kernels["attention_all_reduce"])


def copies(ranks: int, chosen: int) -> float:
    """Destination ranks that a token reaches on average."""
    return ranks * (1 - (1 - 1 / ranks) ** chosen)


def imbalance(ranks: int, tokens: int, chosen: int) -> float:
    return min(1 + (2 * math.log(ranks) * (1 - 1 / ranks) * ranks / (tokens * chosen)) ** 0.5, ranks)


def test_prefill_sends_one_copy_to_each_rank_and_decode_one_to_each_expert() -> None:
    """Eight choices over eight ranks reach 5.25 ranks, 4.6 of them remote; of eight experts 7 are remote."""
    assert copies(8, 8) * 7 / 8 == pytest.approx(4.6, abs=0.01)
    at, tokens = deployment(ROOMY, data=8, expert=8), 32 * imbalance(8, 8 * 32, 8)
    for step, sent in ((prefill_step(at, QWEN, 8, 32), copies(8, 8)), (decode_step(at, QWEN, 8 * 32, 1024), 8)):
        dispatch, combine = step.kernels["expert_dispatch"], step.kernels["expert_combine"]
        wire = 7 / 8 * tokens * 2048 * 2 * sent
        np.testing.assert_allclose(dispatch.time, 48 * (ALPHA + wire / LINK), rtol=1e-12)
        np.testing.assert_allclose(dispatch.bytes_moved, 48 * wire, rtol=1e-12)
        np.testing.assert_allclose(combine.time, dispatch.time, rtol=1e-12)


def test_replicas_that_share_every_expert_gather_all_tokens() -> None:
    """Without expert parallelism each rank multiplies its slice of every expert with the tokens of all replicas."""
    step = decode_step(deployment(ROOMY, data=8, expert=1), QWEN, 8 * 32, 1024)
    everyone = 8 * 32 * 2048 * 2
    dispatch, combine = step.kernels["expert_dispatch"], step.kernels["expert_combine"]
    np.testing.assert_allclose(dispatch.time, 48 * (ALPHA + 7 / 8 * everyone / LINK), rtol=1e-5)
    back = ALPHA + 7 / 8 * everyone / 8 / LINK
    reduce = min(ALPHA + 7 * everyone / LINK, 2 * ALPHA + 2 * 7 / 8 * everyone / LINK)
    np.testing.assert_allclose(combine.time, 48 * (back + reduce), rtol=1e-5)


def test_a_tensor_group_sends_each_token_once_and_gathers_it_again() -> None:
    step = decode_step(deployment(ROOMY, tensor=2, data=4, expert=8), QWEN, 4 * 64, 1024)
    activations = 64 * 2048 * 2
    buffer = activations / 2 * 8 * imbalance(8, 4 * 64, 8)
    exchange, gather = ALPHA + 7 / 8 * buffer / LINK, ALPHA + activations / 2 / LINK
    np.testing.assert_allclose(step.kernels["expert_dispatch"].time, 48 * exchange, rtol=1e-12)
    np.testing.assert_allclose(step.kernels["expert_combine"].time, 48 * (exchange + gather), rtol=1e-12)


def test_sixteen_replicas_exchange_over_the_network() -> None:
    """Prefill sends a copy to each of two nodes with a chosen expert, half of them remote; decode one to each expert,
    of whose ranks half are remote."""
    at, tokens = deployment(ROOMY, data=16, expert=16), 32 * imbalance(16, 16 * 32, 8)
    nodes = 2 * (1 - 0.5**8)
    for step, sent in ((prefill_step(at, QWEN, 16, 32), nodes), (decode_step(at, QWEN, 16 * 32, 1024), 8)):
        exchange = 8e-6 + tokens * 2048 * 2 * sent / 2 / NETWORK
        np.testing.assert_allclose(step.kernels["expert_dispatch"].time, 48 * exchange, rtol=1e-12)
        np.testing.assert_allclose(step.kernels["expert_combine"].time, 48 * exchange, rtol=1e-12)


@pytest.mark.parametrize(("data", "width"), [(8, 1.0), (16, 0.5)], ids=["in a node", "between nodes"])
def test_tokens_cross_the_network_in_the_format_that_experts_multiply(data: int, width: float) -> None:
    """Eight bits between nodes with experts in FP8; inside a node, and back to the residual stream, sixteen."""
    at = deployment(ROOMY, data=data, expert=data, weights="fp8")
    for step in (prefill_step(at, QWEN, data, 4096), decode_step(at, QWEN, data * 4096, 8)):
        alpha = 48 * (8e-6 if data == 16 else ALPHA)
        there, back = (float(step.kernels[f"expert_{name}"].time) - alpha for name in ("dispatch", "combine"))
        assert there == pytest.approx(width * back, rel=1e-9)


def test_deepseek_sends_a_prompt_to_the_nodes_of_four_groups() -> None:
    """Over eight nodes, a group on each: 3.63 copies of a token, where even draws make 5.25; decode one an expert."""
    at = deployment(ROOMY.replace(link_bandwidth=1e15, network_latency=0.0, launch_latency=0.0), data=64, expert=64)
    prompt, step, limit = Prefill(*map(as_float, (1, 4096, 0, 0))), Decode(*map(as_float, (16, 4096, 0))), limit_of(V3)

    def combine(phase: Phase, limit: GroupLimit | None) -> float:
        return float(exchange_costs(at, as_float(7168), Routing(256, 8), phase, limit)[1].network)

    assert combine(prompt, limit) / combine(prompt, None) == pytest.approx(3.62901 / 5.25110, rel=1e-5)
    assert combine(step, limit) == combine(step, None)


def limit_of(transformer: Transformer) -> GroupLimit | None:
    """That of the last layers."""
    ffn = transformer.groups[-1].ffn
    assert isinstance(ffn, MoeFfn)
    return ffn.limit


def test_experts_shared_by_ranks_of_two_nodes_get_every_token_in_both() -> None:
    """Sixteen replicas, no expert parallelism: a token crosses the network once and is passed on to the seven others
    of both nodes, whatever was chosen."""
    size = 32 * 2048 * 2
    for links, slower in ((1.0, 14 * size / LINK), (4.0, size / NETWORK)):
        at = deployment(ROOMY.replace(link_bandwidth=links * ROOMY.link_bandwidth), data=16, expert=1)
        for step in (prefill_step(at, QWEN, 16, 32), decode_step(at, QWEN, 16 * 32, 1024)):
            np.testing.assert_allclose(step.kernels["expert_dispatch"].time, 48 * (8e-6 + slower), rtol=1e-5)


def test_experts_multiply_the_same_rows_however_they_are_spread() -> None:
    tokens, chosen, hidden, width = 512, 8, 2048, 768
    for tensor, data, expert in ((1, 1, 1), (8, 1, 8), (1, 8, 8), (2, 4, 4), (8, 1, 1)):
        at = deployment(ROOMY, tensor=tensor, data=data, expert=expert)
        up = decode_step(at, QWEN, tokens, 1024).kernels["expert_up_projection"]
        rows = tokens * chosen / expert * (imbalance(expert, tokens, chosen) if expert > 1 else 1.0)
        share = expert / (tensor * data)
        np.testing.assert_allclose(up.flops, 48 * 2 * rows * hidden * 2 * width * share, rtol=1e-12)


def test_an_absent_shared_expert_costs_exactly_nothing_and_a_present_one_does() -> None:
    without = decode_step(deployment(ROOMY), MIXTRAL, 4, 1024)
    names = ("shared_up_projection", "shared_activation", "shared_down_projection")
    for name in names:
        assert leaves(without.kernels[name]) == [0.0] * 6
    present = decode_step(deployment(ROOMY), SHARED, 4, 1024)
    assert float(present.kernels[names[0]].flops) == 24 * 2 * 4 * 2048 * 2 * 5632
    assert float(present.kernels[names[2]].bytes_moved) > 24 * 2 * 2048 * 5632


def expert_time(step: StepCost) -> float:
    return sum(float(step.kernels[f"expert_{part}_projection"].time) for part in ("up", "down"))


def test_more_tokens_touch_more_experts_until_all_are_touched() -> None:
    times = [expert_time(decode_step(deployment(ROOMY), QWEN, batch, 1024)) for batch in (1, 2, 8, 32, 128)]
    assert times == sorted(times)
    assert times[1] / times[0] > 1.6 and times[4] / times[3] < 1.3


@pytest.mark.parametrize("skew", [1.5, 2.0])
def test_a_skewed_router_slows_the_busiest_rank(skew: float) -> None:
    layout = {"data": 8, "expert": 8}
    even, uneven = (prefill_step(deployment(ROOMY, skew=s, **layout), QWEN, 8, 4096) for s in (1.0, skew))
    assert float(uneven.time) > float(even.time)
    flops = [float(step.kernels["expert_up_projection"].flops) for step in (even, uneven)]
    assert flops[1] == pytest.approx(skew * flops[0], rel=1e-12)


def test_expert_parallel_ranks_read_fewer_experts_each() -> None:
    one = decode_step(deployment(ROOMY), QWEN, 512, 1024).kernels["expert_up_projection"]
    eight = decode_step(deployment(ROOMY, data=8, expert=8), QWEN, 512, 1024).kernels["expert_up_projection"]
    assert float(eight.memory) < 0.2 * float(one.memory)


def test_a_single_token_makes_some_rank_read_a_whole_expert() -> None:
    """Two of eight experts on eight ranks: a quarter of an expert a rank on average, which no rank ever reads."""
    up = decode_step(deployment(ROOMY, tensor=8, expert=8), MIXTRAL, 1, 1024).kernels["expert_up_projection"]
    one_expert = 2 * 14336 * 4096 * 2
    assert 32 * one_expert <= float(up.bytes_moved) < 32 * one_expert * 1.001
