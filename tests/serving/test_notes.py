"""What answers assume or replace is said alike by every command."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import hwspecs
from jaxperf.cli.engines import Served
from jaxperf.cli.sweep_steps import prepare_steps
from jaxperf.core.sustained_file import load_sustained_table
from jaxperf.io.huggingface import load_model
from jaxperf.io.sweep_file import SweepFile
from jaxperf.models.quantization import Quantization
from jaxperf.report.ranking import RankingReport
from jaxperf.serving.notes import fallbacks, notes_of, notes_of_many
from jaxperf.serving.provenance import Provenance
from jaxperf.serving.ranking import Ranked, Ranking
from jaxperf.serving.simulator.settings import parse_scheduler
from jaxperf.serving.study import Study

GPT2 = load_model("gpt2")
QUANTIZED = dataclasses.replace(GPT2, weight_format="fp8", quantization=Quantization("fp8", "fp8", 8, kv_cache="fp8"))
H100, A100 = (hwspecs.load(name) for name in ("h100-sxm", "a100-sxm-80gb"))
POINT = {"weights": "bf16", "kv_cache": "bf16"}


def ranked(weights: str, cache: str) -> list[str]:
    """The notes of a ranking."""
    empty = Ranking("tokens/s/device", (), (), 0, 1024)
    fixed = {"weights": weights, "kv_cache": cache}
    return RankingReport(QUANTIZED, {}, fixed, {}, empty, [], Provenance({}, "", "")).notes


def swept(**axes: object) -> list[str]:
    """The notes of a sweep over one A100."""
    question = SweepFile(model="gpt2", axes={"device": ["a100-sxm-80gb"], **axes}, metrics=None)
    return list(prepare_steps(Study(QUANTIZED, "decode", ("tpot",)), question, load_sustained_table()).notes)


def test_the_cache_that_a_checkpoint_asks_for_is_said_by_estimate_rank_and_sweep() -> None:
    asked = "The checkpoint asks for a KV cache in fp8; bf16 is counted: "
    one = notes_of(QUANTIZED, A100, {"weights": "fp8", "kv_cache": "bf16"})
    assert asked + "--kv-cache fp8 changes that." in ranked("fp8", "bf16")
    assert set(ranked("fp8", "bf16")) < set(one)
    assert asked + "kv_cache: fp8 among the axes changes that." in swept()
    for notes in (ranked("fp8", "fp8"), swept(kv_cache="fp8"), swept(kv_cache=["bf16", "fp8"])):
        assert not any("asks for" in note for note in notes)
        assert "fp8 is how the checkpoint stores its weights (fp8)." in notes


def test_groups_of_another_size_than_the_checkpoints_are_said() -> None:
    kimi = dataclasses.replace(GPT2, weight_format="int4_g32", quantization=Quantization("w4a16", "int4_g32", 4, 32))
    told = "int4 has 4.125 bits a weight where int4_g32, as the checkpoint stores them, has 4.5: the groups"
    assert [note for note in notes_of(kimi, H100, POINT | {"weights": "int4"}) if note.startswith(told)]
    for weights in ("int4_g32", "bf16", "int4_asym"):
        assert not any("groups" in note for note in notes_of(kimi, H100, POINT | {"weights": weights}))


def test_formats_of_single_blocks_and_what_stands_in_for_them_are_said() -> None:
    fp8 = Quantization("fp8", "fp8", 8, targets=("layers.0.mlp",))
    model = dataclasses.replace(load_model("llama-2-7b"), quantization=Quantization("w4", "int4", 4, others=(fp8,)))
    point = {"weights": "int4", "kv_cache": "bf16"}
    one, many = notes_of(model, A100, point), notes_of_many(model, [A100, H100], ["int4"], ["bf16"])
    stores = "The checkpoint stores the feed-forward blocks in fp8 in some or all layers; so does this, in any format."
    assert stores in one and stores in many
    assert f"{A100.name} has no fp8 matrix units: weights are multiplied in bf16." in one
    assert f"no fp8 units, multiplied in bf16: {A100.name}" in many


def test_a_ranking_says_whose_best_batch_is_the_largest_considered() -> None:
    entries = tuple(Ranked(f"d{batch}", 1.0, {"batch": batch, "tensor_parallel": 1}, {}) for batch in (8, 16))
    found = Ranking("tokens/J", entries, (), 9, 16)
    specs, fixed = {"d8": H100, "d16": A100}, {"weights": "bf16", "kv_cache": "bf16"}
    notes = RankingReport(GPT2, specs, fixed, {}, found, [], Provenance({}, "", "")).notes
    assert [note for note in notes if "--max-batch" in note] == [
        "the best batch is the largest considered, more may be better with a larger --max-batch: d16"
    ]


def test_commands_that_simulate_say_it_of_their_own_steps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxperf.io.huggingface.load_model", lambda name: QUANTIZED)
    plain = parse_scheduler({"sched": "vllm_v1", "num_blocks": 9, "model": "gpt2", "device": "a100-sxm-80gb"})
    other = dataclasses.replace(plain, device="v100-sxm-32gb")
    said = Served().notes(None, [plain, other])
    replaced = {f"no {one} units, multiplied in fp16: v100-sxm-32gb" for one in ("fp8", "bf16")}
    assert set(said[:3]) == replaced | {"no fp8 units, multiplied in bf16: a100-sxm-80gb"}
    assert said[3:-1] == ranked("fp8", "bf16") and said[-1].startswith("calibrated: measured and transfer tier for")
    (tier,) = Served(kv_cache="fp8", weights="fp16").notes(None, [plain])
    assert tier.startswith("calibrated: ")
    assert Served().notes(Path("table.npz"), [plain]) == []


@pytest.mark.parametrize("weights", ["fp8", ["bf16", "fp8"]])
def test_a_sweep_says_what_a_device_multiplies_in(weights: object) -> None:
    assert swept(weights=weights)[0] == "no fp8 units, multiplied in bf16: a100-sxm-80gb"


def test_scales_of_blocks_that_no_matrix_unit_takes_are_said_of_every_command() -> None:
    b200, l4 = hwspecs.load("b200"), hwspecs.load("l4")
    said = "h100-sxm has no matrix units for the scales of mxfp8: counted at its fp8 rate."
    assert said in notes_of(GPT2, H100, {**POINT, "weights": "mxfp8"})
    for spec, weights in ((b200, "mxfp8"), (H100, "fp8"), (H100, "mxfp4_wo")):
        assert not any("scales" in note for note in notes_of(GPT2, spec, {**POINT, "weights": weights}))
    assert fallbacks([H100, A100, l4, b200], ["mxfp8", "mxfp4"]) == [
        "no units for the scales of mxfp8, counted at the fp8 rate: h100-sxm, l4",
        "no fp8 units, multiplied in bf16: a100-sxm-80gb",
        "no fp4 units, multiplied in bf16: h100-sxm, a100-sxm-80gb, l4",
    ]


def test_links_of_the_host_are_said_of_groups_of_more_than_two() -> None:
    """Eight L40S of one server reduce fifteen times slower than the rate of their PCIe would let them."""
    l40s = hwspecs.load("l40s")
    for ranks, said in ((1, False), (2, False), (4, True)):
        one = notes_of(GPT2, l40s, {**POINT, "tensor_parallel": ranks})
        many = notes_of_many(GPT2, [H100, l40s], ["bf16"], ["bf16"], ranks=ranks)
        assert [any("PCIe" in note for note in notes) for notes in (one, many)] == [said, said]
        assert not any("PCIe" in note for note in notes_of(GPT2, H100, {**POINT, "tensor_parallel": ranks}))
    assert next(note for note in many if "PCIe" in note).endswith("eight fifteen: l40s")
