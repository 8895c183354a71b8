"""One configuration: the splits a model allows, stand-ins said aloud, explanations that add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hwspecs
from hwspecs.errors import InputError
from jaxperf.core.cost import Limiter
from jaxperf.core.device import load_devices, stand_in_of
from jaxperf.core.formats import FORMATS
from jaxperf.io.huggingface import load_model, model_names
from jaxperf.serving.estimate import ESTIMATE_METRICS, check_tensor_splits, estimate, tensor_splits
from jaxperf.serving.explain import PHASES, explain, limiter_shares
from jaxperf.serving.study import Study

H100, A100, V100 = (hwspecs.load(name) for name in ("h100-sxm", "a100-sxm-80gb", "v100-sxm-32gb"))
POINT: dict[str, Any] = {
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "expert_parallel": 1,
    "data_parallel": 1,
    "batch": 4,
    "prompt": 64,
    "output": 8,
    "weights": "bf16",
    "kv_cache": "bf16",
}
GPT2 = load_model("gpt2")


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("gpt2", [1, 2, 3, 4, 6, 12]), ("llama-3-70b", [1, 2, 4, 8, 16, 32, 64]), ("mixtral-8x7b", [1, 2, 4, 8, 16, 32])],
)
def test_tensor_splits(name: str, allowed: list[int]) -> None:
    assert tensor_splits(load_model(name)) == allowed


@pytest.mark.parametrize("each", [pytest.param(1, marks=pytest.mark.long), 48])
def test_one_device_serves_every_shipped_model(each: int) -> None:
    for name in model_names()[::each]:
        assert tensor_splits(load_model(name))[0] == 1


def test_a_sweep_needs_one_split_that_divides() -> None:
    check_tensor_splits(GPT2, [5, 12])
    with pytest.raises(InputError, match="tensor_parallel 5 or 7 does not divide .* allowed: 1, 2, 3, 4, 6, 12"):
        check_tensor_splits(GPT2, [5, 7])


def test_stand_ins() -> None:
    assert stand_in_of(H100, "fp8") is None and stand_in_of(A100, "fp8") == "bf16"
    assert stand_in_of(V100, "bf16") == "fp16" and stand_in_of(H100, "fp4") == "bf16"
    for spec in (H100, A100, V100):
        for facts in FORMATS.values():
            assert stand_in_of(spec, facts.compute) != "nothing"


def test_an_estimate() -> None:
    found = estimate(GPT2, H100, POINT)
    assert found.feasible and found.reasons == []
    assert found.peak == pytest.approx(H100.peak_flops["bf16"].si, rel=1e-6)
    assert not any("matrix units" in note for note in found.notes)
    assert found.notes[-1].startswith("energy: uncalibrated"), "nobody metered it"
    old = estimate(GPT2, V100, {**POINT, "weights": "fp8"})
    assert f"{V100.name} has no fp8 matrix units: weights are multiplied in fp16." in old.notes
    assert f"{V100.name} has no bf16 matrix units: activations are multiplied in fp16." in old.notes
    assert old.peak == pytest.approx(V100.peak_flops["fp16"].si, rel=1e-6)


def test_an_infeasible_estimate_gives_its_reasons() -> None:
    found = estimate(GPT2, H100, {**POINT, "prompt": 4096})
    assert not found.feasible and found.reasons == ["the context is longer than the model was trained for"]
    assert np.isnan(found.explanation.metrics["tpot"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tensor_parallel": 5}, "allowed: 1, 2, 3"),
        ({"pipeline_parallel": 13}, "more than 12 layers"),
        ({"expert_parallel": 2}, "gpt2 is dense"),
        ({"data_parallel": 8}, "batch 4 is less than data_parallel 8"),
        ({"batch": 0}, "'batch' is 0"),
        ({"weights": "fp9"}, "Unknown number format"),
    ],
)
def test_refused_layouts(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        estimate(GPT2, H100, {**POINT, **change})


@pytest.mark.long
def test_points_explained_together_are_points_explained_alone() -> None:
    study = Study(GPT2, "serve", ESTIMATE_METRICS)
    devices = load_devices("h100-sxm", "l4")
    points = [POINT, {**POINT, "batch": 9, "tensor_parallel": 2}]
    together = explain(study, devices, points)
    for found, device, point in zip(together, devices, points, strict=True):
        (alone,) = explain(study, [device], [point])
        for name, value in found.metrics.items():
            np.testing.assert_allclose(value, alone.metrics[name], rtol=1e-12 if value.dtype == np.float64 else 1e-5)
    assert float(together[1].metrics["num_devices"]) == 2.0


def test_limiter_shares_add_up_and_are_sorted() -> None:
    (found,) = explain(Study(GPT2, "serve", ESTIMATE_METRICS), [load_devices("h100-sxm")[0]], [POINT])
    for phase in PHASES:
        shares = limiter_shares(found, phase)
        assert list(shares.values()) == sorted(shares.values(), reverse=True)
        assert 0.97 <= sum(shares.values()) <= 1.0 + 1e-9 and set(shares) <= set(Limiter)
