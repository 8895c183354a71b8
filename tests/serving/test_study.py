"""Studies: parameters, axes from plain values, intervals, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwspecs.errors import InputError
from jaxperf.core.device import load_devices
from jaxperf.core.metric import column_units
from jaxperf.io.expressions import expand
from jaxperf.io.huggingface import load_model
from jaxperf.serving.metrics import METRICS, TASK_METRICS, TASKS
from jaxperf.serving.study import Study, default_metrics, formats_of
from jaxperf.serving.study_values import checked_number, checked_values
from jaxperf.sweeps import Sweep, blocks, staged

GPT2 = load_model("gpt2")
NAMES = ("h100-sxm", "l4")
DEVICES = dict(zip(NAMES, load_devices(*NAMES), strict=True))


def test_defaults_fill_what_is_not_named() -> None:
    axes = Study(GPT2, "serve", ("tpot",)).axes({"device": None, "batch": [1, 2]}, DEVICES)
    assert [one.name for one in axes] == ["device", "batch", "prompt", "output", "weights", "kv_cache"]
    labels = {column: list(values) for one in axes for column, values in one.labels.items()}
    assert labels["device"] == list(NAMES) and labels["prompt"] == [2048] and labels["output"] == [256]
    assert labels["weights"] == [GPT2.weight_format] and labels["kv_cache"] == ["bf16"]


def test_device_values_choose_among_the_devices() -> None:
    (first, *_) = Study(GPT2, "decode", ("tpot",)).axes({"device": ["l4"]}, DEVICES)
    assert list(first.labels["device"]) == ["l4"]
    zipped = {"device": ["l4", "h100-sxm", "l4"], "batch": [1, 2, 3]}
    (first, *_) = Study(GPT2, "decode", ("tpot",)).axes({"setup": zipped}, DEVICES)
    assert first.size == 3 and list(first.labels["device"]) == ["l4", "h100-sxm", "l4"]


def test_generated_lengths_are_rounded_and_repeats_dropped() -> None:
    values = {"device": None, "context": expand("context", "linspace(1, 4, 7)"), "batch": [2, 1, 2.0]}
    axes = {one.name: one for one in Study(GPT2, "decode", ("tpot",)).axes(values, DEVICES)}
    assert axes["context"].labels["context"].tolist() == [1, 2, 3, 4] and axes["batch"].labels["batch"].tolist() == [
        2,
        1,
    ]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"batc": 1}, "Did you mean batch"),
        ({"prompt": 1}, "not a parameter of task decode"),
        ({"batch": []}, "'batch' is empty"),
        ({"batch": {"context": [1]}}, "has the name of a parameter"),
        ({"a": {"batch": [1]}, "b": {"batch": [1]}}, "'batch' is given twice"),
        ({"a": {"batch": [1, 2], "context": [1]}}, "equal length"),
        ({"batch": [8, 8.5]}, "'batch' is 8.5; it must be a whole number from 1 to 1,048,576"),
        ({"sizes": {"context": [100.4], "batch": [1]}}, "'context' is 100.4; it must be a whole number"),
        ({"batch": range(10**6), "context": range(10**6)}, "1,000,000,000,000 points"),
    ],
)
def test_bad_axes(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Study(GPT2, "decode", ("tpot",)).axes({"device": None, **values}, DEVICES)


@pytest.mark.parametrize("value", [0, -1, 0.99, 10**30, 2.0**60, float("nan"), float("inf"), True, "8", None, [1], 1j])
@pytest.mark.parametrize("name", ["batch", "context", "prompt", "output", "tensor_parallel", "routing_skew"])
def test_numbers_out_of_range(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"'{name}' is .*; it must be a number from 1 to"):
        checked_number(name, value)


def test_numbers_in_range() -> None:
    assert checked_number("batch", np.int64(3)) == 3 and type(checked_number("batch", np.float32(3.0))) is int
    assert checked_number("routing_skew", 1.25) == 1.25
    assert checked_values("routing_skew", expand("", "linspace(1, 2, 3)")) == [1.0, 1.5, 2.0]
    assert checked_values("context", (1, 2.0)) == [1, 2] and checked_values("weights", "BF16") == ["bf16"]


# A request is a prefill and decodes: the two alone are looked at at length.
@pytest.mark.parametrize("task", [pytest.param(each, marks=[pytest.mark.long] * (each != "serve")) for each in TASKS])
def test_every_metric_of_every_task_is_ordered(task: str) -> None:
    study = Study(GPT2, task, TASK_METRICS[task])
    lengths = {name: 64 for name in ("context", "prompt") if name in study.parameters}
    found = Sweep(study.point(), study.axes({"device": None, "batch": [1, 8], **lengths}, DEVICES)).dense()
    assert set(found.metrics) == set(column_units(study.facts))
    for name in study.metrics:
        assert np.isfinite(found[name]).all()
        if METRICS[name].interval:
            assert (found[f"{name}_lower"] < found[name]).all() and (found[name] < found[f"{name}_upper"]).all()
        else:
            assert f"{name}_lower" not in found.metrics


@pytest.mark.parametrize("few_rows", [0, 2**13])
def test_host_and_compiler_give_the_same_numbers(few_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study(GPT2, "decode", ("tpot", "memory", "limiter", "reason"))
    values = {
        "device": None,
        "tensor_parallel": [1, 2, 5],
        "batch": [1, 64, 4096],
        "context": [2, 1024],
        "weights": "fp8",
    }
    on_host = Sweep(study.point(), study.axes(values, DEVICES)).dense().metrics
    monkeypatch.setattr(blocks, "FEW_POINTS", 0)
    monkeypatch.setattr(staged, "FEW_ROWS", few_rows)
    for name, found in Sweep(study.point(), study.axes(values, DEVICES)).dense().metrics.items():
        tolerance = 1e-12 if found.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(on_host[name], found, rtol=tolerance, err_msg=name)


def test_default_metrics_belong_to_the_task() -> None:
    for task in TASKS:
        assert set(default_metrics(task)) <= set(TASK_METRICS[task])
    assert default_metrics("decode") == ("tpot", "tokens_per_second", "memory", "limiter", "reason")


@pytest.mark.parametrize(
    ("task", "metrics", "launch", "said"),
    [
        ("decod", ("tpot",), "graph", "Did you mean decode"),
        ("decode", ("ttft",), "graph", "Task decode has no metric 'ttft'"),
        ("prefill", ("ttf",), "graph", "Did you mean ttft"),
        ("decode", ("tpot",), "cuda", "allowed: graph, eager"),
    ],
)
def test_bad_studies(task: str, metrics: tuple[str, ...], launch: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Study(GPT2, task, metrics, launch)
    if task == "decod":
        with pytest.raises(InputError, match=said):
            default_metrics(task)


def test_formats_bring_their_activations() -> None:
    formats = formats_of("fp8", "fp16")
    assert float(formats["weights"].itemsize) == 1.0 and float(formats["activations"].itemsize) == 2.0
    with pytest.raises(InputError, match="allowed here"):
        formats_of("fp8", "int4")
