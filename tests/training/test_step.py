"""The whole step: its parts add up, gradients, monotonicity, layouts of batching, infeasible as data."""

from __future__ import annotations

import dataclasses
import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxperf.core.numerics import as_float, stack
from jaxperf.io.huggingface import load_model
from jaxperf.sweeps.once import evaluate_once
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.layout import Layout, training_layout
from jaxperf.training.layout_checks import TrainingReason
from jaxperf.training.model import TrainingModel
from jaxperf.training.model_build import training_model
from jaxperf.training.results import TrainingStep
from jaxperf.training.step import training_step
from tests.devices import H100, QUICK, close, faster

NOMINAL = assumed_training_efficiencies()
LAYOUTS = {
    "dense": ("llama-3-70b", training_layout(tensor=8, pipeline=4, data=2, global_batch=64, sequence=8192)),
    "one device": ("llama-3-8b", training_layout("fp32", zero=0, flash=0)),
    "interleaved": (
        "gpt3-175b",
        training_layout(
            schedule="interleaved", interleave=3, recompute="full", tensor=8, pipeline=8, data=4, global_batch=96
        ),
    ),
    "fsdp": ("llama-3-8b", training_layout(zero=3, data=64, shard_group=8, global_batch=64, microbatch=1)),
    "experts": (
        "deepseek-v3",
        training_layout("fp8", pipeline=16, data=64, expert=64, schedule="dualpipe", global_batch=2048, deduplicate=1),
    ),
    "long": ("llama-3-8b", training_layout(context=16, sequence=131072, tensor=2, offload=0.5, recompute="selective")),
    "lora": (  # of one micro-batch all stages end together, and the step has a kink where there are more
        "llama-3-70b",
        training_layout(lora_rank=16, frozen=1, tensor=2, pipeline=4, schedule="zb-h1", global_batch=8),
    ),
    "hybrid": ("nemotron-h-8b", training_layout(tensor=2, data=4, global_batch=16, zero=2)),
}


@functools.cache
def model(name: str) -> TrainingModel:
    return training_model(load_model(name))


step = jax.jit(training_step, compiler_options=QUICK)


def run(case: str, device=H100, efficiencies=NOMINAL, **fields: float) -> TrainingStep:
    name, layout = LAYOUTS[case]
    layout = dataclasses.replace(layout, **{key: as_float(value) for key, value in fields.items()})
    return step(model(name), layout, device, efficiencies)


@pytest.mark.parametrize("case", LAYOUTS)
def test_time_is_the_sum_of_its_parts(case: str) -> None:
    found = run(case)
    parts = found.compute.total + found.exposed.total + found.idle + found.straggling
    assert float(parts) == pytest.approx(float(found.unchecked_time), rel=1e-12)
    for kind in ("tensor", "context", "expert", "pipeline", "data", "offload"):
        assert 0 <= float(getattr(found.exposed, kind)) <= float(getattr(found.communication, kind)) * (1 + 1e-12)
    assert float(found.bubble_fraction) == pytest.approx(float(found.idle / found.unchecked_time))
    assert 0 < float(found.mfu) <= float(found.hfu) < 1


def test_what_zero_3_sends_for_every_micro_batch_is_waited_for_on_every_stage() -> None:
    """1F1B takes (m + p - 1) passes of a stage, waits and all (arXiv:2104.04473); with hardly a token to embed, stages
    are even."""
    layout = training_layout(pipeline=8, data=8, global_batch=64, microbatch=1)
    even = dataclasses.replace(model("llama-3-8b"), vocab=as_float(1.0))
    whole, split = (step(even, dataclasses.replace(layout, zero=as_float(zero)), H100, NOMINAL) for zero in (1, 3))
    micro_batches, others = 8, 7
    waited = others * float(split.exposed.data) / micro_batches
    assert float(split.idle - whole.idle) == pytest.approx(waited, rel=1e-4)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "zb-h2"])
def test_a_faster_memory_never_makes_zero_3_slower(schedule: str) -> None:
    layout = training_layout(
        zero=3, pipeline=8, data=8, context=4, tensor=4, global_batch=512, microbatch=4, schedule=schedule
    )
    times = [
        float(
            step(
                model("qwen3-30b-a3b"), layout, H100.replace(memory_bandwidth=by * H100.memory_bandwidth), NOMINAL
            ).unchecked_time
        )
        for by in (1.0, 2.0, 4.0)
    ]
    assert times[0] > times[1] > times[2]


def test_nothing_to_send_costs_nothing() -> None:
    found = run("one device")
    assert float(found.communication.total) == 0 and float(found.idle) == 0


