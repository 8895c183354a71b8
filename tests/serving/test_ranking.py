"""Ranking: layouts worth trying, winners and targets against brute force, true reasons for those left out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest

from hwspecs.errors import InputError
from jaxperf.core.device import Device, load_devices
from jaxperf.core.feasible import Reason
from jaxperf.io.huggingface import load_model
from jaxperf.serving.ranking import (
    LAYOUT_NAMES,
    OBJECTIVES,
    Ranked,
    Rejected,
    batches_up_to,
    best_of_device,
    layouts,
    rank,
    score_weights,
    why_none,
)
from jaxperf.serving.study import Study
from jaxperf.sweeps import Results, Sweep

NAMES = ("h100-sxm", "l4", "t4")
METRICS = ("ttft", "tpot", "tokens_per_second_per_device", "tokens_per_joule", "memory_share", "reason")
FIXED = {"prompt": 192, "output": 32, "weights": "fp16", "kv_cache": "fp16"}
MODEL, MIXTRAL = load_model("gpt2-xl"), load_model("mixtral-8x7b")
LAYOUTS, BATCHES = layouts(MODEL, 2), batches_up_to(64)


@pytest.fixture(scope="module")
def devices() -> Mapping[str, Device]:
    return dict(zip(NAMES, load_devices(*NAMES), strict=True))


@pytest.fixture(scope="module")
def dense(devices: Mapping[str, Device]) -> Results:
    """Every configuration that `rank` looks at."""
    study = Study(MODEL, "serve", METRICS)
    columns = {name: [layout[name] for layout in LAYOUTS] for name in LAYOUT_NAMES}
    axes = study.axes({"device": None, "layout": columns, "batch": BATCHES, **FIXED}, devices)
    return Sweep(study.at_level("nominal"), axes).dense()


def brute_force(dense: Results, index: int, targets: Mapping[str, float], metric: str) -> tuple[float, int, int] | None:
    """(score, layout, batch) of one device by looking at every point in turn; None where none qualifies."""
    found = None
    for row, column in itertools.product(range(len(LAYOUTS)), range(len(BATCHES))):
        here = {
            name: float(values[index].reshape(len(LAYOUTS), -1)[row, column]) for name, values in dense.metrics.items()
        }
        if here["reason"] == 0 and all(here[name] <= limit for name, limit in targets.items()):
            if found is None or here[metric] > found[0]:
                found = here[metric], row, BATCHES[column]
    return found


@pytest.mark.parametrize("metric", sorted(set(OBJECTIVES.values())))
def test_targets_against_brute_force(dense: Results, metric: str) -> None:
    verdicts = []
    for ttft, tpot, (index, name) in itertools.product((1.0, 0.02, 0.005), (1.0, 0.01, 0.004), enumerate(NAMES)):
        targets = {"ttft": ttft, "tpot": tpot}
        wanted = brute_force(dense, index, targets, metric)
        found = best_of_device(dense, index, name, targets, metric, 2.0)
        verdicts.append(type(found))
        if wanted is None:
            assert isinstance(found, Rejected) and found.why
            continue
        assert isinstance(found, Ranked) and found.score == 2.0 * wanted[0]
        assert {key: found.point[key] for key in LAYOUT_NAMES} == LAYOUTS[wanted[1]]
        assert found.point["batch"] == wanted[2]
    assert {Ranked, Rejected} == set(verdicts), "the targets must part the devices, or the test shows nothing"


def test_rank_is_the_best_of_each_in_order(dense: Results, devices: Mapping[str, Device]) -> None:
    targets = {"tpot": 0.01}
    study = Study(MODEL, "serve", METRICS)
    how = {"layouts": LAYOUTS, "fixed": FIXED, "batches": BATCHES, "targets": targets, "prices": {}}
    found = rank(study, devices, objective="tokens/s/device", **how)
    scores = [entry.score for entry in found.ranked]
    assert scores == sorted(scores, reverse=True) and found.points == dense.metrics["tpot"].size
    assert {entry.device for entry in (*found.ranked, *found.rejected)} == set(NAMES)
    for entry in found.ranked:
        wanted = brute_force(dense, NAMES.index(entry.device), targets, "tokens_per_second_per_device")
        assert wanted is not None and entry.score == pytest.approx(wanted[0], rel=1e-12)


def test_mistakes(devices: Mapping[str, Device]) -> None:
    study = Study(MODEL, "serve", METRICS)
    how = {"layouts": LAYOUTS, "fixed": FIXED, "batches": BATCHES, "targets": {}, "prices": {}}
    with pytest.raises(InputError, match="Cannot rank by 'speed'; allowed: tokens/s/device"):
        rank(study, devices, objective="speed", **how)
    with pytest.raises(InputError, match="needs the price of at least one device"):
        score_weights(NAMES, "tokens/$", {"a10": 1.0})


def test_prices_weigh_tokens_per_dollar() -> None:
    weights = score_weights(NAMES, "tokens/$", {"l4": 0.5, "h100-sxm": 3.6})
    assert weights[:2] == [1000.0, 7200.0] and np.isnan(weights[2])
    assert score_weights(NAMES, "tokens/J", {}) == [1.0, 1.0, 1.0]


def test_dense_layouts() -> None:
    found = layouts(load_model("llama-3-70b"), 16)
    assert all(layout["expert_parallel"] == layout["data_parallel"] == 1 for layout in found)
    pairs = {(layout["tensor_parallel"], layout["pipeline_parallel"]) for layout in found}
    assert pairs == {(2**i, 2**j) for i in range(5) for j in range(5) if i + j <= 4} and len(pairs) == len(found)


def test_expert_layouts() -> None:
    found = layouts(MIXTRAL, 8)
    kinds = {(layout["tensor_parallel"], layout["expert_parallel"], layout["data_parallel"]) for layout in found}
    assert {(8, 1, 1), (8, 8, 1), (1, 8, 8), (2, 8, 4)} <= kinds
    assert len({tuple(layout.values()) for layout in found}) == len(found)
    for layout in found:
        group = layout["tensor_parallel"] * layout["data_parallel"]
        assert group * layout["pipeline_parallel"] <= 8 and group % layout["expert_parallel"] == 0


@pytest.mark.parametrize("largest", [1, 2, 7, 256, 257, 1000, 1024, 2**20])
def test_batches_are_close_to_any_limit(largest: int) -> None:
    found = batches_up_to(largest)
    assert found[: min(largest, 256)] == list(range(1, min(largest, 256) + 1)) and found[-1] == largest
    assert all(low < high <= max(low + 1, low * (1 + 2**-7)) for low, high in itertools.pairwise(found))
    assert {2**i * 5 for i in range(18)} & set(range(largest + 1)) <= set(found)


@pytest.mark.parametrize(
    ("reasons", "why"),
    [
        ([0, 0], "best tpot 30 ms, target 20 ms"),
        ([Reason.MEMORY, Reason.MEMORY], "does not fit: the smallest layout needs 1.25 x the usable memory"),
        ([Reason.MEMORY | Reason.CONTEXT, Reason.CONTEXT], "the context is longer than the model was trained for"),
        ([Reason.TENSOR_PARALLEL, Reason.MEMORY], "does not fit: the smallest layout needs 1.50 x the usable memory"),
    ],
)
def test_reasons(reasons: list[int], why: str) -> None:
    mine = {"reason": np.array(reasons), "tpot": np.array([0.03, 0.04]), "ttft": np.array([2.0, 0.1])}
    assert why_none({**mine, "memory_share": np.array([1.25, 1.5])}, {"tpot": 0.02, "ttft": 1.0}) == why


def test_targets_that_only_clash_together() -> None:
    mine = {"reason": np.zeros(2, int), "tpot": np.array([0.01, 0.04]), "ttft": np.array([2.0, 0.1])}
    assert why_none(mine, {"tpot": 0.02, "ttft": 1.0}) == "no layout and batch meets tpot and ttft together"
