"""One small model with a layer of every kind: slopes, precision, layouts and monotonicity of its steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from jaxperf.core.numerics import as_float
from jaxperf.models.config import (
    Attention,
    CompressedAttention,
    Encoder,
    GatedDelta,
    Indexer,
    KimiDelta,
    Layer,
    LightningAttention,
    Mamba1,
    Mamba2,
    Mla,
    Mlp,
    MLstm,
    ModelConfig,
    Moe,
    RgLru,
    Rwkv4,
    Rwkv6,
    Rwkv7,
    ShortConv,
)
from jaxperf.models.layers import transformer
from jaxperf.models.step import decode_cost, prefill_cost
from jaxperf.sweeps.program import Fixed, flatten
from tests.devices import H100, close, deployment, single

ROOMY = H100.replace(memory_capacity=4e12)
PLAIN = Attention(16, 4, 64, output_gate=True, sinks=True)
BLOCKS = dataclasses.replace(PLAIN, indexer=Indexer(4, 32, 256, block=64))
LATENT = Mla(16, 96, 64, 32, 16, 48)
MLP = Mlp(2048)
LAYERS = (
    Layer(dataclasses.replace(PLAIN, window=256), MLP, norms=4),
    Layer(dataclasses.replace(PLAIN, chunk=512, value_dim=32), Moe(8, 2, 256, shared_intermediate=512)),
    Layer(Attention(16, 1, 64, alibi=True, rotary=False, q_rank=96, head_gate=True), MLP, norms=1, parallel=True),
    Layer(dataclasses.replace(PLAIN, shared_kv=True), Moe(8, 2, 256, latent=128)),
    Layer(dataclasses.replace(LATENT, head_gate=True), MLP),
    Layer(dataclasses.replace(LATENT, indexer=Indexer(4, 32, 128, pool=4), output_gate=True), MLP),
    Layer(CompressedAttention(16, 64, 16, 96, 128, 4, 48, 4, Indexer(4, 32, 64)), MLP),
    Layer(Mamba1(1024, 16, 64, 4, inner_norms=True), None, norms=1),
    Layer(Mamba2(16, 64, 2, 64, 4), None, norms=1, beside=BLOCKS),
    Layer(GatedDelta(4, 16, 64, 64, 4), MLP),
    Layer(KimiDelta(16, 64, 4, full=True), MLP),
    Layer(LightningAttention(16, 64, rotary=True), MLP, projections=((512, 64), (64, 512))),
    Layer(Rwkv7(8, 64, 32, 32, 64, 16), MLP),
    Layer(Rwkv6(8, 64, 32, 64), None, norms=1, beside=Rwkv4(512)),
    Layer(RgLru(8, 64, 4), None, norms=1, beside=MLstm(8, 32, 64)),
    Layer(ShortConv(512, 3), MLP, cross=dataclasses.replace(PLAIN, causal=False), norms=3),
)
TOWER = Encoder(
    "vision",
    "image",
    384,
    (Layer(Attention(8, 8, 48, causal=False, rotary=False), Mlp(1536, gated=False)),),
    length=196,
    tokens=49,
    input_parameters=3 * 256 * 384,
    projector_parameters=4 * 384 * 512,
)
CONFIG = ModelConfig(
    "menagerie", "None", 512, 32000, LAYERS, False, 0, 512, True, False, 65536, "bf16", encoders=(TOWER,)
)
MODEL = transformer(CONFIG)


def decode(at: Any, batch: Any, context: Any) -> Any:
    return decode_cost(at, MODEL, batch, context, as_float(196))


def prefill(at: Any, batch: Any, prompt: Any) -> Any:
    return prefill_cost(at, MODEL, batch, prompt, as_float(300), as_float(98))


STEPS = {"decode": decode, "prefill": prefill}
phases = pytest.mark.parametrize("phase", STEPS)


def at_point(phase: str, batch: float, length: float, **layout: Any) -> Any:
    return STEPS[phase](deployment(ROOMY, **layout), as_float(batch), as_float(length))


def by_primitive(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)`, one primitive at a time and none twice: to compile the whole takes a minute."""
    arrays, rest = eqx.partition(arguments, eqx.is_array)
    traced, shape = jax.make_jaxpr(lambda given: function(*eqx.combine(given, rest)), return_shape=True)(arrays)
    program = flatten(traced)
    values = dict(enumerate([*traced.consts, *jax.tree.leaves(arrays)]))
    for equation in program.equations:
        values |= zip(equation.results, equation.apply(values), strict=True)
    leaves = [one.value if isinstance(one, Fixed) else values[one] for one in program.outputs]
    return jax.tree.unflatten(jax.tree.structure(shape), leaves)