def test_tokens_and_utilization_are_those_of_the_time() -> None:
    found, layout = run("dense"), LAYOUTS["dense"][1]
    time = float(found.unchecked_time)
    assert float(found.tokens_per_second) == pytest.approx(64 * 8192 / time)
    assert float(found.mfu) == pytest.approx(float(found.flops) / (989.4e12 * 64 * time))
    assert float(found.energy) == pytest.approx(64 * 700 * time)  # no energies known: the TDP
    assert float(layout.world) == 64


def test_known_energies_count_flop_bytes_and_idle_power() -> None:
    device = H100.replace(energy_per_flop=[1e-12] * 9, energy_per_byte=1e-11, idle_power=70.0, energy_facts=1.0)
    found = run("one device", device)
    streamed = float(found.compute.vector + found.compute.optimizer) * 0.75 * 3.35e12
    expected = float(found.flops) * 1e-12 + streamed * 1e-11 + 70.0 * float(found.unchecked_time)
    assert float(found.energy) == pytest.approx(expected, rel=1e-9)


def test_infeasible_is_data() -> None:
    found = run("dense", tensor=3.0)
    assert np.isnan(float(found.time)) and float(found.unchecked_time) > 0
    assert int(found.reason) & TrainingReason.TENSOR
    assert not bool(found.feasible)
    fits = run("fsdp")
    assert int(fits.reason) == 0 and float(fits.time) == float(fits.unchecked_time)


def test_a_perfect_machine_reaches_mfu_one() -> None:
    """Datasheet rates, no overheads, memory without end: all of the time but one product is useful FLOP."""
    high = assumed_training_efficiencies("high")
    infinite = H100.replace(memory_bandwidth=1e30)
    found = run("one device", infinite, high, flash=1.0)
    again = float(found.compute.attention) / 7  # flash attention computes its scores again: 7 products for 6
    products = float(found.compute.total) - again
    assert float(found.mfu) == pytest.approx(products / float(found.unchecked_time), rel=1e-3)


def test_no_step_is_shorter_than_its_useful_work_at_the_peak() -> None:
    """Whatever share of the peak was fitted to other steps."""
    high = assumed_training_efficiencies("high")
    found = run("dense", H100, dataclasses.replace(high, gemm=as_float(3.0), attention=as_float(3.0)))
    assert float(found.unchecked_time) == pytest.approx(float(found.flops) / (64 * 989.4e12), rel=1e-12)
    assert float(found.mfu) == pytest.approx(1.0, rel=1e-12)
    parts = found.compute.total + found.exposed.total + found.idle + found.straggling
    assert float(parts) == pytest.approx(float(found.unchecked_time), rel=1e-12)


@pytest.mark.parametrize("case", ["dense", "fsdp", "experts"])
def test_a_world_of_faster_clocks_scales_time(case: str) -> None:
    """Dimensional homogeneity: with no seconds among the assumptions, twice the rates are half the time."""
    none = {
        name: as_float(0.0)
        for name in ("layer_overhead", "expert_overhead", "host_layer", "stage_overhead", "step_overhead")
    }
    bare = dataclasses.replace(NOMINAL, **none)
    twice = dataclasses.replace(bare, host_bandwidth=2.0 * bare.host_bandwidth)
    slow, fast = run(case, H100, bare), run(case, faster(H100, 2.0), twice)
    assert float(slow.unchecked_time) == pytest.approx(2 * float(fast.unchecked_time), rel=1e-9)


@pytest.mark.parametrize("case", LAYOUTS)
@pytest.mark.parametrize("field", ["memory_bandwidth", "link_bandwidth", "network_bandwidth", "peak_flops"])
def test_a_better_device_is_never_slower(case: str, field: str) -> None:
    better = H100.replace(**{field: 2.0 * getattr(H100, field)})
    assert float(run(case, better).unchecked_time) <= float(run(case).unchecked_time) * (1 + 1e-12)


WHOLE = ("gpipe", "1f1b", "interleaved")  # schedules whose backward pass is one piece
CHOICES = {
    "schedule": WHOLE,
    "tensor": (1, 8),
    "pipeline": (1, 4, 16),
    "context": (1, 4),
    "data": (2, 16),
    "microbatch": (1, 4),
    "zero": (0, 1, 3),
    "shard_group": (0, 2),
    "recompute": ("none", "selective", "full"),
    "sequence": (512, 4096),
    "offload": (0, 1),
}
HIDDEN = [f"overlap_{kind}" for kind in ("tensor", "context", "pipeline", "data", "offload")]
RATES = st.sampled_from(["peak_flops", "memory_bandwidth", "link_bandwidth", "network_bandwidth"])


