"""The shipped parameters load, know what their card says, and predict sensible times for kernels anyone knows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import hwspecs
from calibration.datasets.schema import KernelTable
from calibration.kernels.parameters import Parameters, load_parameters
from calibration.kernels.predict import predict_table
from tests.calibration.tables import blank_table, in_stack

NO_FORMAT = "no known number format (dtype): bf16 assumed"


@pytest.fixture(scope="module")
def shipped() -> Parameters:
    return load_parameters()


def square_gemms(device: str) -> KernelTable:
    sizes = np.array([256.0, 1024.0, 4096.0, 8192.0])
    shape = {"m": sizes, "n": sizes, "k": sizes, "batch": np.ones(4)}
    table = blank_table("gemm", shape, np.full(4, device, dtype=object))
    return in_stack(table, "vllm", "0.24.0", "torch.nn.functional.linear")


def test_the_card_names_its_data_and_its_errors(shipped: Parameters) -> None:
    assert set(shipped.families) >= {"gemm", "attention_prefill", "attention_decode", "moe", "quantize", "norm"}
    assert {"created", "versions", "data", "devices", "errors", "command"} <= set(shipped.card)
    assert all(len(each["sha256"]) == 64 and each["rows"] > 0 for each in shipped.card["data"])
    told = {(row["family"], row["split"]) for row in shipped.card["errors"]}
    for family in shipped.families:
        assert (family, "unseen shapes") in told


def test_every_parameter_is_finite(shipped: Parameters) -> None:
    import jax

    for fitted in shipped.families.values():
        assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(fitted.model)), fitted.family
        assert 0.0 < fitted.spread.measured[0] <= fitted.spread.measured[1] < 2.0, fitted.family


def test_large_gemms_run_below_the_peak_and_above_half_of_it(shipped: Parameters) -> None:
    found = predict_table(square_gemms("h100-sxm"), shipped)
    share = 2 * np.array([4096.0, 8192.0]) ** 3 / (found["predicted_us"][2:] * 1e-6) / 989.4e12
    assert ((share > 0.5) & (share < 1.0)).all()
    assert list(found["tier"]) == ["measured"] * 4
    assert (np.diff(found["predicted_us"]) > 0).all()


@pytest.mark.parametrize("word", ["gemm", "Linear", "my_layer"])
def test_a_product_is_one_whatever_its_row_calls_it(shipped: Parameters, word: str) -> None:
    table = square_gemms("h100-sxm")
    named = dataclasses.replace(table, text={**table.text, "op": np.full(4, word, dtype=object)})
    plain, found = predict_table(table, shipped), predict_table(named, shipped)
    assert all((found[name] == plain[name]).all() for name in plain)


def test_an_operation_that_was_measured_by_its_name_keeps_it(shipped: Parameters) -> None:
    """vLLM's projections on the RTX 4090 are cells of their own."""
    sizes = {"m": np.array([64.0]), "n": np.array([6144.0]), "k": np.array([4096.0]), "batch": np.ones(1)}
    table = in_stack(blank_table("gemm", sizes, np.array(["rtx-4090"], object)), "vllm", "0.19.0", "")
    words = ("qkv_proj", "o_proj", "my_layer")
    named = [dataclasses.replace(table, text={"op": np.array([word], object)}) for word in words]
    found = [predict_table(each, shipped) for each in named]
    assert [each["tier"][0] for each in found] == ["measured", "measured", "transfer"]
    assert found[0]["predicted_us"][0] != found[1]["predicted_us"][0]


def test_what_states_no_format_is_in_the_one_that_is_assumed_and_was_not_measured(shipped: Parameters) -> None:
    stated = square_gemms("h100-sxm")
    silent = dataclasses.replace(stated, dtype=np.full(4, "", dtype=object))
    plain, found = predict_table(stated, shipped), predict_table(silent, shipped)
    assert all((found[name] == plain[name]).all() for name in ("predicted_us", "roofline_us", "limiter"))
    assert (found["lower_us"] < plain["lower_us"]).all() and (found["upper_us"] > plain["upper_us"]).all()
    assert set(plain["tier"]) == {"measured"} and set(found["tier"]) == {"transfer"}
    assert set(found["reason"]) == {NO_FORMAT} != set(plain["reason"])


