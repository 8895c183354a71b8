"""The search against brute force over every layout, its reasons, its front, and the terms of a step."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from hwspecs.errors import InputError
from jaxperf.core.device import load_device
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.layout import training_layout
from jaxperf.training.layout_checks import TrainingReason
from jaxperf.training.memory import stage_memory
from jaxperf.training.model_build import training_model, training_model_from_shape
from jaxperf.training.pools import part_of
from jaxperf.training.search.layouts import evaluate, search_layouts
from jaxperf.training.search.plan import Rates, Request, assumed_rates, plan, plan_train
from jaxperf.training.search.pools import Pool, check_pools, held_sequences, plan_pools
from jaxperf.training.search.space import SPLIT_FIELDS, Space, crossed, frugal, splits, variants
from jaxperf.training.search.terms import shares, terms

H100, A100 = load_device("h100-sxm"), load_device("a100-sxm-80gb")
RATES = assumed_training_efficiencies()
DENSE = training_model_from_shape(16, 2048, 16, 8, 128, 5632, True, 32000)
SPARSE = training_model_from_shape(8, 1024, 8, 8, 128, 2816, True, 32000, experts=8, topk=2, moe_ffn=1408)
ROWS = ("pipeline", "data", "microbatch")
SMALL = Space(microbatches=(1, 2), interleaves=(2,))
BASE = training_layout("bf16", global_batch=32.0, sequence=2048.0, devices=16.0)
REQUEST = Request("shape", DENSE, 32, 2048, space=SMALL, top=3)


@pytest.fixture(scope="module", autouse=True)
def quick_folders() -> None:
    """Optimized after all: a search runs for as long as it compiles."""


def every_variant() -> dict[str, np.ndarray]:
    """Variants of a pipeline and of none, useless ones too."""
    several = dict.fromkeys(("tensor", "context", "shard", "nodes"), True)
    both = [variants({**several, "pipeline": each}, 8, SMALL) for each in (False, True)]
    return {name: np.concatenate([each[name] for each in both]) for name in both[0]}


def everything(model, device, base, devices: int) -> tuple[dict, dict]:
    """Every split with every variant, useless ones too."""
    table = splits(devices, int(model.experts), int(base.sequence), SMALL)
    columns = crossed(table, np.arange(len(table["tensor"])), every_variant())
    return columns, evaluate(model, columns, device, RATES, base)


@pytest.mark.parametrize("model", [DENSE, SPARSE])
def test_the_search_finds_what_brute_force_finds(model) -> None:
    found = search_layouts(model, H100, RATES, BASE, 16, space=SMALL)
    columns, metrics = everything(model, H100, BASE, 16)
    feasible = metrics["reason"] == 0
    assert found.metrics["time"][0] == metrics["time"][feasible].min()
    assert found.front["memory.total"].min() == metrics["memory.total"][feasible].min()
    best_of_groups = {}
    for row in np.flatnonzero(feasible):
        group = tuple(columns[name][row] for name in SPLIT_FIELDS[:5])
        best_of_groups[group] = min(best_of_groups.get(group, np.inf), metrics["time"][row])
    listed = np.stack([found.layouts[name] for name in SPLIT_FIELDS[:5]], axis=1)
    assert {
        tuple(row): time for row, time in zip(listed.tolist(), found.metrics["time"], strict=True)
    } == best_of_groups
    assert (np.diff(found.metrics["time"]) >= 0.0).all()


def test_the_second_stage_of_zero_is_the_first_with_a_pipeline() -> None:
    table = splits(16, 8, 2048, SMALL)
    rows, pipelined = np.flatnonzero(table["data"] > 1.0), {}
    for stage in (1.0, 2.0):
        columns = crossed(
            table, rows, {name: each[:1] for name, each in every_variant().items()} | {"zero": np.array([stage])}
        )
        pipelined[stage] = evaluate(SPARSE, columns, H100, RATES, BASE)
    several = table["pipeline"][rows] > 1.0
    for name in ("time", "memory.total"):
        alike = pipelined[1.0][name] == pipelined[2.0][name]
        assert alike[several].all() and not alike[~several].all()
    for pipeline in (False, True):
        kind = dict.fromkeys(("tensor", "context", "nodes"), False) | {"shard": True, "pipeline": pipeline}
        assert (2.0 in variants(kind, 8, SMALL)["zero"]) == (not pipeline)


def test_the_front_has_no_member_that_another_beats() -> None:
    front = search_layouts(DENSE, H100, RATES, BASE, 16, space=SMALL).front
    order = np.argsort(front["time"])
    assert (np.diff(front["memory.total"][order]) < 0.0).all() and len(order) > 1


def test_memory_as_the_objective() -> None:
    found = search_layouts(DENSE, H100, RATES, BASE, 16, space=SMALL, objective="memory")
    assert found.metrics["memory.total"][0] == found.front["memory.total"].min()


def test_the_frugal_variant_needs_least_memory() -> None:
    table = splits(16, 8, 2048, SMALL)
    for kind in (False, True):
        every = every_variant()
        rows = np.flatnonzero((table["pipeline"] > 1.0) == kind)
        memory = evaluate(SPARSE, crossed(table, rows, every), H100, RATES, BASE)["memory.total"]
        least = evaluate(SPARSE, crossed(table, rows, frugal()), H100, RATES, BASE)["memory.total"]
        assert (memory.reshape(len(rows), -1).min(axis=1) >= least.reshape(len(rows), -1).min(axis=1)).all()


@pytest.mark.long
def test_reasons_and_the_nearest_size_where_nothing_fits() -> None:
    tiny = H100.replace(memory_capacity=12e9)
    plain = dataclasses.replace(REQUEST, savers=())
    answer = plan(plain, "tiny", tiny, 1, assumed_rates())
    assert not answer.choices and answer.found.reasons[TrainingReason.MEMORY] == answer.found.splits
    assert answer.found.least_memory > 12e9
    assert answer.feasible_from in (2, 4, 8, 16)
    assert plan(plain, "tiny", tiny, answer.feasible_from, assumed_rates()).choices
    odd = search_layouts(DENSE, H100, RATES, dataclasses.replace(BASE, global_batch=7.0, devices=4.0), 4, space=SMALL)
    assert odd.reasons[TrainingReason.BATCH] > 0 and (odd.layouts["data"] == 1.0).all()


def test_rows_that_tensor_ranks_cannot_split_are_left_whole() -> None:
    """2,049 tokens: no sequence parallelism, but tensor ranks all the same."""
    odd = dataclasses.replace(BASE, sequence=as_float(2049.0), devices=as_float(4.0))
    layouts = search_layouts(DENSE, H100, RATES, odd, 4, space=SMALL).layouts
    assert (layouts["tensor"] > 1.0).any() and not layouts["sequence_parallel"][layouts["tensor"] > 1.0].any()


def test_ctrl_c_keeps_the_best_so_far() -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    found = search_layouts(DENSE, H100, RATES, BASE, 16, space=SMALL, progress=stop)
    whole = search_layouts(DENSE, H100, RATES, BASE, 16, space=SMALL)
    assert found.interrupted and 0 < found.tried < whole.tried and len(found)


def test_terms_are_the_step() -> None:
    choices = plan(REQUEST, "h100-sxm", H100, 16, assumed_rates()).choices
    first, second = (choice.metrics for choice in choices[:2])
    for row in (first, second):
        assert sum(terms(row).values()) == pytest.approx(row["time"], rel=1e-9)
        assert sum(shares(row).values()) == pytest.approx(1.0, rel=1e-9)
    assert terms(first) != terms(second)


def test_intervals_outlook_and_cost() -> None:
    request = dataclasses.replace(REQUEST, prices={"h100-sxm": 2.0})
    choice = plan(request, "h100-sxm", H100, 16, assumed_rates()).choices[0]
    time = choice.metrics["time"]
    assert choice.lower < time < choice.upper
    look = choice.outlook
    assert float(look.nominal) == pytest.approx(time - choice.metrics["straggling"], rel=1e-6)
    assert float(look.lower) < float(look.median) < float(look.upper) and time < float(look.median)
    assert choice.device_hours == pytest.approx(16 * float(look.mean) / float(look.kept.share) / 3600.0)
    assert choice.cost == pytest.approx(2.0 * choice.device_hours)
    fitted = plan(request, "h100-sxm", H100, 16, Rates(RATES, "fitted", width=np.log(20.0))).choices[0]
    useful = time * choice.metrics["mfu"]  # work at the peak: no end of the interval is below it
    assert (fitted.lower, fitted.upper) == pytest.approx((useful, time * 20.0))


def test_python_face() -> None:
    sizes: dict[str, Any] = {"devices": np.int64(2), "global_batch": np.int32(8)}
    answer = plan_train(load_model("gpt2"), "l4", **sizes, sequence=1024, top=1)
    assert len(answer.choices) == 1 and answer.choices[0].layout["data"] * answer.choices[0].layout["tensor"] <= 2
    with pytest.raises(InputError, match="'model' is \"gpt2\"; give a description"):
        plan_train("gpt2", "l4", 2, global_batch=8)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="A device is None; give its name"):
        plan_train(load_model("gpt2"), None, 2, global_batch=8)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="global_batch is 0"):
        plan_train(load_model("gpt2"), "l4", 2, global_batch=0)
    with pytest.raises(InputError, match="^objective: unknown 'tim'.*time"):
        plan_train(load_model("gpt2"), "l4", 2, global_batch=8, objective="tim")


def test_pools_share_by_speed_and_the_slowest_bounds() -> None:
    pools = [Pool("h100-sxm", H100, 8, assumed_rates()), Pool("a100-sxm-80gb", A100, 8, assumed_rates())]
    plans = plan_pools(dataclasses.replace(REQUEST, global_batch=512, top=1), pools)
    assert [each.time for each in plans] == sorted(each.time for each in plans)
    assert plans[0].assigned != "alone"
    assert sorted(each.assigned for each in plans) == ["alone", "alone", "replicas", "stages"]
    for found in plans:
        times = [answer.choices[0].metrics["time"] for answer in found.answers]
        assert found.time == pytest.approx(max(times) + found.between) and times[found.bound] == max(times)
        assert sum(found.shares) == (16 if found.assigned == "stages" else 512)
        assert found.assigned == "alone" or found.shares[0] > found.shares[1]
    with pytest.raises(InputError, match="give --pool twice"):
        check_pools(pools[:1])


def test_pools_behind_one_another_wait_for_a_micro_batch_only() -> None:
    """Of equal pools with half the layers each, the second waits for one micro-batch, which a layout keeps short."""
    pools = [Pool("h100-sxm", H100, 8, assumed_rates())] * 2
    found = plan_pools(dataclasses.replace(REQUEST, top=1), pools)
    plans = {each.assigned: each for each in found}
    assert len(found) == 3  # alike, they are one pool alone
    stages = plans["stages"]
    best = [answer.choices[0] for answer in stages.answers]
    busy = [each.metrics["time"] - each.metrics["idle"] - each.metrics["compute.optimizer"] for each in best]
    way = [time * math.prod(each.layout[name] for name in ROWS) / 32 for time, each in zip(busy, best, strict=True)]
    assert stages.between > sum(way) - way[stages.bound]
    assert stages.between < 0.2 * stages.time


@pytest.mark.parametrize(("batch", "schedules"), [(4, ("1f1b",)), (32, ("1f1b",)), (32, ("interleaved", "zb-h1"))])
def test_two_equal_pools_are_no_faster_than_one_of_both(batch: int, schedules: tuple[str, ...]) -> None:
    """Stages on other devices fill and hold as those of one pipeline; even layers and next to no head leave pools no
    advantage. A slow network between single devices makes pipelines the best."""
    slow = dataclasses.replace(H100, node_size=jnp.asarray(1.0), network_bandwidth=0.1 * H100.network_bandwidth)
    space = Space(microbatches=(1,), interleaves=(2,), schedules=schedules, recomputes=("none",))
    model = training_model_from_shape(32, 4096, 32, 32, 128, 14336, True, 100)
    request = Request("shape", model, batch, 4096, space=space, top=1)
    joined = plan(request, "slow", slow, 8, assumed_rates()).choices[0]
    plans = plan_pools(request, [Pool("slow", slow, 4, assumed_rates())] * 2)
    stages = next(each for each in plans if each.assigned == "stages")
    assert [answer.choices[0].layout["pipeline"] for answer in stages.answers] == [4.0, 4.0]
    # No schedule fills gaps of another pool; none waits for gradients of weights that are put off (1.061 if it did).
    assert joined.metrics["time"] <= stages.time <= 1.055 * joined.metrics["time"]
    ahead, after = (answer.choices[0] for answer in stages.answers)
    held = held_sequences(request, stages.answers[1:])
    assert held >= min(after.layout["pipeline"] * after.layout["data"], batch)
    layout = dataclasses.replace(request.layout(4), behind=held, **ahead.layout)
    needed = stage_memory(part_of(model, stages.shares[0], True, False), layout, RATES.imbalance, RATES.reserved_memory)
    assert ahead.metrics["memory.total"] == pytest.approx(float(needed.total))


def test_more_pools_than_layers_are_refused() -> None:
    shallow = dataclasses.replace(REQUEST, model=training_model_from_shape(1, 2048, 16, 8, 128, 5632, True, 32000))
    with pytest.raises(InputError, match="1 units are too few for 2 pools"):
        plan_pools(dataclasses.replace(shallow, top=1), [Pool("h100-sxm", H100, 8, assumed_rates())] * 2)


def test_pools_behind_a_slow_network_wait_for_activations() -> None:
    """Two pools are as fast as what passes between them: over ports of 1 MB/s that is nearly all of a step."""
    slow = dataclasses.replace(H100, network_bandwidth=jnp.asarray(1e6))
    request = dataclasses.replace(REQUEST, top=1)
    plans = plan_pools(request, [Pool("slow", slow, 8, assumed_rates())] * 2)
    stages = next(each for each in plans if each.assigned == "stages")
    ports = 8.0 / max(answer.choices[0].layout["pipeline"] for answer in stages.answers) * 1e6
    sent = request.global_batch * request.sequence * float(request.model.hidden) * 2.0
    assert sent / ports <= stages.time * float(assumed_rates().nominal.link_network) < 2.0 * sent / ports


def test_a_trained_model_is_found_by_name() -> None:
    assert float(training_model(load_model("kimi-k2")).parameters) > 1e12
