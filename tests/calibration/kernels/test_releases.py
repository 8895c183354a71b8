"""Software never measured on a device is read as on a relative, or as the nearest release; its own tiles stay."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from calibration.datasets.schema import KernelTable
from calibration.kernels.adapt import adapt
from calibration.kernels.parameters import Parameters, load_parameters
from calibration.kernels.predict import predict_table
from tests.calibration.tables import as_read, blank_table, in_stack, with_latency

TORCH, CUTLASS = "torch.nn.functional.linear", "CutlassFP8ScaledMMLinearKernel"
NEAREST = "this release never measured on this device: what was learned of the nearest one"
NEVER = "this kernel and version never measured"
NUMBERS = ("predicted_us", "lower_us", "upper_us")


@pytest.fixture(scope="module")
def shipped() -> Parameters:
    return load_parameters()


def gemms(
    version: str, kernel: str = "", framework: str = "vllm", dtype: str = "bf16", device: str = "h100-sxm"
) -> KernelTable:
    """Four square products of one release."""
    sizes = np.array([256.0, 1024.0, 4096.0, 8192.0])
    shape = {"m": sizes, "n": sizes, "k": sizes, "batch": np.ones(4)}
    return in_stack(blank_table("gemm", shape, np.full(4, device, object), dtype), framework, version, kernel)


@pytest.mark.parametrize(
    ("asked", "read"),
    [
        (gemms("0.20.0", TORCH), gemms("0.24.0", TORCH)),  # four releases from it, six from 0.14.0
        (gemms("0.16.0"), gemms("0.14.0")),
        (gemms("nightly"), gemms("0.24.0")),
        (gemms("0.30.1"), gemms("0.24.0")),  # the only kernel of the nearest release
        (gemms("0.30.1", "of_another_name"), gemms("0.24.0", TORCH)),  # the format tells a product's kernel
        (gemms("0.22.0", dtype="fp8"), gemms("0.24.0", CUTLASS, dtype="fp8")),  # quantized first, as that layer
        (gemms("0.5.12", framework="sglang"), gemms("0.5.14", framework="sglang")),  # as near as 0.5.10, and newer
        (gemms("1.2.0", framework="trtllm"), gemms("1.3.0rc20", framework="trtllm")),
    ],
)
def test_the_nearest_release_stands_in(shipped: Parameters, asked: KernelTable, read: KernelTable) -> None:
    found, measured = predict_table(asked, shipped), predict_table(read, shipped)
    np.testing.assert_allclose(found["predicted_us"], measured["predicted_us"], rtol=1e-6)
    assert set(measured["tier"]) == {"measured"} and set(found["tier"]) == {"transfer"}
    assert (found["upper_us"] / found["lower_us"] > measured["upper_us"] / measured["lower_us"]).all()
    assert set(found["reason"]) == {NEAREST}


def test_a_release_is_the_same_without_its_last_zero(shipped: Parameters) -> None:
    short, whole = (predict_table(gemms(each, TORCH), shipped) for each in ("0.24", "0.24.0"))
    assert all((short[name] == whole[name]).all() for name in whole) and set(short["tier"]) == {"measured"}
    assert set(predict_table(gemms("0.24.1", TORCH), shipped)["tier"]) == {"transfer"}


@pytest.mark.parametrize(
    "asked",
    [
        gemms("0.22.0", dtype="fp8_block"),  # the nearest release has three kernels
        gemms(""),
        gemms("0.22.0", device="b200"),
        gemms("0.22.0", framework="another"),
    ],
)
def test_nothing_stands_in_where_the_kernel_is_not_told_or_none_was_measured(
    shipped: Parameters, asked: KernelTable
) -> None:
    assert not any(NEAREST in reason for reason in predict_table(asked, shipped)["reason"])


def test_attention_by_another_kernel_is_not_what_was_measured(shipped: Parameters) -> None:
    shape = {"batch": 8.0, "heads": 32.0, "kv_heads": 8.0, "head_dim": 128.0, "kv_len": 4096.0, "window": 0.0}
    columns = {name: np.full(2, value) for name, value in shape.items()}
    table = blank_table("attention_decode", columns, np.full(2, "h100-sxm", object))
    table = dataclasses.replace(table, cache=np.full(2, "bf16", object))
    known = sorted(
        {
            name.split("/")[3]
            for name in shipped.families["attention_decode"].names.known["cell"]
            if name.startswith("h100-sxm/vllm/0.24.0/") and name.endswith("/bf16/bf16/")
        }
    )
    named, unknown = (in_stack(table, "vllm", "0.25.0", kernel) for kernel in (known[0], "of_another_name"))
    assert set(predict_table(named, shipped)["reason"]) == {NEAREST}
    assert set(predict_table(unknown, shipped)["reason"]) == {NEVER}


RELATIVE = "measured on a relative of this device: what was learned there"


def test_a_relative_measured_in_the_same_stack_stands_in(shipped: Parameters) -> None:
    """The H800 and the H200 NVL are chips of Hopper like the H100 and the H200; the H20 and the B200 are none."""
    for device, relative in (("h800-sxm", "h100-sxm"), ("h200-nvl", "h200-sxm")):
        found, measured = (predict_table(gemms("0.24.0", TORCH, device=name), shipped) for name in (device, relative))
        assert all(reason.endswith(RELATIVE) for reason in found["reason"]) and set(found["tier"]) == {"transfer"}
        assert (np.abs(found["predicted_us"] / measured["predicted_us"] - 1.0) < 0.15).all()
        assert (found["upper_us"] / found["lower_us"] > measured["upper_us"] / measured["lower_us"]).all()
    for stranger in ("h20", "b200"):
        found = predict_table(gemms("0.24.0", TORCH, device=stranger), shipped)
        assert not any(RELATIVE in reason for reason in found["reason"])


def test_a_relative_is_asked_for_the_nearest_release_after_the_device_itself(shipped: Parameters) -> None:
    (reason,) = set(predict_table(gemms("0.20.0", TORCH, device="h200-nvl"), shipped)["reason"])
    assert NEAREST in reason and RELATIVE in reason
    assert set(predict_table(gemms("0.20.0", TORCH), shipped)["reason"]) == {NEAREST}


def test_a_stack_measured_elsewhere_keeps_what_is_known_of_it(shipped: Parameters) -> None:
    """TensorRT-LLM 1.0.0 was measured on A100 and L40S: on the H100 it is neither a later release nor a stranger."""
    older, newer = (predict_table(gemms(each, "torch_flow", "trtllm"), shipped) for each in ("1.0.0", "1.3.0rc20"))
    assert set(older["reason"]) == {NEAREST}
    assert (older["predicted_us"] != newer["predicted_us"]).all()


def test_a_device_adapted_to_a_new_release_is_moved_once(shipped: Parameters) -> None:
    new = gemms("0.30.0", TORCH)
    slower = 2e-6 * predict_table(new, shipped)["predicted_us"]
    rows = with_latency(new, slower)
    one = dataclasses.replace(shipped, families={"gemm": shipped.families["gemm"]})
    moved = predict_table(new, adapt(one, [as_read(rows)]))
    np.testing.assert_allclose(1e-6 * moved["predicted_us"], slower, rtol=0.15)
    assert set(moved["tier"]) == {"adapted"} and not any(NEAREST in reason for reason in moved["reason"])


@pytest.mark.parametrize(
    ("device", "relative", "framework", "version"),
    [("l40", "l40s", "vllm", "0.24.0"), ("h20", "h200-sxm", "trtllm", "1.3.0rc20")],
)
def test_a_kernel_is_chosen_as_for_its_generation(
    shipped: Parameters, device: str, relative: str, framework: str, version: str
) -> None:
    """vLLM 0.24 has FlashAttention 2 on Ada and 3 on Hopper, also for boards with a part of the matrix rate."""
    shape = {
        "batch": 1.0,
        "heads": 32.0,
        "kv_heads": 8.0,
        "head_dim": 128.0,
        "q_len": 4096.0,
        "prefix": 0.0,
        "window": 0.0,
    }
    columns = {name: np.full(1, value) for name, value in shape.items()}
    table = blank_table("attention_prefill", columns, np.full(1, device, object))
    table = in_stack(dataclasses.replace(table, cache=np.full(1, "bf16", object)), framework, version, "")
    of_it = [
        name.split("/")[3]
        for name in shipped.families["attention_prefill"].names.known["cell"]
        if name.startswith(f"{relative}/{framework}/{version}/") and name.endswith("/bf16/bf16/")
    ]
    assert len(of_it) == 1
    left_open, named = (predict_table(in_stack(table, framework, version, each), shipped) for each in ("", *of_it))
    assert left_open["predicted_us"] == named["predicted_us"]