def test_a_kernel_whose_measured_rows_state_no_format_is_measured(shipped: Parameters) -> None:
    """LLMServingSim's mixed steps: whether a row says the assumed format or none, it is the same kernel."""
    heads = {"heads": 32, "kv_heads": 8, "head_dim": 128, "window": 0}
    shape = heads | {"prefill_q": 512, "prefill_kv": 0, "n_decode": 8, "kv_decode": 8192}
    sides = {name: np.full(3, value, float) for name, value in shape.items()}
    devices = np.array(["h100-sxm", "tpu-v6e", "l40s"], object)
    silent, stated = (
        predict_table(in_stack(blank_table("attention_mixed", sides, devices, dtype), "v0", "5daddb2", ""), shipped)
        for dtype in ("", "bf16")
    )
    assert list(silent["tier"]) == list(stated["tier"]) == ["measured", "adapted", "transfer"]
    assert all((silent[name] == stated[name]).all() for name in ("predicted_us", "lower_us", "upper_us", "limiter"))
    assert [each.partition("; ")[0] for each in silent["reason"]] == [NO_FORMAT] * 3
    assert NO_FORMAT not in " ".join(stated["reason"])
    assert silent["upper_us"][0] < 1.1 * silent["predicted_us"][0]


def test_what_states_no_operation_has_the_only_one(shipped: Parameters) -> None:
    rows = {"rows": np.array([512.0, 4096.0]), "columns": np.array([1024.0, 4096.0])}
    table = blank_table("softmax", rows, np.full(2, "v100-pcie-32gb", dtype=object), "fp32")
    stated = dataclasses.replace(table, text={"op": np.full(2, "softmax", dtype=object)})
    silent, told = predict_table(table, shipped), predict_table(stated, shipped)
    assert (silent["predicted_us"] == told["predicted_us"]).all() and (silent["reason"] == told["reason"]).all()


def test_a_release_that_names_no_kernel_has_the_only_one_measured_of_it(shipped: Parameters) -> None:
    """Of several, as of vLLM 0.24.0's products of 128-block scales, none is chosen; nor where no release is stated."""
    stated = square_gemms("h100-sxm")
    silent, unstated = in_stack(stated, "vllm", "0.24.0", ""), in_stack(stated, "vllm", "", "")
    plain, found, none = (predict_table(each, shipped) for each in (stated, silent, unstated))
    assert all((found[name] == plain[name]).all() for name in plain if name != "reason")
    assert set(found["reason"]) == {"kernel not stated: the only one measured of this release"} != set(plain["reason"])
    blocks = dataclasses.replace(silent, dtype=np.full(4, "fp8_block", dtype=object))
    for several in (none, predict_table(blocks, shipped)):
        assert set(several["tier"]) == {"transfer"}
        assert set(several["reason"]) == {"this kernel and version never measured"}


def test_software_that_was_measured_elsewhere_alone_is_said(shipped: Parameters) -> None:
    found = predict_table(square_gemms("a40"), shipped)  # of which Vidur alone measured products
    assert set(found["tier"]) == {"transfer"}
    assert set(found["reason"]) == {"this kernel and version never measured on this device"}


def test_a_device_never_measured_is_a_transfer_with_a_wider_interval(shipped: Parameters) -> None:
    known, unknown = predict_table(square_gemms("h100-sxm"), shipped), predict_table(square_gemms("b200"), shipped)
    assert list(unknown["tier"]) == ["transfer"] * 4
    assert (unknown["upper_us"] / unknown["lower_us"] > known["upper_us"] / known["lower_us"]).all()
    assert unknown["predicted_us"][3] < known["predicted_us"][3]
    assert all("device never measured" in reason for reason in unknown["reason"])