@pytest.mark.long
@phases
def test_no_number_has_an_undefined_slope(phase: str) -> None:
    point = (deployment(ROOMY, tensor=2, data=2, expert=4), as_float(16), as_float(1000))
    numbers, rest = eqx.partition(point, eqx.is_inexact_array)

    slopes = by_primitive(jax.grad(lambda given: STEPS[phase](*eqx.combine(given, rest)).time), numbers)
    for path, leaf in jax.tree_util.tree_leaves_with_path(slopes):
        assert np.all(np.isfinite(leaf)), jax.tree_util.keystr(path)
    assert float(slopes[0].device.memory_bandwidth) < 0.0 < float(slopes[1])


@phases
@pytest.mark.long
def test_single_precision_agrees_with_double(phase: str) -> None:
    arguments = (deployment(ROOMY, tensor=2, data=2, expert=4), as_float(16), as_float(1000))
    double = by_primitive(STEPS[phase], *arguments)
    network = single(MODEL)
    calls = {
        "decode": lambda at, batch, context: decode_cost(at, network, batch, context, np.float32(196)),
        "prefill": lambda at, batch, prompt: prefill_cost(at, network, batch, prompt, np.float32(300), np.float32(98)),
    }
    with jax.enable_x64(False):
        narrow = by_primitive(calls[phase], *single(arguments))
    assert all(leaf.dtype in (np.float32, np.int32) for leaf in jax.tree.leaves(narrow))
    assert close(narrow, double, 1e-5)


@pytest.mark.long
def test_a_row_of_a_sweep_gives_the_same_costs_as_its_points() -> None:
    length = as_float([100.0, 1000.0, 5000.0])
    row = by_primitive(jax.vmap(prefill, (None, None, 0)), deployment(ROOMY), as_float(7), length)
    points = [at_point("prefill", 7, float(each)) for each in length]
    assert close(row, jax.tree.map(lambda *leaves: np.asarray(leaves), *points))


@phases
def test_more_work_never_takes_less_time_and_a_better_device_never_more(phase: str) -> None:
    times = [float(at_point(phase, 4, length).time) for length in (1000, 4000, 16000, 60000)]
    assert times == sorted(times)
    step = STEPS[phase]
    for field in ("memory_bandwidth", "peak_flops", "vector_flops"):
        better = deployment(ROOMY.replace(**{field: getattr(ROOMY, field) * 2}))
        assert float(step(better, as_float(4), as_float(1000)).time) <= times[0]


@phases
def test_tensor_parallelism_pays_collectives_and_divides_the_rest(phase: str) -> None:
    one, four = at_point(phase, 8, 1000), at_point(phase, 8, 1000, tensor=4)
    assert int(one.reason) == int(four.reason) == 0
    reduced = {name for name, cost in four.kernels.items() if name.endswith("_all_reduce") and float(cost.time) > 0.0}
    assert reduced >= {
        "attention_all_reduce",
        "mixer_all_reduce",
        "cross_attention_all_reduce",
        "ffn_all_reduce",
        "state_all_reduce",
    }
    assert float(four.flops) < 0.5 * float(one.flops)
    assert float(four.memory.weights) < 0.5 * float(one.memory.weights)
