"""`estimate`: the answer names its interval, its limit and where it comes from."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

import jaxperf as jp
from jaxperf.io.tables import json_text
from jaxperf.report.answer import estimate_record

GPT2 = ("estimate", "gpt2", "--prompt", "64", "--output", "8")
INTERVALS = ("ttft", "tpot", "e2e_latency", "tokens_per_second", "tokens_per_second_per_device", "energy_per_token")


def test_json_is_complete(cli, parse_json) -> None:
    result = cli(*GPT2, "--device", "h100", "--batch", "4", "--json")
    assert result.exit_code == 0 and result.stderr == ""
    answer = parse_json(result.stdout)
    assert (answer["model"], answer["device"], answer["feasible"], answer["reasons"]) == ("gpt2", "h100-sxm", True, [])
    assert answer["point"]["batch"] == 4 and answer["point"]["kv_cache"] == "bf16"
    assert answer["provenance"]["efficiencies"].startswith("calibrated: ")
    assert set(answer["provenance"]["tiers"]["h100-sxm"].values()) == {"transfer"}, "nothing was measured in fp32"
    assert 0.0 < answer["roofline"]["tpot"] < answer["metrics"]["tpot_lower"]
    metrics = answer["metrics"]
    for name in INTERVALS:
        assert 0.0 < metrics[f"{name}_lower"] <= metrics[name] <= metrics[f"{name}_upper"] < math.inf
    assert 1e-5 < metrics["tpot"] < 1e-2, "seconds, not milliseconds"
    assert 80e9 > answer["memory_bytes"]["usable"] > answer["memory_bytes"]["weights"] > 1e8


def test_python_estimates_as_the_command_does(cli, parse_json) -> None:
    answer = jp.estimate(
        "gpt2", "h100", batch=jnp.array(4), prompt=np.array([64]), output=8, kv_cache="fp8", tensor_parallel=np.int64(2)
    )
    said = cli(*GPT2, "--device", "h100", "--batch", "4", "--kv-cache", "fp8", "--tp", "2", "--json").stdout
    assert parse_json(json_text(estimate_record(answer))) == parse_json(said)
    with pytest.raises(jp.InputError, match="An estimate takes no 'bacth'; .* Did you mean batch"):
        jp.estimate("gpt2", "h100", bacth=4)
    with pytest.raises(jp.InputError, match="'batch' has 2 values where one is asked about; jaxperf.sweep takes"):
        jp.estimate("gpt2", "h100", batch=[4, 8])


def test_kernels_add_up(cli, parse_json) -> None:
    answer = parse_json(cli(*GPT2, "--device", "h100-sxm", "--json").stdout)
    for phase, total in (("prefill", "ttft"), ("decode", "tpot")):
        kernels = [row for row in answer["kernels"] if row["phase"] == phase]
        assert sum(row["share"] for row in kernels) == pytest.approx(1.0)
        for end in ("", "_lower", "_upper"):
            assert sum(row[f"time{end}"] for row in kernels) == pytest.approx(answer["metrics"][f"{total}{end}"])
        assert all(row["time_lower"] <= row["time"] <= row["time_upper"] for row in kernels)


def test_the_wait_for_the_busiest_stage_is_a_part_of_a_step(cli, parse_json) -> None:
    piped = ("--device", "h100-sxm", "--pp", "2", "--batch", "4")
    answer = parse_json(cli(*GPT2, *piped, "--json").stdout)
    decode = [row for row in answer["kernels"] if row["phase"] == "decode"]
    (wait,) = [row for row in answer["kernels"] if row["kernel"] == "pipeline_wait"]
    assert wait in decode and wait["limiter"] == "busiest stage" and wait["share"] > 0.01
    assert wait["time_lower"] <= wait["time"] <= wait["time_upper"]
    assert sum(row["share"] for row in decode) == pytest.approx(1.0)
    assert sum(row["time"] for row in decode) == pytest.approx(answer["metrics"]["tpot"])


def test_text_says_interval_limit_and_origin(cli) -> None:
    text = cli(*GPT2, "--device", "h100-sxm").stdout
    for said in (
        "TTFT",
        "TPOT",
        "limited by",
        "calibrated: ",
        "plain roofline: TTFT",
        "device values:",
        "no queueing",
        "Kernels of one device",
    ):
        assert said in text
    assert "nan" not in text.lower()


def test_quiet_keeps_the_answer_only(cli) -> None:
    text = cli(*GPT2, "--device", "h100-sxm", "--quiet").stdout
    assert "TPOT" in text and "Kernels" not in text and "note" not in text


def test_stand_ins_are_said_aloud(cli, parse_json) -> None:
    arguments = (*GPT2, "--device", "a100-sxm-80gb", "--weights", "fp8")
    sentence = "a100-sxm-80gb has no fp8 matrix units: weights are multiplied in bf16."
    assert sentence in cli(*arguments).stdout
    assert sentence in parse_json(cli(*arguments, "--json").stdout)["notes"]
    assert "no fp8" not in cli(*GPT2, "--device", "h100-sxm", "--weights", "fp8").stdout


def test_assumptions_about_the_model_are_printed(cli, own_folder, parse_json) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
    config |= {"num_hidden_layers": 2, "vocab_size": 100}
    (own_folder / "config.json").write_text(__import__("json").dumps(config))
    known = parse_json(cli("models", "config.json", "--json").stdout)
    assert known["assumptions"]
    arguments = ("estimate", "config.json", "--device", "l4", "--prompt", "8", "--output", "2")
    text = cli(*arguments).stdout
    assert all(f"note       {sentence}" in text for sentence in known["assumptions"])


def test_infeasible_exits_with_three_and_says_why(cli, parse_json, own_folder) -> None:
    arguments = (*GPT2, "--device", "l4", "--batch", "100000")
    result = cli(*arguments, "-o", "rows.csv", "--plot", "roofline.png")
    assert result.exit_code == 3 and "do not fit in device memory" in result.stdout
    assert list(own_folder.iterdir()) == []
    assert all(
        f"'{name}' is not written: nothing is feasible" in result.stderr for name in ("rows.csv", "roofline.png")
    )
    result = cli(*arguments, "--json")
    answer = parse_json(result.stdout)
    assert result.exit_code == 3 and not answer["feasible"] and answer["metrics"]["tpot"] is None
    assert answer["reasons"] == ["weights, KV cache and activations do not fit in device memory"]


def test_what_does_not_fit_says_how_it_would_be_computed(cli) -> None:
    arguments = ("estimate", "llama-3-70b", "--device", "a40", "--weights", "fp8")
    said = "a40 has no fp8 matrix units: weights are multiplied in bf16"
    result = cli(*arguments)
    assert result.exit_code == 3 and said in result.stdout
    assert said not in cli(*arguments, "--quiet").stdout


def test_a_context_beyond_the_model_is_infeasible(cli) -> None:
    result = cli("estimate", "gpt2", "--device", "h100-sxm")
    said = "longer than the model was trained for (2,048 + 256 tokens; it was trained for 1,024)"
    assert result.exit_code == 3 and said in result.stdout


def test_the_batch_that_fits_is_the_largest_that_does(cli, parse_json) -> None:
    arguments = ("estimate", "gpt2", "--device", "l4", "--prompt", "512", "--output", "512", "--json")
    first = cli(*arguments, "--batch", "100000")
    most = parse_json(first.stdout)["largest_batch"]
    assert first.exit_code == 3 and 100 < most < 1000
    for batch, code in ((most, 0), (most + 1, 3)):
        result = cli(*arguments, "--batch", str(batch))
        assert (result.exit_code, parse_json(result.stdout)["largest_batch"]) == (code, most)
    text = cli(*arguments[:-1], "--batch", str(most + 1)).stdout
    assert f"usable a device; room for {most} such sequences" in text


def test_images_give_their_encoder_work(cli, parse_json, refuse) -> None:
    arguments = ("estimate", "llava-1.5-7b", "--device", "a100-sxm-80gb", "--prompt", "832", "--output", "16", "--json")
    text, images = (parse_json(cli(*arguments, *more).stdout) for more in ((), ("--media-tokens", "576")))
    assert any("--media-tokens of an estimate" in note for note in text["notes"])
    assert not any("idle" in note for note in images["notes"])
    # ViT-L/14 at 336 pixels: 0.30 G parameters x 2 x 577 positions, at 312 TFLOP/s at most
    longer = images["metrics"]["ttft"] - text["metrics"]["ttft"]
    assert 2 * 0.30e9 * 577 / 312e12 < longer < 10e-3
    assert images["metrics"]["tpot"] == pytest.approx(text["metrics"]["tpot"])
    assert "576 are more than the 64 tokens" in refuse(
        "estimate", "llava-1.5-7b", "--device", "l4", "--prompt", "64", "--media-tokens", "576"
    )
    vision = ("estimate", "llama-3.2-11b-vision", "--device", "h200-sxm", "--prompt", "64", "--media-tokens", "1601")
    assert cli(*vision).exit_code == 0  # read by cross-attention: no part of the prompt
    assert "gpt2 has no encoder that makes tokens" in refuse(*GPT2, "--device", "l4", "--media-tokens", "8")


def test_eager_launches_cost_host_time(cli, parse_json) -> None:
    arguments = (*GPT2, "--device", "h100-sxm", "--json")
    times = [parse_json(cli(*arguments, "--launch", mode).stdout)["metrics"]["tpot"] for mode in ("graph", "eager")]
    assert times[0] < times[1]


def test_own_devices(cli, own_folder, parse_json) -> None:
    (own_folder / "mine").mkdir()
    (own_folder / "mine" / "my-chip.toml").write_text('name = "my-chip"\nbase = "h100-sxm"\naliases = ["chippy"]\n')
    for device, more in (("mine/my-chip.toml", ()), ("mine/*.toml", ()), ("chippy", ("--devices-dir", "mine"))):
        answer = parse_json(cli(*GPT2, "--device", device, *more, "--json").stdout)
        assert answer["device"] == "my-chip"
