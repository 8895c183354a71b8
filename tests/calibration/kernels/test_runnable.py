"""Kernels asked of devices that cannot run them: a generic kernel answers in their place, and the row says so."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import hwspecs
from calibration.datasets.groups import group
from calibration.datasets.runnable import NVIDIA, runs_on
from calibration.datasets.schema import KernelTable
from calibration.datasets.stated_formats import UNKNOWN_CACHE
from calibration.kernels.as_known import with_runnable_kernels
from calibration.kernels.inputs import prepare
from calibration.kernels.parameters import Parameters, load_parameters
from calibration.kernels.predict import predict_table
from calibration.kernels.remarks import FOREIGN, NO_CACHE, REMARKS
from tests.calibration.tables import blank_table

SAID = REMARKS[FOREIGN.bit_length() - 1]
HEADS = {"heads": [32.0, 8.0], "kv_heads": [8.0, 1.0], "head_dim": [128.0, 64.0], "window": [0.0, 0.0]}
SHAPES = {
    "attention_prefill": {"batch": [1.0, 8.0], "q_len": [4096.0, 512.0], "prefix": [0.0, 0.0], **HEADS},
    "attention_decode": {"batch": [64.0, 1.0], "kv_len": [4096.0, 32768.0], **HEADS},
    "attention_mixed": {"prefill_q": [512.0, 0.0], "prefill_kv": [0.0] * 2, "n_decode": [32.0] * 2, **HEADS}
    | {"kv_decode": [32768.0] * 2},
    "mla_prefill": {"heads": [128.0, 16.0], "batch": [1.0, 4.0], "q_len": [4096.0] * 2, "kv_len": [4096.0] * 2},
    "mla_decode": {"heads": [128.0, 16.0], "batch": [64.0, 4.0], "q_len": [1.0] * 2, "kv_len": [4096.0] * 2},
    "moe": {"tokens": [16.0, 4096.0], "hidden": [4096.0] * 2, "inter": [14336.0] * 2, "topk": [2.0] * 2}
    | {"experts": [8.0] * 2, "tp": [2.0] * 2, "ep": [1.0] * 2},
}
TENSORRT, FA3, FLASHMLA = ("trtllm", "1.2.0", "torch_flow"), ("sglang", "0.5.10", "fa3"), ("vllm", "", "vllm_flashmla")


@pytest.fixture(scope="module")
def shipped() -> Parameters:
    return load_parameters()


def asked(family: str, device: str, software: tuple[str, str, str], cache: str = "bf16") -> KernelTable:
    columns = {name: np.array(values) for name, values in SHAPES[family].items()}
    named = dict(zip(("framework", "version", "kernel"), software, strict=True)) | {"cache": cache}
    table = blank_table(family, columns, np.full(2, device, object))
    return dataclasses.replace(table, **{name: np.full(2, value, object) for name, value in named.items()})


@pytest.mark.parametrize(
    ("family", "framework", "kernel", "there", "elsewhere"),
    [
        ("attention_decode", "trtllm", "torch_flow", ("a100-sxm-80gb", "b200"), ("mi300x", "gaudi3", "t4", "trn2")),
        ("attention_prefill", "sglang", "fa3", ("h100-sxm", "l40s"), ("b200", "mi355x", "tpu-v6e", "v100-sxm-32gb")),
        ("attention_decode", "vllm", "vllm_flash_attn_fa4", ("h100-sxm", "b200"), ("a100-sxm-80gb", "mi355x")),
        ("attention_decode", "vllm", "vllm_flash_attn", ("l40s", "mi300x", "max-1550"), ("t4", "mi100", "gaudi3")),
        ("attention_decode", "vllm", "vllm_triton_attn", ("l40s", "mi300x", "arc-b580"), ("gaudi3", "tpu-v5p")),
        ("attention_mixed", "vllm", "", ("rtx-4090", "h100-sxm"), ("mi300x", "max-1550", "t4")),
        ("mla_decode", "vllm", "vllm_flashmla", ("h200-sxm", "b300"), ("l40s", "mi325x")),
        ("moe", "vllm", "vllm_xpu_moe", ("arc-pro-b60",), ("h100-sxm", "mi300x")),
        ("moe", "sglang", "sglang_fused_moe_triton", ("mi300x", "a100-sxm-80gb"), ("inf2",)),
        ("gemm", "torch", "Cijk_Ailk_Bljk", ("mi300x", "p4", "epyc-9755"), ()),
    ],
)
def test_a_kernel_runs_where_its_instructions_are(
    family: str, framework: str, kernel: str, there: tuple[str, ...], elsewhere: tuple[str, ...]
) -> None:
    can = {name: runs_on(family, framework, kernel, hwspecs.load(name).architecture) for name in (*there, *elsewhere)}
    assert can == dict.fromkeys(there, True) | dict.fromkeys(elsewhere, False)


def test_every_generation_of_nvidias_is_one_of_hwspecs() -> None:
    specs = [hwspecs.load(name) for name in hwspecs.names()]
    gpus = [spec for spec in specs if spec.vendor == "NVIDIA" and spec.kind != "cpu"]
    assert {spec.architecture.partition("-")[0] for spec in gpus} == set(NVIDIA)


@pytest.mark.parametrize("family", [name for name in SHAPES if name != "attention_mixed"])
@pytest.mark.parametrize("device", ["mi355x", "gaudi3", "tpu-v5p", "trn2", "max-1550", "t4"])
@pytest.mark.parametrize("software", [TENSORRT, FA3, FLASHMLA])
def test_software_that_a_device_cannot_run_is_answered_as_none_is(
    shipped: Parameters, family: str, device: str, software: tuple[str, str, str]
) -> None:
    found, plain = (predict_table(asked(family, device, each), shipped) for each in (software, ("", "", "")))
    numbers = [name for name in plain if name.endswith("_us")]
    assert all(np.array_equal(found[name], plain[name]) for name in numbers)
    assert all(SAID in reason for reason in found["reason"]) and not any(SAID in reason for reason in plain["reason"])
    assert not any("framework never measured" in reason for reason in found["reason"])
    assert set(found["tier"]) == {"transfer"} and np.isfinite(found["predicted_us"]).all()


@pytest.mark.parametrize("device", ["mi355x", "gaudi3", "max-1550", "t4"])
def test_a_mixed_step_elsewhere_is_counted_as_its_framework_counts(shipped: Parameters, device: str) -> None:
    """vLLM's tables state what each sequence has cached, so that the decodes read it once for each of them."""
    found = predict_table(asked("attention_mixed", device, ("vllm", "0.19.0", "")), shipped)
    cached = 32 * 32768 * 2.0 * np.array([8 * 128, 64]) * 2.0
    read = 1e6 * cached / hwspecs.load(device).memory_bandwidth.si
    assert all(SAID in reason for reason in found["reason"])
    assert (found["roofline_us"] > read).all() and (found["predicted_us"] < 4.0 * found["roofline_us"]).all()


