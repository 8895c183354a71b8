"""A training sweep's point is `training_step` of the layout it names, and what cannot be asked is refused."""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from hwspecs.errors import InputError
from jaxperf.core.device import load_device
from jaxperf.core.metric import column_units
from jaxperf.core.numerics import stack
from jaxperf.io.huggingface import load_model
from jaxperf.sweeps import Sweep
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.layout import module_fields, training_layout
from jaxperf.training.layout_checks import TrainingReason
from jaxperf.training.memory import stage_memory
from jaxperf.training.model_build import training_model
from jaxperf.training.step import training_step
from jaxperf.training.study import METRICS, RatedDevice, TrainingStudy
from jaxperf.training.study_axes import checked_values

WIDTHS = (0.2, 2.0)  # of which the second leads beyond the peak
ASKED = {
    "device": ["h100-sxm", "a100-sxm-80gb"],
    "world_size": [16, 20],
    "layout": {"tensor_parallel": [2, 4, 1], "pipeline_parallel": [2, 1, 8]},
    "recompute": ["none", "full"],
    "dtype": ["bf16", "fp8"],
    "global_batch": 80,
}


def rated(name: str, formats: int = 2) -> RatedDevice:
    """Efficiencies of the second format differ from those of the first."""
    levels = [assumed_training_efficiencies(level) for level in ("nominal", "high")][:formats]
    return RatedDevice(load_device(name), stack(levels), jnp.asarray(WIDTHS[:formats]))


@pytest.fixture(scope="module")
def swept() -> dict[str, np.ndarray]:
    """All metrics of the sweep."""
    study = TrainingStudy(load_model("llama-2-7b"), tuple(METRICS))
    axes = study.axes(ASKED, {name: rated(name) for name in ASKED["device"]})
    results = Sweep(study.point(), axes).dense()
    assert set(column_units(study.facts)) == set(results.metrics)
    return {name: values.reshape(2, 2, 3, 2, 2) for name, values in results.metrics.items()}


def test_what_saves_memory_can_be_swept() -> None:
    """Modules that are computed again and what the host has, beside the step of one layout."""
    config = load_model("mixtral-8x7b")
    study = TrainingStudy(config, ("memory", "offloaded_memory", "reason"))
    modules, memory = ["core_attn", "moe_act+layernorm"], ["60 GB", 100e9]
    asked = {"device": "h100-sxm", "data_parallel": 8, "expert_parallel": 8, "recompute_modules": modules}
    asked |= {"offload_optimizer": [0.5, 1.0], "host_memory": memory}
    model, rates = training_model(config), assumed_training_efficiencies()
    found = Sweep(study.point(), study.axes(asked, {"h100-sxm": rated("h100-sxm")})).dense().metrics
    assert found["reason"].size == 8
    for place, (names, share, host) in enumerate(itertools.product(modules, (0.5, 1.0), (60e9, 100e9))):
        layout = training_layout(
            recompute="selective", data=8, expert=8, global_batch=1024, offload_optimizer=share, host_memory=host,
            deduplicate=1.0, **module_fields(names.split("+")),
        )  # fmt: skip
        kept = stage_memory(model, layout, rates.imbalance, rates.reserved_memory)
        assert found["memory"].ravel()[place] == pytest.approx(float(kept.total))
        assert found["offloaded_memory"].ravel()[place] == pytest.approx(float(kept.host))
        over = bool(int(found["reason"].ravel()[place]) & TrainingReason.HOST)
        assert over is (float(kept.host) > host)
    assert {bool(int(each) & TrainingReason.HOST) for each in found["reason"].ravel()} == {False, True}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"recompute_modules": "moe_act"}, "llama-2-7b has no moe_act; it has core_attn, layernorm, mlp"),
        ({"recompute_modules": "mlpp"}, "Did you mean mlp"),
        ({"recompute_modules": "mlp", "recompute": "full"}, "add 'recompute: selective'"),
        ({"recomputed_share": 0.5}, "nothing does"),
        ({"offload_optimizer": 1.5}, "from 0 to 1"),
        ({"host_memory": "10 GB"}, "of what is offloaded"),
        ({"host_memory": "10 GB", "offload_optimizer": 0}, "of what is offloaded"),
        ({"host_memory": 0, "offload_optimizer": 1}, "it must be a size"),
        ({"host_memory": "ten", "offload_optimizer": 1}, "'host_memory': "),
    ],
)
def test_what_saves_no_memory_is_refused(wrong: dict[str, Any], told: str) -> None:
    study = TrainingStudy(load_model("llama-2-7b"))
    with pytest.raises(InputError, match=told):
        study.axes({"device": "h100-sxm", **wrong}, {"h100-sxm": 0.0})


