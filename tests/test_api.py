"""The Python face: three lines to a labelled sweep, gradients through a step, and errors that help."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxperf as jp

GPT2, VIT = jp.load_model("gpt2"), jp.load_model("vit-base-16")
STEP = jp.decode_step(GPT2)
BF16 = {"weights": "bf16"}
H100, MI300X = jp.load_devices("h100-sxm", "mi300x")


def test_public_names() -> None:
    assert set(jp.__all__) <= set(dir(jp))
    for name in jp.__all__:
        assert getattr(jp, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'estimat'"):
        jp.estimat  # noqa: B018


def test_three_lines_make_a_labelled_sweep() -> None:
    h100, mi300x = jp.load_devices("h100-sxm", "mi300x")
    step = jp.decode_step(jp.load_model("llama-3-70b"))
    times = jp.sweep(step, device=[h100, mi300x], tensor_parallel=[1, 2, 4, 8], batch=jp.powers(1, 512))
    assert dict(times.sizes) == {"device": 2, "tensor_parallel": 4, "batch": 10}
    assert list(times.device.values) == ["0", "1"] and list(times.batch.values) == [2**i for i in range(10)]
    assert times.time.attrs["units"] == "s" and times.memory.attrs["units"] == "B"
    assert times.limiter.attrs["flag_meanings"].split()[1] == "memory" and times.reason.attrs["flag_masks"][1] == 2
    feasible = times.reason == 0
    assert bool((times.time.isnull() == ~feasible).all()) and bool(feasible.any())
    one = step(mi300x, tensor_parallel=8, batch=64, context=2048)
    assert float(times.time.sel(device="1", tensor_parallel=8, batch=64)) == pytest.approx(float(one.time), rel=1e-6)


def test_devices_by_name_or_mapping_are_labelled_with_them() -> None:
    by_name = jp.sweep(STEP, device=["h100-sxm", "mi300x"], context=64)
    by_mapping = jp.sweep(STEP, device={"mine": H100, "other": "mi300x"}, context=64)
    alone = jp.sweep(STEP, device="h100-sxm", context=64)
    assert list(by_name.device.values) == ["h100-sxm", "mi300x"]
    assert list(by_mapping.device.values) == ["mine", "other"]
    assert list(alone.device.values) == ["h100-sxm"]
    np.testing.assert_array_equal(by_name.time.values, by_mapping.time.values)


def test_formats_arrays_and_scalars_as_axes() -> None:
    batches = np.array([1, 2, 4])
    found = jp.sweep(
        STEP, device=H100, weights=["bf16", "w8a8"], kv_cache="fp8", batch=batches, context=jnp.array([64.0])
    )
    assert list(found.weights.values) == ["bf16", "int8"] and list(found.kv_cache.values) == ["fp8"]
    assert bool((found.memory.sel(weights="int8") < found.memory.sel(weights="bf16")).all())


def test_one_trace_per_sweep() -> None:
    traces = []

    def step(device: jp.Device, **given: Any) -> Any:
        traces.append(given)
        return STEP(device, **given)

    jp.sweep(step, device=["h100-sxm", "l4", "a10"], batch=[1, 2, 3], context=jp.linspace(64, 512, 8))
    assert len(traces) == 1


def test_prefill_and_serve_sweeps() -> None:
    prefill = jp.sweep(jp.prefill_step(GPT2), device="l4", prompt=[64, 128])
    serve = jp.sweep(jp.serve_step(GPT2), device="l4", prompt=[64, 128], output=[8, 16])
    assert float(prefill.time[0, 0]) < float(prefill.time[0, 1])
    assert {"ttft", "tpot", "tokens_per_second", "memory", "limiter", "reason"} == set(serve.data_vars)


@pytest.mark.parametrize("wide", [True, False])
def test_gradients_through_a_step(wide: bool) -> None:
    with jax.enable_x64(wide):
        device = jp.load_device("h100-sxm")
        step = jp.decode_step(GPT2)

        def time(bandwidth: Any) -> Any:
            return step(device.replace(memory_bandwidth=bandwidth), batch=32, context=512).time

        slope = jax.grad(time)(device.memory_bandwidth)
        assert slope.dtype == (jnp.float64 if wide else jnp.float32)
        assert np.isfinite(float(slope)) and float(slope) < 0.0
        if wide:
            step_size = float(device.memory_bandwidth) * 1e-5
            up, down = (float(time(device.memory_bandwidth + sign * step_size)) for sign in (1.0, -1.0))
            assert float(slope) == pytest.approx((up - down) / (2 * step_size), rel=1e-4)


def test_levels_bracket_the_nominal() -> None:
    levels = ("low", "nominal", "high", "roofline")
    low, nominal, high, roofline = (float(STEP(H100, context=64, level=level).time) for level in levels)
    assert roofline < high < nominal < low


def test_a_plain_device_has_the_assumed_efficiencies() -> None:
    plain = H100.device
    assert float(STEP(plain, context=64).time) != float(STEP(H100, context=64).time)
    assert float(STEP(plain, context=64, level="high").time) == float(STEP(plain, context=64, level="roofline").time)


def test_a_step_takes_a_device_and_formats_by_name() -> None:
    named = STEP("h100", tensor_parallel=4, context=64, weights="bf16", activations="bf16")
    assert float(named.time) == float(STEP(H100, tensor_parallel=4, context=64, weights="bf16").time)


def test_weights_are_in_the_format_of_the_model_unless_asked_otherwise() -> None:
    model = jp.load_model("deepseek-v3")
    step, at = jp.decode_step(model), {"tensor_parallel": 8, "context": 64}
    assert model.weight_format == "fp8"
    own, named, wide = (float(step("h200", **at, **given).memory.weights) for given in ({}, {"weights": "fp8"}, BF16))
    assert own == named < wide
    assert jp.sweep(step, device="h200", **at).memory.item() == float(step("h200", **at).memory.total)


def test_calibrated_and_plain_devices_are_not_mixed() -> None:
    with pytest.raises(jp.InputError, match="mixes calibrated devices"):
        jp.sweep(STEP, device={"a": H100, "b": MI300X.device})


def test_a_calibrated_device_shows_the_facts_of_its_device() -> None:
    wider = H100.replace(memory_bandwidth=4e12)
    assert float(wider.memory_bandwidth) == pytest.approx(4e12, rel=1e-6)
    assert float(wider.num_cores) == float(H100.num_cores)
    with pytest.raises(AttributeError, match="nothing"):
        H100.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({}, "A sweep needs a device"),
        ({"device": "h100-sxn"}, "Did you mean h100-sxm"),
        ({"device": [5]}, "'device' holds a int"),
        ({"device": 5}, "'device' holds a int"),
        ({"device": []}, "empty"),
        ({"device": H100, "batchh": [1]}, "This step takes no 'batchh'"),
        ({"device": H100, "prompt": [1]}, "This step takes no 'prompt'; allowed: device, tensor_parallel"),
        ({"device": H100, "batch": [0]}, "'batch' is 0"),
        ({"device": H100, "batch": [float("nan")]}, "'batch' is NaN"),
        ({"device": H100, "context": -1}, "'context' is -1"),
        ({"device": H100, "batch": []}, "empty"),
        ({"device": H100, "batch": [1, 1]}, "twice"),
        ({"device": H100, "routing_skew": [1.0, 2.0]}, "'routing_skew' changes nothing of .*, which has no experts"),
        ({"device": H100, "tensor_parallel": ["2"]}, "'tensor_parallel' is"),
        ({"device": H100, "weights": ["bf61"]}, "Did you mean bf16"),
        ({"device": H100, "weights": [8]}, "must be the name of a number format"),
        ({"device": H100, "kv_cache": "int4"}, "allowed here"),
        ({"device": H100, "level": ["low", "high"]}, "'level' is fixed for a sweep"),
        ({"device": H100, "activations": "bf16"}, "'activations' is fixed for a sweep"),
        ({"device": H100, "context": np.linspace(1, 2**20, 10**6), "batch": np.arange(1.0, 10**6)}, "points"),
    ],
)
def test_sweep_mistakes(axes: dict[str, Any], said: str) -> None:
    with pytest.raises(jp.InputError, match=said):
        jp.sweep(STEP, **axes)


def test_an_axis_of_several_values_that_change_nothing_is_refused_and_one_value_is_not() -> None:
    step = jp.decode_step(jp.load_model("mamba-130m"))
    with pytest.raises(jp.InputError, match="'kv_cache' changes nothing of mamba-130m, which keeps no keys"):
        jp.sweep(step, device=H100, kv_cache=["bf16", "fp8"])
    assert jp.sweep(step, device=H100, kv_cache="fp8", routing_skew=[2.0]).time.shape == (1, 1, 1)


@pytest.mark.parametrize(("name", "value"), [("activations", "fp8"), ("level", "low")])
def test_what_a_sweep_has_fixed_is_fixed_as_its_message_says(name: str, value: str) -> None:
    with pytest.raises(jp.InputError) as refused:
        jp.sweep(STEP, device=H100, **{name: value})
    told = str(refused.value).partition("one for each value: ")[2].removesuffix(".")
    fixed = eval(told.replace("...", repr(value)), {"step": STEP})
    found = jp.sweep(fixed, device=H100, weights=["fp8", "bf16"], context=64)
    for weights in ("fp8", "bf16"):
        alone = float(STEP(H100, context=64, weights=weights, **{name: value}).time)
        assert float(found.time.sel(weights=weights).item()) == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: STEP(H100, contxt=64), "Did you mean context"),
        (lambda: STEP(H100, activation="fp8"), "allowed: .*activations, .*Did you mean activations"),
        (lambda: jp.prefill_step(GPT2)(H100, media_tokens=20), "'media_tokens' changes nothing of gpt2"),
        (lambda: jp.sweep(STEP, device=H100, source=[1, 1000]), "'source' changes nothing of gpt2, which has no cross"),
        (lambda: jp.prefill_step(VIT)(H100, prompt=100), "'prompt' changes nothing of vit-base-16, which reads"),
        (lambda: jp.prefill_step(VIT)(H100, outputs=2), "'outputs' changes nothing of vit-base-16"),
        (lambda: jp.serve_step("gpt2"), "'model' is \"gpt2\"; give a description"),  # type: ignore[arg-type]
        (lambda: STEP(H100, weights="fp9"), "Did you mean fp8"),
        (lambda: STEP(H100, kv_cache="int4"), "allowed here"),
        (lambda: STEP("h100-sxn", context=64), "Did you mean h100-sxm"),
        (lambda: STEP(5, context=64), "'device' holds a int"),
        (lambda: STEP(H100, weights=8), "Unknown number format 8"),
        (lambda: STEP(H100, activations="bf61"), "Did you mean bf16"),
        (lambda: STEP(H100, tensor_parallel="8"), "'tensor_parallel' is"),
        (lambda: STEP(H100, batch=[1, 2]), "'batch' is .*one number"),
        (lambda: STEP(H100, batch=None), "'batch' is"),
        (lambda: STEP(H100, context=jnp.arange(3)), "'context' is .*jax.vmap"),
        (lambda: STEP(H100, context=np.complex64(64)), "'context' is a value of type complex64"),
        (lambda: STEP(H100, context=np.array(True)), "'context' is a value of type"),
        (lambda: STEP(H100, level="highest"), "allowed: low, nominal, high, roofline. Did you mean high"),
        (lambda: jp.decode_step(GPT2, launch="grph"), "Did you mean graph"),
        (lambda: jp.decode_step(GPT2, launch=None), "Unknown launch mode None"),  # type: ignore[arg-type]
        (lambda: jp.sweep(None, device=H100), "'step' is null; give a step"),  # type: ignore[arg-type]
        (lambda: jp.sweep(lambda device, batch: batch, device=H100, batch=[1, 2]), "must have time, memory, limiter"),
        (lambda: jp.sweep(STEP, device=H100, batch=[1, [2]]), "'batch' holds lists of different lengths"),
        (lambda: jp.lower(None), "a value of type NoneType; give what jaxperf.trace"),  # type: ignore[arg-type]
        (lambda: jp.read_config(None), "No file or directory null"),  # type: ignore[arg-type]
        (lambda: jp.read_onnx(None), "The ONNX model is None"),  # type: ignore[arg-type]
        (lambda: jp.load_device("l4", params=3), "The parameters are 3; give"),  # type: ignore[arg-type]
        (lambda: jp.load_device("l4", [3]), r"The folders of devices are \[3\]"),  # type: ignore[list-item]
        (lambda: jp.load_device("l4", None), "The folders of devices are None"),  # type: ignore[arg-type]
        (lambda: jp.load_model("gpt22"), "Did you mean gpt2"),
        (lambda: jp.load_devices("h100", "nope"), "is not a known device"),
        (lambda: jp.load_devices(3), "A device is 3; give its name"),  # type: ignore[arg-type]
        (lambda: jp.load_model(3), "The model is 3; give a config.json"),  # type: ignore[arg-type]
        (lambda: H100.replace(memory_bandwith=1.0), "no 'memory_bandwith'; allowed: .*Did you mean memory_bandwidth"),
        (lambda: H100.replace(memory_bandwidth="3 TB/s"), "'memory_bandwidth' of a device is '3 TB/s'"),
        (lambda: H100.replace(memory_bandwidth=None), "'memory_bandwidth' of a device is None"),
        (lambda: H100.replace(memory_bandwidth=-1.0), "'memory_bandwidth' of a device is -1.0"),
        (lambda: H100.device.replace(tdp=float("nan")), "'tdp' of a device is nan"),
        (lambda: H100.replace(peak_flops=[1e12, -1e12]), "'peak_flops' of a device is -1"),
    ],
)
def test_step_mistakes(call: Any, said: str) -> None:
    with pytest.raises(jp.InputError, match=said):
        call()


def test_a_whole_number_that_no_integer_of_jax_holds_is_a_point_that_does_not_run() -> None:
    for context in (10**30, 10**400):
        cost = STEP(H100, context=context)
        assert np.isnan(cost.time) and int(cost.reason) != 0


def test_traced_numbers_of_a_device_are_not_checked() -> None:
    turned = jax.jit(lambda rate: H100.replace(memory_bandwidth=rate, peak_flops=[rate] * 9).memory_bandwidth)
    assert float(turned(-1.0)) == -1.0
    several = H100.device.replace(memory_bandwidth=jnp.array([1e12, 2e12]), num_cores=np.float32(4), node_size=8)
    assert several.memory_bandwidth.shape == (2,) and float(several.num_cores) == 4.0