@pytest.mark.parametrize("family", SHAPES)
def test_software_that_runs_on_a_device_is_not_called_foreign(shipped: Parameters, family: str) -> None:
    for software in (TENSORRT, FA3, FLASHMLA):
        assert not any(SAID in each for each in predict_table(asked(family, "h100-sxm", software), shipped)["reason"])


def test_what_was_measured_on_a_device_runs_there(shipped: Parameters) -> None:
    """LLMServingSim's profiler was run on a TPU v6e; its rows keep their names, whatever a list says."""
    family = shipped.families["attention_mixed"]
    (cell,) = {name for local in family.local.values() for name in local.names.known["cell"]}
    device, framework, version, kernel = cell.split("/")[:4]
    table = asked("attention_mixed", device, (framework, version, kernel))
    groups, own = group(table), {device: "no-such-architecture"}
    assert not runs_on("attention_mixed", framework, kernel, own[device])
    for dtype, foreign in ((cell.split("/")[4], False), ("fp16", True)):
        each = dataclasses.replace(table, dtype=np.full(2, dtype, object), cache=np.full(2, "", object))
        assert with_runnable_kernels(each, groups, family, own)[1].tolist() == [foreign]


@pytest.mark.parametrize("device", ["mi300x", "max-1550"])
@pytest.mark.parametrize("family", ["attention_prefill", "attention_decode", "mla_prefill", "mla_decode"])
@pytest.mark.parametrize("software", [("sglang", "0.5.10", "triton"), ("vllm", "0.24.0", "vllm_triton_attn")])
def test_tiles_and_waits_of_nvidias_cores_are_not_those_of_others(
    shipped: Parameters, device: str, family: str, software: tuple[str, str, str]
) -> None:
    """A kernel in Triton runs there, under a name whose law was read off NVIDIA's."""
    found, plain = (predict_table(asked(family, device, each), shipped) for each in (software, ("", "", "")))
    assert (found["predicted_us"] < 1.5 * plain["predicted_us"]).all()
    assert not any(SAID in reason for reason in found["reason"])


def test_parts_of_flash_attention_4_are_those_of_large_heads() -> None:
    """Its rows are of heads of 512; smaller ones are divided as by version 3."""
    names = {"framework": np.array(["vllm"], object), "version": np.array(["0.24.0"], object)}
    for size, more in ((128.0, False), (256.0, False), (512.0, True)):
        shape = {"batch": [256.0], "kv_len": [1024.0], "heads": [64.0], "kv_heads": [8.0], "head_dim": [size]}
        table = blank_table(
            "attention_decode",
            {name: np.array(each) for name, each in {**shape, "window": [0.0]}.items()},
            np.array(["h100-sxm"], object),
        )
        kernels = (np.array([f"vllm_flash_attn_{name}"], object) for name in ("fa3", "fa4"))
        third, fourth = (prepare(dataclasses.replace(table, **names, kernel=each)).waves[0] for each in kernels)
        assert (fourth > 2.0 * third) == more


def test_a_cache_in_a_format_that_nobody_knows_counts_as_the_activations(shipped: Parameters) -> None:
    tables = [asked("attention_decode", "h100-sxm", TENSORRT, cache) for cache in (UNKNOWN_CACHE, "bf16")]
    unknown, known = (predict_table(table, shipped) for table in tables)
    said = REMARKS[NO_CACHE.bit_length() - 1]
    assert np.array_equal(unknown["predicted_us"], known["predicted_us"])
    assert all(said in reason for reason in unknown["reason"]) and not any(said in each for each in known["reason"])