@pytest.mark.parametrize("place", [(0, 0, 0, 0, 0), (1, 0, 1, 1, 0), (0, 1, 1, 0, 1)])
def test_a_point_is_a_training_step(swept: dict[str, np.ndarray], place: tuple[int, ...]) -> None:
    device, world, layout, recompute, dtype = place
    tensor, pipeline = ASKED["layout"]["tensor_parallel"][layout], ASKED["layout"]["pipeline_parallel"][layout]
    devices = ASKED["world_size"][world]
    step = training_step(
        training_model(load_model("llama-2-7b")),
        training_layout(
            ASKED["dtype"][dtype],
            recompute=ASKED["recompute"][recompute],
            tensor=tensor,
            pipeline=pipeline,
            data=devices // (tensor * pipeline),
            devices=devices,
            global_batch=80,
            deduplicate=1.0,
        ),
        load_device(ASKED["device"][device]),
        assumed_training_efficiencies(("nominal", "high")[dtype]),
    )
    assert swept["reason"][place] == int(step.reason) == 0
    expected = {
        "step_time": step.time,
        "step_time_upper": step.time * math.exp(WIDTHS[dtype]),
        "step_time_lower": step.time * max(math.exp(-WIDTHS[dtype]), float(step.mfu)),
        "mfu": step.mfu,
        "mfu_lower": step.mfu * math.exp(-WIDTHS[dtype]),
        "mfu_upper": min(step.mfu * math.exp(WIDTHS[dtype]), 1.0),
        "memory": step.memory.total,
        "num_devices": devices,
        "tokens_per_second_per_device": step.tokens_per_second / devices,
        "energy_per_token": load_device(ASKED["device"][device]).tdp * devices * step.time / (80 * 4096),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(swept[name][place], float(value), rtol=1e-9, err_msg=name)


def test_devices_that_no_layout_fills_are_data_with_a_reason(swept: dict[str, np.ndarray]) -> None:
    eight_stages = swept["reason"][:, 1, 2]  # 20 devices are two replicas of 8, and four left over
    assert (eight_stages & int(TrainingReason.WORLD)).all()
    assert not (swept["reason"][:, :, :2] & int(TrainingReason.WORLD)).any()
    for name in ("step_time", "step_time_upper", "mfu", "energy_per_token"):
        assert np.isnan(swept[name][:, 1, 2]).all()


def test_a_format_that_a_zip_axis_repeats_keeps_its_efficiencies() -> None:
    layout = {"dtype": ["bf16", "fp8", "BF16"], "tensor_parallel": [1, 2, 4]}
    _, zipped, *_ = TrainingStudy(load_model("gpt2")).axes(
        {"device": ["h100-sxm"], "layout": layout}, {"h100-sxm": rated("h100-sxm")}
    )
    assert zipped.arguments["place"].tolist() == [0, 1, 0]


def test_whole_numbers_may_be_written_as_floats() -> None:
    assert checked_values("zero", [2.0, np.float32(3.0)]) == [2, 3]


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"tensor": [1]}, "'tensor' is not a parameter of task train"),
        ({"world_size": [8], "data_parallel": [8]}, "give one"),
        ({"schedule": ["1f1bb"]}, "Did you mean 1f1b?"),
        ({"schedule": [1]}, "must be the name of a schedule"),
        ({"dtype": ["bf17"]}, "bf16"),
        ({"zero": [4]}, "must be a whole number from 0 to 3"),
        ({"zero": [2.5]}, "'zero' is 2.5; it must be a whole number from 0 to 3"),
        ({"world_size": [8, 8.5]}, "'world_size' is 8.5; it must be a whole number"),
        ({"microbatch": [0]}, "must be a whole number from 1"),
        ({"sequence": [math.nan]}, "must be a whole number from 1"),
        ({"recompute": []}, "is empty"),
        ({"sequence": [10**400]}, "must be a whole number from 1"),
        ({"dtype": {"tensor_parallel": [1]}}, "The zip axis 'dtype' has the name of a parameter"),
        ({"layout": {"dtype": ["bf16", "fp8"], "tensor_parallel": [1]}}, "axes of equal length"),
        ({"layout": {"world_size": [8], "data_parallel": [8]}}, "give one"),
    ],
)
def test_what_cannot_be_asked_is_refused(axes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match="(?s)" + said.replace("?", r"\?")):
        TrainingStudy(load_model("gpt2")).axes({"device": ["h100-sxm"], **axes}, {"h100-sxm": rated("h100-sxm")})


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(InputError, match="has no metric 'tpot'"):
        TrainingStudy(load_model("gpt2"), ("tpot",))