@pytest.mark.parametrize("device", ["h20", "rtx-4090", "epyc-9755"])
def test_no_product_that_was_not_measured_is_above_the_peak(shipped: Parameters, device: str) -> None:
    """An H20 has an H100's cores and a seventh of its peak, so that what was learned of those says too much of it."""
    sizes = {"m": np.array([8192.0, 65536.0]), "n": np.full(2, 4096.0), "k": np.full(2, 4096.0), "batch": np.ones(2)}
    table = in_stack(blank_table("gemm", sizes, np.full(2, device, object)), "vllm", "0.24.0", "")
    found = predict_table(table, shipped)
    at_peak = 2e6 * sizes["m"] * sizes["n"] * sizes["k"] / hwspecs.load(device).peak_flops["bf16"].si
    assert set(found["tier"]) == {"transfer"}
    assert (found["lower_us"] >= at_peak * (1.0 - 1e-5)).all()
    assert (found["lower_us"] <= found["predicted_us"]).all() and (found["predicted_us"] < found["upper_us"]).all()


def test_a_window_that_hides_no_key_takes_no_other_time(shipped: Parameters) -> None:
    shape = {"batch": 4.0, "q_len": 2048.0, "prefix": 0.0, "heads": 32.0, "kv_heads": 8.0, "head_dim": 128.0}
    columns = {name: np.full(3, value) for name, value in shape.items()} | {"window": np.array([0.0, 2048.0, 8192.0])}
    table = blank_table("attention_prefill", columns, np.full(3, "a100-sxm-80gb", dtype=object))
    found = predict_table(in_stack(table, "trtllm", "1.0.0", ""), shipped)
    assert found["predicted_us"] == pytest.approx(found["predicted_us"][0], rel=1e-14)  # of a vector's last lanes


CACHED = [0.0, 1.0, 2.0, 4.0, 64.0, 512.0, 4096.0]


@pytest.mark.parametrize(
    ("family", "device", "stack"),
    [
        ("attention_prefill", "l40s", ("sglang", "0.5.14", "flashinfer")),
        ("attention_prefill", "a100-sxm-80gb", ("sglang", "0.5.10", "flash_attention")),
        ("attention_prefill", "h100-sxm", ("vllm", "0.24.0", "vllm_flash_attn_fa3")),
        ("mla_prefill", "h100-sxm", ("sglang", "0.5.10", "flash_attention")),
    ],
)
def test_prefill_behind_more_cached_tokens_takes_longer(
    shipped: Parameters, family: str, device: str, stack: tuple[str, str, str]
) -> None:
    """None was measured: the law alone says what they add, and the interval is that of a device never measured."""
    count, prefix = len(CACHED), np.array(CACHED)
    sizes = {"batch": 1.0, "q_len": 2048.0, "heads": 32.0}
    if family == "attention_prefill":
        sizes |= {"kv_heads": 8.0, "head_dim": 128.0, "window": 0.0}
    columns = {name: np.full(count, value) for name, value in sizes.items()}
    columns |= {"prefix": prefix} if family == "attention_prefill" else {"kv_len": 2048.0 + prefix}
    table = in_stack(blank_table(family, columns, np.full(count, device, dtype=object)), *stack)
    found = predict_table(dataclasses.replace(table, cache=table.dtype), shipped)
    assert (np.diff(found["predicted_us"]) >= -1e-5 * found["predicted_us"][1:]).all()
    width = np.log(found["upper_us"] / found["predicted_us"])
    op = "" if family == "attention_prefill" else family
    elsewhere = shipped.families[family].spread.formats[f"bf16/bf16/{op}"][1]
    assert width[0] < 0.5 * elsewhere and (width[1:] > 0.999 * elsewhere).all()
    assert ["prefix" in reason for reason in found["reason"]] == [False] + [True] * (count - 1)


def test_a_size_of_zero_is_named(shipped: Parameters) -> None:
    shape = {"m": np.array([0.0, 64.0, 64.0]), "n": np.full(3, 64.0), "k": np.array([64.0, 0.0, 64.0])}
    table = blank_table("gemm", shape | {"batch": np.ones(3)}, np.full(3, "h100-sxm", dtype=object))
    found = predict_table(in_stack(table, "vllm", "0.24.0", "torch.nn.functional.linear"), shipped)
    assert list(found["reason"][:2]) == [f"{name} is 0: there is nothing to compute" for name in ("m", "k")]
    assert np.isnan(found["predicted_us"]).tolist() == [True, True, False]


