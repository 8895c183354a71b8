"""Messages against hand sums: groups by stride, rings through all ports, exchanges, overlap."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.sharded_layers import Layer, play
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.network.expert_exchange import exchange_pass
from jaxperf.network.link import Fabric
from jaxperf.training.communication import (
    context_exchange,
    expert_exchange,
    layout_groups,
    ring_pass,
    stage_send,
    state_exchange,
    tensor_exchange,
)
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.exposure import data_exchange
from jaxperf.training.flops import key_width
from jaxperf.training.layout import Layout, training_layout
from jaxperf.training.memory import StageParameters, kept_parameters
from jaxperf.training.model_build import training_model
from jaxperf.training.overlap import Passes, exposed_time
from jaxperf.training.step import training_step
from tests.devices import H100, MI300X, TPU_V5P

LLAMA = training_model(load_model("llama-3-70b"))
MIXTRAL = training_model(load_model("mixtral-8x7b"))
IDEAL = dataclasses.replace(assumed_training_efficiencies(), link_local=as_float(1.0), link_network=as_float(1.0))
FREE = H100.replace(link_latency=0.0, network_latency=0.0)  # 450 GB/s inside, 50 GB/s a port
LOCAL, PORT = 450e9, 50e9


def groups(layout: Layout):
    return layout_groups(FREE, layout, IDEAL)


def test_groups_by_their_stride() -> None:
    """Tensor 4 on nodes of 8: two data-parallel ranks a node, so 16 of them span 8 nodes."""
    found = groups(training_layout(tensor=4, data=16, pipeline=2))
    shape = {name: (float(each.local_ranks), float(each.nodes)) for name, each in vars(found).items()}
    assert shape["tensor"] == (4, 1) and shape["shard"] == (2, 8) and shape["context"] == (1, 1)
    assert shape["stages"][1] == 2


def test_a_ring_leaves_a_node_through_the_ports_of_all_its_members() -> None:
    fabric = Fabric(*map(as_float, (8, 4, LOCAL, 1e-6, PORT, 5e-6, 0, 1)))
    size = as_float(1e9)
    expected = 31 / 32 * 1e9 / (8 * PORT) + 3 * 5e-6 + 7 * 1e-6
    assert float(ring_pass(fabric, size)) == pytest.approx(expected, rel=1e-12)
    ten = float(ring_pass(fabric, size, 10.0)) - float(ring_pass(fabric, size))
    assert ten == pytest.approx(9 * (3 * 5e-6 + 7 * 1e-6), rel=1e-9)
    alone = dataclasses.replace(fabric, local_ranks=as_float(1.0))
    assert float(ring_pass(alone, size)) == pytest.approx(3 / 4 * 1e9 / PORT + 3 * 5e-6, rel=1e-12)
    single = dataclasses.replace(alone, nodes=as_float(1.0))
    assert float(ring_pass(single, size)) == 0


def test_tensor_parallel_moves_two_all_reduces_a_pass() -> None:
    """2 blocks x 2 passes x (t - 1)/t tokens h b over the link, and half as much again backward with sequence
    parallelism."""
    one = 7 / 8 * 8192 * 8192 * 2 / LOCAL
    for sequence_parallel, backward in ((0, 4), (1, 6)):
        layout = training_layout(tensor=8, sequence=8192, sequence_parallel=sequence_parallel)
        found = tensor_exchange(LLAMA, layout, groups(layout))
        assert float(found.forward) == pytest.approx(4 * one, rel=1e-12)
        assert float(found.backward) == pytest.approx(backward * one, rel=1e-12)


def test_context_parallel_by_method() -> None:
    tokens, kv, width = 65536 / 4, 2 * 8 * 128, 2 * 8192
    base = {"context": 4, "sequence": 65536, "tensor": 2}
    ring, ulysses = (training_layout(context_method=name, **base) for name in ("ring", "ulysses"))
    found = context_exchange(LLAMA, ring, groups(ring))
    assert float(found.forward) == pytest.approx(3 * tokens * kv / 2 * 2 / LOCAL, rel=1e-12)  # three sends of a shard
    assert float(found.backward) == pytest.approx(2 * float(found.forward), rel=1e-12)
    found = context_exchange(LLAMA, ulysses, groups(ulysses))
    assert float(found.forward) == pytest.approx(3 / 4 * tokens * (width + kv) / 2 * 2 / LOCAL, rel=1e-12)


def test_ulysses_copies_heads_that_are_fewer_than_its_ranks() -> None:
    """The 4 heads of keys and values of a tensor rank: four take one each, and eight take each of them twice."""
    layouts = [training_layout(context=c, sequence=65536, tensor=2, context_method="ulysses") for c in (4, 8)]
    few, many = (float(key_width(LLAMA, layout)) for layout in layouts)
    assert (few, many) == (2 * 4 * 128, 2 * 8 * 128)
    ring = training_layout(context=8, sequence=65536, tensor=2)
    assert float(key_width(LLAMA, ring)) == few


def test_a_ring_of_keys_over_nodes_has_one_port_and_a_gather_all() -> None:
    """Sixteen ranks on two nodes: each of 15 steps waits for the two sends that cross, a gather has eight ports."""
    kept = 65536 / 16 * 2 * 8 * 128 * 2
    base = {"context": 16, "sequence": 65536}
    ring, gather = (training_layout(context_method=name, **base) for name in ("ring", "all-gather"))
    assert float(context_exchange(LLAMA, ring, groups(ring)).forward) == pytest.approx(15 * kept / PORT, rel=1e-12)
    found = context_exchange(LLAMA, gather, groups(gather))
    assert float(found.forward) == pytest.approx(15 * kept / (8 * PORT), rel=1e-12)
    mesh = training_layout(context=8, sequence=65536)  # of its seven links a rank uses the one to the next
    linked = layout_groups(MI300X.replace(link_latency=0.0), mesh, IDEAL)
    expected = 7 * 2 * kept / (MI300X.link_bandwidth / 7)
    assert float(context_exchange(LLAMA, mesh, linked).forward) == pytest.approx(float(expected), rel=1e-12)


def test_recurrent_layers_hand_on_their_state() -> None:
    """Mamba 130M: 1,536 channels of 16 elements and three inputs of a convolution, in turn; Qwen3-Next: 36 of 48 layers
    have 32 heads of 128 x 128, which a gather needs the matrices of, too."""
    base = {"context": 4, "sequence": 65536, "microbatch": 2, "global_batch": 2}
    ring, gather, ulysses = (training_layout(context_method=name, **base) for name in ("ring", "all-gather", "ulysses"))
    mamba, qwen = (training_model(load_model(name)) for name in ("mamba-130m", "qwen3-next-80b-a3b"))
    state = 2 * (1536 * 16 + 3 * 1536) * 4
    found = state_exchange(mamba, ring, groups(ring))
    assert float(found.forward) == pytest.approx(3 * state / LOCAL, rel=1e-12)
    assert float(found.backward) == pytest.approx(float(found.forward), rel=1e-12)
    both = 2 * (2 * 32 * 128 * 128 + 3 * (2 * 16 + 32) * 128) * 4
    assert float(state_exchange(qwen, gather, groups(gather)).forward) == pytest.approx(0.75 * 3 * both / LOCAL)
    rows = 2 * 16384 * float(mamba.mixer_weights / mamba.hidden) * 2
    assert float(state_exchange(mamba, ulysses, groups(ulysses)).forward) == pytest.approx(0.75 * rows / LOCAL)
    assert float(state_exchange(LLAMA, ring, groups(ring)).total) == 0.0
    slow = training_step(mamba, ring, H100, IDEAL)
    assert float(slow.communication.context) == pytest.approx(24 * 2 * (3 * (state / LOCAL + float(H100.link_latency))))
    alone = training_layout(sequence=65536, microbatch=2, global_batch=2)
    assert float(training_step(mamba, alone, H100, IDEAL).communication.context) == 0.0


def test_expert_exchange_by_links() -> None:
    """Eight ranks of a node: tokens k h b 7/8 each way; over two nodes half of it leaves through one port a rank."""
    size = 4096 * 4096 * 2
    near = training_layout(data=8, expert=8)
    found = expert_exchange(MIXTRAL, near, groups(near), as_float(1.0))
    assert float(found.forward) == pytest.approx(2 * 2 * size * 7 / 8 / LOCAL, rel=1e-12)
    assert float(found.backward) == pytest.approx(float(found.forward), rel=1e-12)
    fabric = dataclasses.replace(groups(near).expert, nodes=as_float(2.0))
    over = exchange_pass(fabric, as_float(size), as_float(2.0))
    assert float(over) == pytest.approx(2 * size / 2 / PORT, rel=1e-12)
    merged = exchange_pass(fabric, as_float(size), as_float(2.0), 1.0)
    assert float(merged) == pytest.approx(2 * (1 - 1 / 4) * size / 2 / PORT, rel=1e-12)
    wide = dataclasses.replace(fabric, network_bandwidth=as_float(1e15))  # copies passed on inside count there too
    passed = exchange_pass(wide, as_float(size), as_float(2.0), 1.0)
    assert float(passed) == pytest.approx(16 * (1 - (15 / 16) ** 2) * size * 7 / 8 / LOCAL, rel=1e-12)
    direct = exchange_pass(wide, as_float(size), as_float(2.0))
    assert float(direct) == pytest.approx(2 * size * 7 / 16 / LOCAL, rel=1e-12)


def test_groups_of_experts_shorten_the_exchange_between_nodes() -> None:
    model = training_model(load_model("deepseek-v3"))
    wide = training_layout(data=64, expert=64, deduplicate=1)
    kept, free = (
        float(expert_exchange(m, wide, groups(wide), as_float(1.0)).backward)
        for m in (model, dataclasses.replace(model, hits=None))
    )
    assert kept / free == pytest.approx(3.62901 / 5.25110, rel=1e-5)


@pytest.mark.parametrize("method", ["experts", "ulysses"])
def test_an_exchange_on_a_torus_crosses_its_middle(method: str) -> None:
    """64 chips in a closed cube of links of 50 GB/s: the whole send buffer times 4 / 8 a link."""
    layout = training_layout(data=64, expert=64) if method == "experts" else training_layout(context=64)
    cube = layout_groups(TPU_V5P.replace(link_latency=0.0), layout, IDEAL)
    fabric = cube.expert if method == "experts" else cube.context
    assert float(exchange_pass(fabric, as_float(1e9), as_float(1.0))) == pytest.approx(1e9 / 2 / 50e9, rel=1e-12)


def test_a_stage_sends_its_share_over_its_own_port() -> None:
    layout = training_layout(tensor=8, pipeline=2)
    assert float(stage_send(LLAMA, layout, groups(layout))) == pytest.approx(4096 * 8192 * 2 / 8 / PORT, rel=1e-12)
    whole = training_layout(tensor=8, pipeline=2, sequence_parallel=0)
    gather = 7 / 8 * 4096 * 8192 * 2 / LOCAL
    extra = float(stage_send(LLAMA, whole, groups(whole)) - stage_send(LLAMA, layout, groups(layout)))
    assert extra == pytest.approx(gather, rel=1e-9)


def data(zero: float, *, window: float = 0.0, share: float = 0.0, **fields: Any) -> tuple[float, float]:
    layout = training_layout(zero=zero, data=64, microbatch=1, global_batch=256, **fields)
    own = StageParameters(*map(as_float, (1e9, 0.0, 0.0, 0.0, 1e8, 0.0)))
    efficiencies = dataclasses.replace(IDEAL, overlap_data=as_float(share))
    windows = Passes(as_float(window), as_float(window))
    found = data_exchange(own, layout, groups(layout), as_float(10.0), windows, efficiencies)
    return float(found.total), float(found.exposed)


def test_data_parallel_bytes_by_zero_stage() -> None:
    """64 ranks, 1 G parameters, fp32 gradients, 16-bit weights, 4 micro-batches, 8 ports a node."""
    pass_of = 63 / 64 * 1e9 / (8 * PORT)  # a byte a parameter
    expected = {0: 2 * 4, 1: 4 + 2, 2: 4 * 4 + 2, 3: 4 * (4 + 2 + 2)}
    for zero, bytes_each in expected.items():
        total, exposed = data(zero)
        assert total == exposed == pytest.approx(bytes_each * pass_of, rel=1e-9)
    assert data(2, pipeline=4)[0] == pytest.approx((4 + 2) * 63 / 64 * 1e9 / (8 * PORT), rel=1e-9)


def test_both_ends_of_dualpipe_have_copies() -> None:
    """Twice the ranks; what is sent once a step is of two stages, a micro-batch needs one of them."""
    pass_of = 127 / 128 * 1e9 / (8 * PORT)
    dualpipe = {"schedule": "dualpipe", "pipeline": 2}
    assert data(0, **dualpipe)[0] == pytest.approx(2 * 2 * 4 * pass_of, rel=1e-9)
    assert data(1, **dualpipe)[0] == pytest.approx(2 * (4 + 2) * pass_of, rel=1e-9)
    assert data(3, **dualpipe)[0] == pytest.approx(4 * (4 + 2 + 2) * pass_of, rel=1e-9)


def test_the_first_and_last_layers_are_never_hidden() -> None:
    total, exposed = data(3, window=1e3, share=1.0)
    assert exposed == pytest.approx(total / 10, rel=1e-9)


def test_frozen_weights_send_no_gradients_but_are_gathered() -> None:
    assert data(1, frozen=1)[0] == 0
    assert data(3, frozen=1)[0] == pytest.approx(4 * 4 * 63 / 64 * 1e9 / (8 * PORT), rel=1e-9)


def test_adapters_of_experts_are_reduced_among_the_copies_of_an_expert() -> None:
    """64 ranks with 8 experts' ranks: eight copies of an expert, one a node, each with its own port."""
    layout = training_layout(zero=1, data=64, expert=8, microbatch=1, global_batch=256, frozen=1)
    own = StageParameters(*map(as_float, (1e9, 8e9, 1e7, 8e7, 1e8, 8e8)))
    beside = as_float(10.0), Passes(as_float(0.0), as_float(0.0))
    expected = (4 + 2) * (63 / 64 * 1e7 / (8 * PORT) + 7 / 8 * 8e7 / PORT)
    assert float(data_exchange(own, layout, groups(layout), *beside, IDEAL).total) == pytest.approx(expected, rel=1e-9)