@settings(max_examples=150)
@given(
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in CHOICES.items()}),
    st.integers(1, 20),
    st.fixed_dictionaries({name: st.sampled_from((0.3, 0.9, 1.0)) for name in HIDDEN}),
    st.sampled_from((0.05, 1.0)),
    RATES,
    st.floats(1.01, 3.0),
)
def test_no_step_is_slower_at_a_higher_rate(fields, microbatches, shares, links, rate, by) -> None:
    """Whatever hides behind whatever, of 52 layers, which no number of stages divides: compute that hides one message
    hides no other."""
    interleave = 2 if fields["schedule"] == "interleaved" and fields["pipeline"] > 1 else 1
    layout = training_layout(
        **fields, interleave=interleave, global_batch=fields["data"] * fields["microbatch"] * microbatches
    )
    changed = {name: as_float(value) for name, value in shares.items()}
    slow = dataclasses.replace(NOMINAL, **changed, link_local=as_float(links), link_network=as_float(links))
    device, better = H100, H100.replace(**{rate: by * getattr(H100, rate)})
    before, after = (step(model("nemotron-h-8b"), layout, each, slow) for each in (device, better))
    assert float(after.unchecked_time) <= float(before.unchecked_time) * (1 + 1e-5)


@pytest.mark.parametrize("change", [{"overlap_data": 0.0}, {"overlap_tensor": 0.0}, {"overlap_pipeline": 0.0}])
def test_without_overlap_a_step_is_slower(change: dict[str, float]) -> None:
    assert float(run("dense", **change).unchecked_time) > float(run("dense").unchecked_time)


def test_recomputation_trades_time_for_memory() -> None:
    runs = [run("dense", recompute=code, flash=0.0) for code in (0.0, 1.0, 2.0)]
    times = [float(each.unchecked_time) for each in runs]
    kept = [float(each.memory.activations) for each in runs]
    assert times == sorted(times) and kept == sorted(kept, reverse=True) and len(set(times)) == 3


def test_batched_is_one_by_one() -> None:
    layouts = [dataclasses.replace(LAYOUTS["dense"][1], tensor=as_float(t)) for t in (1, 2, 4, 8)]
    dense = model("llama-3-70b")
    over_layouts = jax.jit(jax.vmap(training_step, in_axes=(None, 0, None, None)), compiler_options=QUICK)
    batched = over_layouts(dense, stack(layouts), H100, NOMINAL)
    for index, layout in enumerate(layouts):
        one = step(dense, layout, H100, NOMINAL)
        assert close(jax.tree.map(operator.itemgetter(index), batched), one, 1e-12)


DIRECTIONS = ("memory_bandwidth", "peak_flops", "link_bandwidth", "network_bandwidth", "link_latency", "num_cores")


SIZES = ("sequence", "global_batch", "weight_bytes", "gradient_bytes", "activation_bytes", "operand_bytes")


@functools.cache
def gradient():
    def scaled(logs, model, layout, efficiencies):
        layout = dataclasses.replace(layout, **{name: getattr(layout, name) + logs["layout"][name] for name in SIZES})
        device = H100.replace(**{name: getattr(H100, name) * jnp.exp(logs[name]) for name in DIRECTIONS})
        factors = {name: jnp.exp(logs["efficiencies"][name]) for name in logs["efficiencies"]}
        changed = {name: getattr(efficiencies, name) * factor for name, factor in factors.items()}
        found = training_step(model, layout, device, dataclasses.replace(efficiencies, **changed))
        return jnp.log(found.unchecked_time)

    return jax.jit(jax.grad(scaled)), jax.jit(scaled, compiler_options=QUICK)


def zeros() -> dict:
    names = [field.name for field in dataclasses.fields(NOMINAL)]
    inner = {"efficiencies": dict.fromkeys(names, as_float(0.0)), "layout": dict.fromkeys(SIZES, as_float(0.0))}
    return dict.fromkeys(DIRECTIONS, as_float(0.0)) | inner


@pytest.mark.parametrize("case", LAYOUTS)
def test_gradients_match_finite_differences(case: str) -> None:
    name, layout = LAYOUTS[case]
    slopes, value = gradient()
    at = zeros()
    found = evaluate_once(slopes, at, model(name), layout, NOMINAL)  # compiling takes far longer
    flat, tree = jax.tree.flatten(at)
    for index, slope in enumerate(jax.tree.leaves(found)):
        assert np.isfinite(float(slope))
        moved = [list(flat), list(flat)]
        for sign, leaves in zip((1.0, -1.0), moved, strict=True):
            leaves[index] = as_float(sign * 1e-6)
        up, down = (float(value(jax.tree.unflatten(tree, leaves), model(name), layout, NOMINAL)) for leaves in moved)
        assert float(slope) == pytest.approx((up - down) / 2e-6, abs=2e-6)


def test_layout_is_a_module_of_numbers() -> None:
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(Layout()))
