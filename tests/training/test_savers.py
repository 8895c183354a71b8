"""The search for what saves memory against every layout with every way to save it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from jaxperf.core.device import load_device
from jaxperf.core.numerics import as_float
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.layout import training_layout
from jaxperf.training.model_build import training_model_from_shape
from jaxperf.training.search.layouts import Found, evaluate, search_layouts
from jaxperf.training.search.plan import Request, assumed_rates, search_request
from jaxperf.training.search.savers import SAVERS, module_sets, rungs, unsaved
from jaxperf.training.search.space import GROUP_FIELDS, Columns, Space, crossed, kinds, splits, variants

H100, RATES = load_device("h100-sxm"), assumed_training_efficiencies()
MODEL = training_model_from_shape(8, 4096, 32, 8, 128, 8192, True, 32000, experts=8, topk=2, moe_ffn=4096)
SMALL = Space(microbatches=(1, 4), schedules=("1f1b", "zb-h1"))
BASE = training_layout("bf16", global_batch=16.0, sequence=4096.0, devices=2.0)
TIGHT, TINY = (H100.replace(memory_capacity=each) for each in (59e9, 38e9))  # the fastest do not fit; none does


@pytest.fixture(scope="module", autouse=True)
def quick_folders() -> None:
    """Optimized after all: a search runs for as long as it compiles."""


@pytest.fixture(scope="module")
def everything() -> tuple[Columns, Columns]:
    """Every layout with every way to save memory and without, and what they take; memory is left to the tests."""
    table, ways = splits(2, 8, 4096, SMALL), rungs(MODEL, BASE, SMALL.recomputes, tuple(SAVERS)).every
    parts = []
    for kind, rows in kinds(table, 8, True):
        plain = crossed(table, rows, variants(kind, 8, SMALL))
        without = np.flatnonzero(plain["recompute"] == 0.0)
        parts += [plain | unsaved(BASE, len(plain["tensor"])), crossed(plain, without, ways)]
    columns = {name: np.concatenate([each[name] for each in parts]) for name in parts[0]}
    return columns, evaluate(MODEL, columns, H100.replace(memory_capacity=1e15), RATES, BASE)


def best_groups(columns: Columns, metrics: Columns, capacity: float, host: float, name: str) -> list[float]:
    """The least of a metric in each group of layouts that fit, ascending."""
    best: dict[tuple[float, ...], float] = {}
    fits = (metrics["memory.total"] <= capacity) & (metrics["memory.host"] <= host)
    for row in np.flatnonzero((metrics["reason"] == 0) & fits):
        group = tuple(columns[field][row] for field in GROUP_FIELDS)
        best[group] = min(best.get(group, np.inf), metrics[name][row])
    return sorted(best.values())


@pytest.mark.parametrize(
    ("device", "host", "objective", "metric"),
    [(TIGHT, 1e15, "time", "time"), (TINY, 1e15, "time", "time"), (TINY, 15e9, "time", "time"),
     (TIGHT, 1e15, "memory", "memory.total")],
)  # fmt: skip
def test_the_best_are_those_of_brute_force(everything, device, host: float, objective: str, metric: str) -> None:
    base = dataclasses.replace(BASE, host_memory=as_float(host))
    found = search_layouts(MODEL, device, RATES, base, 2, objective=objective, space=SMALL, savers=tuple(SAVERS), top=3)
    wanted = best_groups(*everything, float(device.memory_capacity), host, metric)
    assert wanted and found.metrics[metric][:3].tolist() == wanted[:3] and found.savers == tuple(SAVERS)
    assert len(found.saving["time"]) > 1


def test_savers_are_tried_where_nothing_fits_or_where_they_are_asked_for() -> None:
    request = Request("shape", MODEL, 16, 4096, space=SMALL, top=1)

    def found(device, **asked) -> Found:
        return search_request(dataclasses.replace(request, **asked), device, assumed_rates(), BASE, 2)

    assert not len(found(TINY, savers=())) and found(TINY, savers=()).savers == ()
    assert len(found(TINY)) and found(TINY).savers == tuple(SAVERS)
    plain, asked = found(TIGHT), found(TIGHT, save_always=True)
    assert plain.savers == () and asked.savers == tuple(SAVERS)
    assert asked.metrics["time"][0] < plain.metrics["time"][0]
    some = found(TINY, savers=("optimizer",))
    assert not len(some) or not some.layouts["offload"].any()


def test_sets_of_modules_differ() -> None:
    sets = module_sets(MODEL)
    assert len(set(sets)) == len(sets) == 5 and sets[-1] == ("layernorm", "moe")