def test_an_unknown_framework_falls_to_the_generic_level_aloud(shipped: Parameters) -> None:
    found = predict_table(in_stack(square_gemms("h100-sxm"), "mylib", "1", "mine"), shipped)
    assert all("generic" in reason for reason in found["reason"])
    assert np.isfinite(found["predicted_us"]).all()


def test_a_missing_number_format_is_assumed_aloud(shipped: Parameters) -> None:
    shape = {"m": [64.0], "n": [64.0], "k": [64.0], "batch": [1.0]}
    table = blank_table("gemm", shape, np.array(["h100-sxm"], dtype=object), dtype="")
    assert "bf16 assumed" in predict_table(table, shipped)["reason"][0]


MEASURED = (
    "kernels/gemm",
    "static_batch/gemm_fp8",
    "kernels/attention_prefill",
    "kernels/attention_decode",
    "kernels/attention_mixed",
    "kernels/mla",
    "kernels/moe",
    "kernels/quantize",
    "kernels/vidur_ops",
)


@pytest.mark.validation
@pytest.mark.parametrize("name", MEASURED)
def test_errors_on_the_measured_tables_are_those_of_the_card(shipped: Parameters, data_directory, name: str) -> None:
    from calibration.datasets import read_table
    from calibration.kernels.calibrate import gather

    for family, table in gather([read_table(data_directory / f"{name}.parquet")]).items():
        sample = table.take(np.random.default_rng(0).permutation(len(table))[:20_000])
        found = predict_table(sample, shipped)
        error = np.abs(found["predicted_us"] * 1e-6 / sample.measured - 1)
        inside = (sample.measured * 1e6 >= found["lower_us"]) & (sample.measured * 1e6 <= found["upper_us"])
        print(f"{family}: median {100 * np.median(error):.1f} %, covered {100 * inside.mean():.1f} %")
        assert np.median(error) < 0.06, family
        assert 0.85 < inside.mean() < 0.99, family


@pytest.mark.parametrize(
    ("device", "dtype", "words", "said"),
    [
        ("h100-sxm", "mxfp8", "scales of this format", True),
        ("b200", "mxfp8", "scales of this format", False),
        ("a100-sxm-80gb", "mxfp8", "scales of this format", False),  # has no units for its elements either
        ("xeon-8480-plus", "bf16", "not a GPU of the kinds", True),
        ("apple-m2", "fp16", "not a GPU of the kinds", True),
        ("jetson-agx-orin-64gb", "fp16", "not a GPU of the kinds", False),
    ],
)
def test_what_the_law_does_not_know_of_a_device_is_said(
    shipped: Parameters, device: str, dtype: str, words: str, said: bool
) -> None:
    sizes = {"m": np.array([4096.0]), "n": np.array([4096.0]), "k": np.array([4096.0]), "batch": np.ones(1)}
    found = predict_table(blank_table("gemm", sizes, np.array([device], object), dtype), shipped)
    assert (words in found["reason"][0]) == said


def test_what_was_measured_of_a_tpu_is_not_said_to_be_of_no_gpu(shipped: Parameters) -> None:
    rows = {"rows": np.array([512.0]), "columns": np.array([4096.0])}
    table = blank_table("embedding", rows, np.array(["tpu-v6e"], object))
    table = dataclasses.replace(table, text={"op": np.array(["embedding"], object)})
    (cell,) = shipped.families["embedding"].local["tpu-v6e"].names.known["cell"]
    framework, version = cell.split("/")[1:3]
    known, unknown = (predict_table(each, shipped) for each in (in_stack(table, framework, version, ""), table))
    assert (known["tier"][0], unknown["tier"][0]) == ("adapted", "transfer")
    assert "not a GPU" in unknown["reason"][0] and "not a GPU" not in known["reason"][0]
