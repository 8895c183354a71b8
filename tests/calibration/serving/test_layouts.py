"""From a row to what can be priced: stated things stay, what is left open is filled in and said."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from calibration.datasets.serving import read_serving
from calibration.serving.fit import contradicted, measured_of, weights_of
from calibration.serving.law import law_of
from calibration.serving.layouts import Deployed, deployed
from calibration.serving.parameters import load_serving
from calibration.serving.pieces import KINDS, kind_of, pieces_of
from calibration.serving.predict import tier_of
from jaxperf.core.feasible import sentences
from jaxperf.core.sustained_file import load_sustained_table

HEADER = "source,model,gpu,n_gpu,tp,pp,dp,ep,dtype,framework,mode,scenario,input_len,output_len,batch,concurrency,qps"
ROW = {
    "source": "lab",
    "model": "Qwen/Qwen3-32B",
    "gpu": "h100_sxm",
    "n_gpu": "4",
    "tp": "2",
    "dtype": "fp8",
    "framework": "vllm",
    "mode": "agg",
    "input_len": "1024",
    "output_len": "128",
    "concurrency": "8",
}


def priced(folder: Path, **changes: str) -> Deployed:
    row = {**ROW, **changes}
    path = folder / "in.csv"
    path.write_text(HEADER + "\n" + ",".join(row.get(name, "") for name in HEADER.split(",")) + "\n")
    points, reasons = deployed(read_serving(path))
    assert points, reasons
    return points[0]


def refused(folder: Path, **changes: str) -> str:
    row = {**ROW, **changes}
    path = folder / "in.csv"
    path.write_text(HEADER + "\n" + ",".join(row.get(name, "") for name in HEADER.split(",")) + "\n")
    points, reasons = deployed(read_serving(path))
    assert not points
    return reasons[0]


def test_zero_counts_as_not_stated_and_that_is_said(tmp_path: Path):
    counted = "which counts as not stated"
    assert priced(tmp_path, n_gpu="0").notes == (f"n_gpu is 0, {counted}: tp x pp x dp = 2",)
    assert priced(tmp_path, output_len="0.0").notes == (f"output_len is 0, {counted}: 1",)
    assert priced(tmp_path, tp="0").notes[0].startswith(f"tp is 0, {counted}: the fewest ranks")
    (note,) = priced(tmp_path, concurrency="0", qps="0").notes
    assert note.startswith(f"concurrency is 0, {counted}; qps is 0, {counted}; no load is stated: 64")
    assert priced(tmp_path, concurrency="0", qps="2", ep="0").notes == ()


def test_a_format_that_another_stands_in_for_is_said(tmp_path: Path):
    assert priced(tmp_path, gpu="a100_sxm").notes == ("no fp8 matrix units: multiplied in bf16",)
    assert priced(tmp_path, dtype="fp4").notes == ("no fp4 matrix units: multiplied in bf16",)


def test_what_is_stated_needs_no_note(tmp_path: Path):
    point = priced(tmp_path)
    assert (point.tensor, point.replicas, point.group, point.concurrency) == (2.0, 2.0, 2.0, 8.0)
    assert point.notes == () and point.spec.name == "h100-sxm" and not point.experts


def test_lengths_of_a_task_differ(tmp_path: Path):
    task = {"source": "MLPerf", "model": "llama-2-70b", "input_len": "", "output_len": "", "tp": "8", "n_gpu": "8"}
    assert priced(tmp_path, **task).drawn
    assert not priced(tmp_path).drawn


def test_a_client_that_draws_lengths_is_priced_at_their_means(tmp_path: Path):
    given = {"source": "dumps (InferenceMAX/X)", "input_len": "8192", "output_len": "1024"}
    point = priced(tmp_path, **given)
    assert (point.prompt, point.output, point.drawn) == (7373.0, 922.0, True)
    assert any("draws lengths" in note for note in point.notes)
    for other in ({**given, "source": "lab"}, {**given, "output_len": "512"}):
        alike = priced(tmp_path, **other)
        assert (alike.prompt, alike.output, alike.drawn) == (8192.0, float(other["output_len"]), False)


def test_a_closed_loop_without_a_source_is_one_of_those_measured(tmp_path: Path):
    lengths = {"input_len": "8192", "output_len": "1024"}
    unstated, named = (priced(tmp_path, source=source, **lengths) for source in ("", "aiconfigurator (InferenceX)"))
    assert (unstated.prompt, unstated.drawn) == (named.prompt, True) == (7373.0, named.drawn)
    assert any("source is not stated" in note for note in unstated.notes)
    shorter = [priced(tmp_path, source=source, input_len="512") for source in ("", "aiconfigurator", "lab")]
    assert shorter[0].room == shorter[1].room < shorter[2].room
    arriving = priced(tmp_path, source="", concurrency="", qps="2", **lengths)
    assert not arriving.drawn and not any("source" in note for note in arriving.notes)


def test_missing_ranks_are_the_fewest_that_hold_the_weights(tmp_path: Path):
    point = priced(tmp_path, n_gpu="16", tp="", dp="2")  # 33 GB in fp8 on 80 GB
    assert (point.tensor, point.replicas) == (1.0, 8.0)
    assert priced(tmp_path, n_gpu="16", tp="", dtype="bf16").tensor == 2.0
    assert any("tp is not stated" in note for note in priced(tmp_path, tp="").notes)


def test_without_devices_and_ranks_one_replica_has_the_fewest_that_hold_the_weights(tmp_path: Path):
    open_layout = {"n_gpu": "", "tp": "", "dtype": "bf16"}  # 66 GB on 80 GB
    for changes, devices in (({}, 2), ({"dp": "4"}, 8), ({"gpu": "h200_sxm"}, 1)):
        point = priced(tmp_path, **open_layout, **changes)
        assert (point.group, point.replicas) == (devices, 1.0)
        assert point.notes[:1] == (f"n_gpu is not stated: tp x pp x dp = {devices}",)
        assert point.notes[1].startswith("tp is not stated: the fewest ranks")


def test_a_layout_is_priced_as_it_is_stated(tmp_path: Path):
    point = priced(tmp_path, model="deepseek-ai/DeepSeek-R1", gpu="h200_sxm", n_gpu="64", tp="64", dp="1", ep="8")
    assert (point.tensor, point.expert, point.replicas) == (64.0, 8.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "replicas", "said"),
    [
        ({"n_gpu": "12", "tp": "8"}, 1.0, "4 of 12 devices idle: a replica has 8"),
        ({"n_gpu": "3", "tp": "", "dtype": "bf16"}, 1.0, "1 of 3 devices idle: a replica has 2"),
        ({"n_gpu": "4", "tp": "8"}, 1.0, "n_gpu is 4: priced with the tp x pp x dp = 8 devices of one replica"),
        ({"n_gpu": "8", "tp": "8", "dp": "8"}, 1.0, "n_gpu is 8: priced with the tp x pp x dp = 64 devices"),
        ({"n_gpu": "16", "tp": "8", "ep": "64"}, 2.0, "ep is 64: priced with the tp x dp = 8 ranks"),
    ],
)
def test_devices_that_do_not_fit_the_layout_are_said(
    tmp_path: Path, changes: dict[str, str], replicas: float, said: str
):
    point = priced(tmp_path, **changes)
    assert point.replicas == replicas and any(said in note for note in point.notes)


@pytest.mark.parametrize(("gpu", "tp", "said"), [("mi300x", "16", True), ("mi300x", "8", False), ("h100", "16", False)])
def test_a_library_that_a_device_has_not_is_said_to_stand_in(tmp_path: Path, gpu: str, tp: str, said: bool):
    notes = priced(tmp_path, gpu=gpu, n_gpu="16", tp=tp).notes
    assert ("between nodes NCCL's constants of Ampere stand in" in notes) is said


def test_latent_attention_can_be_shared_out_by_requests(tmp_path: Path):
    given = {"model": "deepseek-ai/DeepSeek-R1", "gpu": "h200_sxm", "n_gpu": "16", "tp": "8"}
    point = priced(tmp_path, **given, ep="8")
    assert (point.by_requests.tensor, point.by_requests.data, point.by_requests.expert) == (1.0, 8.0, 8.0)
    assert (point.by_requests.group, point.by_requests.replicas) == (point.group, point.replicas)
    alone = priced(tmp_path, **given, ep="1")  # no rank but all of them together hold the experts
    assert alone.by_requests is alone
    heads = priced(tmp_path, n_gpu="16", tp="8", ep="8")
    assert heads.by_requests is heads


def test_a_power_cap_in_the_name_lowers_the_power_and_nothing_else(tmp_path: Path):
    capped, full = priced(tmp_path, gpu="h100-80gb-pcap"), priced(tmp_path)
    assert capped.spec.name == full.spec.name
    assert capped.spec.tdp.si == full.spec.tdp.si / 2.0
    assert capped.spec.memory_bandwidth.si == full.spec.memory_bandwidth.si


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gpu": ""}, "no device is stated"),
        ({"gpu": "h1000_sxm"}, "unknown_device"),
        ({"model": "Qwen/Qwen3-33B"}, "No model or path"),
        ({"model": "bert-large"}, "it generates no tokens"),
        ({"input_len": ""}, "input_len"),
        ({"input_len": "0.5"}, "input_len: 0.5 is less than one token"),
        ({"output_len": "1e-9"}, "output_len: 1e-09 is less than one token"),
        ({"n_gpu": "2", "tp": "", "pp": "4"}, "n_gpu: 2 devices are fewer than pp x dp"),
        ({"tp": "100000"}, "at most"),
    ],
)
def test_what_cannot_be_priced_has_a_reason(tmp_path: Path, changes: dict[str, str], said: str):
    assert said in refused(tmp_path, **changes)


def test_two_pools_at_a_rate_are_two_pools(tmp_path: Path):
    apart = {"mode": "disagg", "n_gpu": "4", "concurrency": "", "qps": "3"}
    assert law_of(priced(tmp_path, **apart)) == "open pools"
    assert law_of(priced(tmp_path, **apart | {"n_gpu": "2"})) == "open"


@pytest.mark.parametrize(
    ("batch", "decoders", "said"),
    [
        ("4", 2.0, "2 of 4 workers decode: the fewest that hold the concurrency with a batch of 4 on a rank"),
        ("3", 3.0, "3 of 4 workers decode: the fewest that hold the concurrency with a batch of 3 on a rank"),
        ("2", 0.0, "batch is 2: not used beside concurrency"),  # all four would decode
    ],
)
def test_the_batch_of_a_rank_says_how_many_workers_of_two_pools_decode(
    tmp_path: Path, batch: str, decoders: float, said: str
):
    point = priced(tmp_path, mode="disagg", n_gpu="4", tp="1", concurrency="8", batch=batch)
    assert point.decoders == decoders and point.concurrency == 8.0
    assert [note for note in point.notes if "batch" in note] == [said]


def test_loads_are_closed_open_or_assumed(tmp_path: Path):
    assert math.isnan(priced(tmp_path, concurrency="", qps="3").concurrency)
    assert priced(tmp_path, concurrency="", batch="32").concurrency == 32.0
    assert priced(tmp_path, concurrency="", mode="static", batch="16").concurrency == 16.0
    assert any("no load" in note for note in priced(tmp_path, concurrency="").notes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"qps": "2"}, ("qps is 2: not used beside concurrency",)),
        ({"batch": "32"}, ("batch is 32: not used beside concurrency",)),
        ({"batch": "8"}, ()),  # the same number
        ({"concurrency": "", "qps": "2", "batch": "32"}, ("batch is 32: not used beside qps",)),
        ({"concurrency": "", "batch": "8"}, ("concurrency is not stated: the batch",)),
        ({"mode": "static"}, ("batch is not stated: the concurrency",)),
        ({"mode": "static", "concurrency": ""}, ("batch is not stated: 1",)),
        (
            {"mode": "static", "batch": "4", "qps": "2"},
            ("concurrency is 8: not used beside batch; qps is 2: not used beside batch",),
        ),
    ],
)
def test_a_load_that_is_not_used_or_stands_for_another_is_said(
    tmp_path: Path, changes: dict[str, str], said: tuple[str, ...]
):
    assert priced(tmp_path, **changes).notes == said


def test_benchmarks_that_state_no_lengths_have_those_of_their_task(tmp_path: Path):
    given = {"source": "MLPerf x", "model": "llama2-70b-99.9", "input_len": "", "output_len": "", "dtype": ""}
    point = priced(tmp_path, **given)
    assert (point.architecture, point.weights, point.output) == ("llama-2-70b", "fp8", 294.0)
    assert any("recalled" in note for note in point.notes)


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("qkv_projection", "dense"),
        ("expert_up_projection", "experts"),
        ("shared_up_projection", "dense"),
        ("attention", "attention"),
        ("delta_rule", "attention"),
        ("ffn_norm", "light"),
        ("expert_combine", "collective"),
        ("router", "dense"),
    ],
)
def test_every_kernel_is_of_one_kind(kernel: str, kind: str):
    assert kind_of(kernel) == kind and kind in KINDS


def test_one_measurement_under_two_layouts_is_fitted_under_none(tmp_path: Path):
    """The same latencies to the last digit cannot belong to 4 and to 8 devices; others of the same run stay."""
    header = HEADER + ",metric,value,unit"
    lines = [
        ",".join({**ROW, "n_gpu": n, "tp": n}.get(name, "") for name in HEADER.split(",")) + f",{metric},{value},ms"
        for n, times in (("4", (120.5, 9.25)), ("8", (120.5, 9.25)), ("2", (200.0, 12.5)))
        for metric, value in zip(("ttft", "tpot"), times, strict=True)
    ]
    path = tmp_path / "in.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    points, _ = deployed(read_serving(path))
    assert contradicted(points).tolist() == [True, True, False]
    assert (weights_of(points) == 0.0).tolist() == [True, True, False]


def test_no_time_between_tokens_is_fitted_where_there_is_one_token(tmp_path: Path):
    path = tmp_path / "in.csv"
    lines = [
        ",".join({**ROW, "output_len": length}.get(name, "") for name in HEADER.split(",")) + f",{metric},20,ms"
        for length in ("1", "2")
        for metric in ("ttft", "tpot")
    ]
    path.write_text("\n".join([f"{HEADER},metric,value,unit", *lines]) + "\n")
    points, _ = deployed(read_serving(path))
    assert np.isfinite(measured_of(points)).tolist() == [[True, False], [True, True]]


@pytest.mark.parametrize(
    ("model", "gpu", "weights"),
    [
        ("llama2-70b-99.9", "h200_sxm", "fp8"),
        ("llama2-70b-99.9", "b200_sxm", "fp4"),
        ("mixtral-8x7b", "b200_sxm", "fp8"),
        ("llama2-70b-99.9", "a100_sxm", "fp16"),
        ("gptj-99", "a100_sxm", "fp16"),  # published in 32 bits
    ],
)
def test_submissions_have_the_narrowest_format_they_are_known_to_quantize_to(
    tmp_path: Path, model: str, gpu: str, weights: str
):
    given = {"source": "MLPerf x", "model": model, "gpu": gpu, "input_len": "", "output_len": "", "dtype": ""}
    assert priced(tmp_path, **given).weights == weights


def test_an_offline_benchmark_always_has_more_requests_than_can_run_together(tmp_path: Path):
    point = priced(tmp_path, scenario="Offline", concurrency="", framework="TensorRT 10.2.0")
    assert point.concurrency / point.replicas > 2048.0
    assert any("offline" in note for note in point.notes)


def llama(folder: Path, layers: int) -> Path:
    """A folder with the name of a shipped model and a config of so many layers."""
    fields = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": layers,
        "num_key_value_heads": 8,
        "torch_dtype": "bfloat16",
        "vocab_size": 128256,
    }
    own = folder / "run_1_2" / "llama-3.1-8b"
    own.mkdir(parents=True, exist_ok=True)
    (own / "config.json").write_text(json.dumps(fields))
    return own


def test_a_model_of_a_folder_is_what_its_config_says_and_none_that_was_fitted(tmp_path: Path):
    own, fitted = llama(tmp_path, layers=4), load_serving()
    for path in (own, own / "config.json"):
        point = priced(tmp_path, model=str(path))
        assert len(point.model.layers) == 4 and point.architecture == os.fspath(path)
        assert tier_of(point, fitted) == "transfer"
    shipped = [priced(tmp_path, model=name) for name in ("llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct-FP8")]
    assert shipped[0].model == shipped[1].model  # one compilation
    assert [tier_of(point, fitted) for point in shipped] == ["known", "known"]


@pytest.mark.parametrize(("device", "tier"), [("h200-sxm", "known"), ("mi300x", "unseen"), ("b200", "unseen")])
def test_a_model_on_a_device_that_served_nothing_is_not_known(tmp_path: Path, device: str, tier: str):
    assert tier_of(priced(tmp_path, model="llama-3.1-8b", gpu=device), load_serving()) == tier


@pytest.mark.long
def test_the_decoder_of_an_encoder_decoder_holds_its_own_tokens_and_what_it_attends_across_to(tmp_path: Path):
    """T5-3B, 16-bit keys and values of 24 layers, 32 heads of 128: one start token, and 400 of the encoder."""
    point = priced(tmp_path, model="t5-3b", n_gpu="1", tp="1", dtype="bf16", input_len="400", output_len="256")
    pieces = pieces_of([point], load_sustained_table(None))
    kept = 24 * 2 * 32 * 128 * 2 * (400 + 1)
    assert pieces.transfer[0] * point.spec.node.network_bandwidth.si == pytest.approx(kept)
    assert sentences(int(pieces.reason[0])) == []  # 1 + 256 / 2 and 400 tokens are within 512
    assert kind_of("encoder_attention") == kind_of("cross_attention") == "attention"


@pytest.mark.parametrize(
    ("engine", "mode", "mixed", "prompts"),
    [("sglang 0.5.6.post2", "agg", True, 2.0), ("vllm 0.12.0", "agg", False, 1.0), ("sglang", "disagg", False, 8.0)],
)
def test_what_a_source_sets_its_engine_up_to_is_taken_and_said(
    tmp_path: Path, engine: str, mode: str, mixed: bool, prompts: float
):
    source = "aiconfigurator silicon_sample.csv"
    found = priced(tmp_path, source=source, framework=engine, mode=mode, n_gpu="4", input_len="1000")
    assert found.mixed is mixed
    assert found.room // 1000.0 == prompts
    told = "; ".join(found.notes)
    assert ("decode in the steps that prefill" in told) is mixed
    assert ("this source set up" in told) is (mode == "agg")