def test_shard_groups_reduce_between_their_replicas() -> None:
    total, _ = data(3, shard_group=8)
    inside = 4 * (4 + 2 + 2) * 7 / 8 * 1e9 / LOCAL
    between = 2 * 7 / 8 * 4 * 1e9 / 8 / PORT
    assert total == pytest.approx(inside + between, rel=1e-9)


def test_replicas_have_the_window_that_a_scatter_left_them() -> None:
    """Backward passes of 5 ms beside gradients and weights of 11.7 ms, four times; the all-reduce after them shows."""
    _, exposed = data(3, shard_group=8, window=5e-3, share=1.0)
    gathered, behind = (each * 7 / 8 * 1e9 / LOCAL for each in (2, 4 + 2))
    between = 2 * 7 / 8 * 4 * 1e9 / 8 / PORT
    assert exposed == pytest.approx(4 * (0.1 * gathered + behind - 5e-3) + between, rel=1e-9)


@pytest.mark.parametrize(("layers", "away"), [(8, 0.07), (32, 0.02)])
def test_shard_groups_take_what_their_layers_take_one_by_one(layers: int, away: float) -> None:
    """Weights in 16 bits and gradients in 32 of 1 G parameters, in shard groups of a node and between eight of them."""
    layout = training_layout(zero=3, data=64, shard_group=8, global_batch=64 * 4)
    own = StageParameters(*map(as_float, (1e9, 0.0, 0.0, 0.0, 1e9 / layers, 0.0)))
    forward = np.array([0.002, 0.005, 0.01, 0.02, 0.05, 0.2])
    windows = Passes(jnp.asarray(forward), jnp.asarray(2.0 * forward))
    beside = dataclasses.replace(IDEAL, overlap_data=as_float(1.0))
    exposed = np.asarray(data_exchange(own, layout, groups(layout), as_float(layers), windows, beside).exposed)
    inside, between = 7 / 8 * 1e9 / LOCAL / layers, 2 * 7 / 8 * 1e9 / 8 / PORT / layers
    parts = [Layer(2 * inside, f / layers, 2 * f / layers, 4 * inside, 4 * between) for f in forward]
    played = np.array([play(part, layers, 4) for part in parts])
    assert np.abs((4 * 3 * forward + exposed) / played - 1.0).max() < away


def test_compute_that_hides_one_kind_hides_no_other() -> None:
    """A second forward and two backward: sends of 0.4 s each way leave copies of 0.7 s the rest."""
    windows, sends, copies = (Passes(as_float(f), as_float(b)) for f, b in ((1, 2), (0.4, 0.4), (0.7, 3)))
    shown = sends.exposed(windows, as_float(1.0))
    left = windows.left(sends - shown)
    late = copies.exposed(left, as_float(1.0))
    assert float(shown.total) == 0 and float(late.forward) == pytest.approx(0.1) and float(late.backward) == 1.4
    assert float(left.left(copies - late).total) == 0


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 1))
def test_what_is_exposed_is_between_nothing_and_all(message: float, window: float, share: float) -> None:
    shown = float(exposed_time(*map(as_float, (message, window, share))))
    assert message - min(message * share, window) == pytest.approx(shown, abs=1e-12)
    assert 0 <= shown <= message


def test_experts_of_a_shard_group_are_split_inside_it_and_reduced_between_replicas() -> None:
    """8 x 8 ranks with 2 experts' ranks: a group of 8 has four copies of an expert, its replicas are in eight nodes."""
    layout = training_layout(zero=3, data=64, expert=2, shard_group=8, microbatch=1, global_batch=64)
    own = StageParameters(*map(as_float, (0.0, 1e9, 0.0, 0.0, 0.0, 1e8)))
    beside = as_float(10.0), Passes(as_float(0.0), as_float(0.0))
    inside = (4 + 2 + 2) * 3 / 4 * 1e9 / LOCAL
    between = 2 * 7 / 8 * 4 * 1e9 / 4 / PORT
    assert float(data_exchange(own, layout, groups(layout), *beside, IDEAL).total) == pytest.approx(inside + between)
    assert float(kept_parameters(layout, as_float(0.0), as_float(1e9), jnp.asarray(True))) == 1e9 / 4


def test_a_shard_group_that_experts_fill_has_one_copy_of_each() -> None:
    layout = training_layout(zero=3, data=64, expert=16, shard_group=8, global_batch=64)
    assert float(layout.expert_shard) == 1.0 and float(layout.expert_data) == 4.0
    whole = training_layout(zero=3, data=64, expert=16, global_batch=64)
    assert float(whole.expert_shard) == float(whole.expert_data) == 4.0
