"""Runs as points: models looked up or built, layouts that factor, and what is taken where a table is silent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from calibration.datasets.training import read_training
from calibration.training.evaluate import explored_rows
from calibration.training.models import shipped_model
from calibration.training.parameters import load_training
from calibration.training.points import Known, known_runs
from calibration.training.stacks import NEWEST, release_of, stack_note, stack_of
from jaxperf.io.model_sizes import differing
from jaxperf.training.layout import CONTEXT_METHODS
from tests.calibration.training.runs import SHAPE, write


def known(folder: Path, *changes: Mapping[str, object], drop: tuple[str, ...] = ()) -> Known:
    return known_runs(read_training(write(folder, *changes, drop=drop)))


def test_a_model_is_looked_up_whatever_its_spelling(tmp_path: Path) -> None:
    found = known(
        tmp_path, {"model": "LLAMA_3.1_8B"}, {"model": "My own", **SHAPE}, {"model": "DeepSeekV3", "tp": 1, "dp": 4}
    )
    first, own, sparse = (point.model for point in found.points)
    # Meta's llama-3.1-8b has 8,030,261,248 parameters.
    assert float(first.parameters) == 8_030_261_248
    assert float(own.parameters) == float(first.parameters)
    # DeepSeek-V3 (arXiv:2412.19437): 671 B in all; its first three layers have no experts, and attention is latent.
    assert float(sparse.parameters) == pytest.approx(671e9, rel=0.002)
    assert (float(sparse.dense_layers), float(sparse.moe_layers), float(sparse.latent_width)) == (3.0, 58.0, 2112.0)


def test_an_unknown_model_without_sizes_is_a_reason(tmp_path: Path) -> None:
    found = known(tmp_path, {"model": "lama-3.1-8b"}, {"model": "llama-3.1-8b", "layers": 16})
    assert not found.runs
    assert (
        found.reasons[0].startswith("unknown_model: 'lama-3.1-8b'") and "Did you mean llama-3.1-8b" in found.reasons[0]
    )
    assert found.reasons[1].startswith("unknown_model: 'llama-3.1-8b' is not the shipped one; hidden,")
    assert found.reasons[1].endswith("The shipped one differs in layers.")


def test_a_model_may_be_a_config_of_ones_own(tmp_path: Path) -> None:
    own, broken = tmp_path / "own", tmp_path / "broken"
    for folder, changes in ((own, {}), (broken, {"hidden_size": 65})):
        folder.mkdir()
        sizes = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, vocab_size=100)
        fields = {"architectures": ["LlamaForCausalLM"], "num_key_value_heads": 2, "tie_word_embeddings": True}
        (folder / "config.json").write_text(json.dumps(fields | sizes | changes))
    found = known(tmp_path, {"model": str(own)}, {"model": str(broken)}, {"model": f"{own}/other.json"})
    layer = 64 * (64 + 32 + 32 + 64) + 3 * 64 * 96 + 2 * 64
    assert [float(point.model.parameters) for point in found.points] == [100 * 64 + 2 * layer + 64]
    assert found.notes == (f"sizes as in {own}",)
    assert found.reasons[1].startswith(f"unknown_model: {broken}/config.json: the hidden size 65 is not a multiple")
    assert found.reasons[2].endswith("are not stated. There is no such file.")


def test_sizes_that_come_from_the_catalog_are_told(tmp_path: Path) -> None:
    found = known(tmp_path, {}, {**SHAPE, "ffn": None}, SHAPE)
    assert found.notes == ("sizes as in the shipped llama-3.1-8b", "ffn as in the shipped llama-3.1-8b", "")


def test_a_model_is_known_by_its_owners_name(tmp_path: Path) -> None:
    found = known(tmp_path, {"model": "meta-llama/Meta-Llama-3-70B"}, {"model": "someone/Qwen3-32B"})
    assert found.notes == ("sizes as in the shipped llama-3-70b", "sizes as in the shipped qwen3-32b")


@pytest.mark.parametrize(
    ("name", "size"),
    [("layers", 16), ("ffn", 7168), ("kv_heads", 32), ("head_dim", 64), ("gated", 0), ("vocab", 32000)],
)
def test_stated_sizes_win_over_a_shipped_model_that_differs(tmp_path: Path, name: str, size: int) -> None:
    """Against the same sizes under a name that nothing shipped has."""
    own = {**SHAPE, name: size}
    shipped, changed, free = known(tmp_path, {}, own, {**own, "model": "own"}).points
    assert float(changed.model.parameters) == float(free.model.parameters) != float(shipped.model.parameters)


@pytest.mark.parametrize("change", [{"topk": 1}, {"moe_ffn": 4096}, {"shared_experts": 1}, {"experts": 16}])
def test_stated_experts_win_over_a_shipped_model_that_differs(tmp_path: Path, change: dict[str, object]) -> None:
    mixtral = {"model": "mixtral-8x7b", **SHAPE, "vocab": 32000, "experts": 8, "topk": 2, "moe_ffn": 14336}
    own = {**mixtral, **change}
    models = [point.model for point in known(tmp_path, mixtral, own, {**own, "model": "own"}).points]
    shipped, changed, free = ([float(m.parameters), float(m.topk)] for m in models)
    assert changed == free != shipped


def test_experts_need_their_sizes(tmp_path: Path) -> None:
    own = {**SHAPE, "experts": 16, "topk": 2}
    found = known(tmp_path, {"model": "mixtral-8x7b", **own}, {"model": "own", **own})
    assert found.reasons[0].startswith("unknown_model: 'mixtral-8x7b' is not the shipped one; moe_ffn is missing.")
    assert found.reasons[1].startswith("unknown_model: 'own' is not known and moe_ffn is not stated.")


def test_sizes_of_latent_attention_and_first_dense_layers_agree(tmp_path: Path) -> None:
    """DeepSeek-V3 as its configuration file states it (arXiv:2412.19437); each kind of layer has its own width."""
    sizes = {"layers": 61, "hidden": 7168, "heads": 128, "kv_heads": 128, "ffn": 18432, "gated": 1, "vocab": 129280}
    sizes |= {"experts": 256, "topk": 8, "moe_ffn": 2048, "shared_experts": 1, "model": "DeepSeekV3"}
    found = known(tmp_path, *({**sizes, "head_dim": width} for width in (192, 128, 64)))
    assert [float(point.model.latent_width) for point in found.points] == [2112.0] * 3


def test_a_dense_width_that_no_block_has_is_told(tmp_path: Path) -> None:
    mixtral = {"model": "mixtral-8x7b"}
    found = known(tmp_path, {**mixtral, "ffn": 7168}, {**mixtral, "ffn": 14336}, {"model": "llama-3-8b", "topk": 0})
    assert "ffn is not used: all blocks of the shipped mixtral-8x7b have experts" in found.notes[0]
    assert not any("ffn is not used" in note for note in found.notes[1:])


def test_every_measured_run_of_a_shipped_model_finds_it(data_directory: Path) -> None:
    """Runs whose table states a padded or another vocabulary are built from their sizes; no other size differs."""
    path = data_directory / "training" / "train_e2e.csv"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    runs = read_training(path).runs
    own = [run.model for run in runs if (shipped := shipped_model(run.model)) and not differing(shipped, run.shape)]
    assert len(own) == 205 and not {"GPT3-175B", "MPT-7b", "bert_large"} & set(own)


def test_the_stated_total_tells_whether_the_head_is_tied(tmp_path: Path) -> None:
    table = 4096 * 128256
    tied = {"model": "own", **SHAPE, "params": 8_030_261_248 - table}
    found = known(tmp_path, tied, {**tied, "params": 8_030_261_248}, {**tied, "params": 16e9})
    assert [float(point.model.tied) for point in found.points] == [1.0, 0.0, 0.0]
    assert found.notes[:2] == ("", "") and found.notes[2].startswith("params: 8.03e+09 counted, 1.6e+10 stated")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"dp": 4}, "world_size: n_gpus is 8, but tp x pp x cp x dp = 2 x 2 x 1 x 4 = 16."),
        (
            {"dp": 1, "ep": 2},
            "world_size: n_gpus is 8, but tp x pp x cp x dp = 2 x 2 x 1 x 1 = 4; "
            "ep divides the experts among these ranks.",
        ),
        ({"dp": None, "tp": 3}, "world_size: n_gpus is 8, which is no multiple of tp x pp x cp = 3 x 2 x 1 = 6."),
        ({"tp": 0}, "tp: 0 must be a whole number from 1 to 1e+15."),
        ({"ep": 1.5}, "ep: 1.5 must be a whole number from 1 to 1e+15."),
        ({"vp": 0}, "vp: 0 must be a whole number from 1 to 1e+15."),
        ({"global_batch": 15}, "global_batch: 15 is no multiple of 2 data-parallel ranks."),
        ({"micro_batch": 3}, "global_batch: the 8 sequences of a rank are no multiple of micro_batch 3."),
        ({"seq_par": 2}, "seq_par: 2 must be 0 or 1."),
        ({"zero": 4}, "zero: 4 must be 0, 1, 2 or 3."),
        ({"micro_batch": 0}, "micro_batch: 0 must be a whole number from 1 to 1e+15."),
        ({"model": "own", **SHAPE, "params": 0}, "params: 0 must be at least 1."),
        ({"model": "own", **SHAPE, "heads": 1.5}, "heads: 1.5 must be a whole number."),
        ({"model": "own", **SHAPE, "gated": 2}, "gated: 2 must be 0 or 1."),
        ({"model": "own", **SHAPE, "layers": 1e12}, "layers is 1000000000000; it must be an integer from 1 to 10000."),
    ],
)
def test_what_does_not_factor_is_a_reason(tmp_path: Path, change: dict[str, object], sentence: str) -> None:
    assert known(tmp_path, change).reasons == {0: sentence}


def test_the_second_stage_of_zero_with_a_pipeline_is_told(tmp_path: Path) -> None:
    stages = ({"zero": 2}, {"zero": 1}, {"zero": 2, "pp": 1, "tp": 4, "vp": 1})
    notes = known(tmp_path, *({**SHAPE, **each} for each in stages)).notes
    assert ["zero 2 is as 1 with a pipeline" in note for note in notes] == [True, False, False]


def test_how_context_ranks_exchange_keys(tmp_path: Path) -> None:
    wide = {**SHAPE, "cp": 2, "tp": 1}
    stated = [{**wide, "context_method": text} for text in ("", "all_gather", "Ulysses", "p2p")]
    found = known(tmp_path, *stated, {**SHAPE, "cp": 1, "context_method": ""})
    methods = [CONTEXT_METHODS[int(point.layout.context_method)] for point in found.points]
    assert methods == ["ring", "all-gather", "ulysses", "ring", "ring"]
    said = ["context_method is not stated: ring" in note for note in found.notes]
    assert said == [True, False, False, False, False]


def test_what_a_table_does_not_state_is_taken_and_told(tmp_path: Path) -> None:
    bare = known(
        tmp_path, SHAPE, drop=("tp", "pp", "cp", "dp", "vp", "micro_batch", "zero", "recompute", "dtype", "task")
    )
    layout = bare.points[0].layout
    assert (float(layout.tensor), float(layout.pipeline), float(layout.data)) == (1.0, 1.0, 8.0)
    assert bare.notes[0].split("; ") == [
        "micro_batch is not stated: 1",
        "recompute is not stated: none",
        "dtype is not stated: bf16",
        "tp is not stated: 1",
        "pp is not stated: 1",
        "cp is not stated: 1",
        "zero is not stated: 1",
    ]
    sparse = known(tmp_path, {"model": "mixtral-8x7b", "ep": None}, {"model": "mixtral-8x7b", "ep": 2}).notes
    assert ["ep is not stated: 1" in note for note in sparse] == [True, False]
    software = known(tmp_path, {**SHAPE, "source": ""}, {**SHAPE, "source": "somewhere"}).notes
    assert software == tuple(f"the software is not {word}: taken to be like most" for word in ("stated", "known"))
    chunks = known(tmp_path, {**SHAPE, "vp": None})
    assert float(chunks.points[0].layout.interleave) == 4.0 and chunks.notes == ("vp is not stated: 4",)


def test_a_framework_brings_what_it_does(tmp_path: Path) -> None:
    compiled = {"source": "MaxText-TPU", "recompute": None}
    eager_run = {"source": "NeuSight", "notes": "no optimizer"}
    found = known(tmp_path, compiled, {"source": "Megatron-SC21-T1"}, eager_run, {"source": "Megatron-Bridge"})
    xla, old, eager, core = (point.layout for point in found.points)
    assert [float(layout.deduplicate) for layout in (xla, old, eager, core)] == [0.0, 0.0, 0.0, 1.0]
    # One program takes all 8 sequences of a replica, recomputing as MaxText's base.yml says.
    assert (float(xla.microbatch), float(xla.recompute)) == (8.0, 2.0)
    assert (float(old.flash), float(old.overlap_tensor), float(old.zero)) == (0.0, 0.0, 1.0)
    assert (float(eager.flash), float(eager.optimizer_bytes)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"source": "llm-foundry"}, "composer-fsdp"),
        ({"source": "Megatron-Bridge"}, "megatron-core"),
        ({"source": "dgxc-benchmarking", "model": "Llama3-70B(MaxText)"}, "maxtext"),
        ({"source": "Megatron-SC21-T2", "zero": 3}, "deepspeed-zero3"),
        ({"source": "", "notes": "run with torchtitan"}, "composer-fsdp"),
        ({"source": "", "notes": "hardware-accelerated run of NeMo 25.04"}, "megatron-core"),
        ({"source": "", "notes": "to accelerate transformers with fsdp: NeMo25.04"}, "megatron-core"),
        ({"source": "", "notes": "transformers, accelerate"}, "eager"),
        ({"source": "", "notes": "Nemotron in our own code, accelerated, eagerly"}, "unknown"),
        ({"source": "Megatron-LM"}, "megatron-2021"),
        ({"source": "megatron_lm"}, "megatron-2021"),
        ({"source": "Megatron LM"}, "megatron-2021"),
        ({"source": "MegatronLM core_r0.12"}, "megatron-core"),
        ({"source": "Megatron-LM v2.6; 0.41 of the peak"}, "megatron-2021"),
        ({"source": "Megatron-LM core_r0.12"}, "megatron-core"),
        ({"source": "Megatron-LM (core 0.12)"}, "megatron-core"),
        ({"source": "Megatron-LM 24.09"}, "megatron-core"),
        ({"source": "Megatron-LM, MCore"}, "megatron-core"),
        ({"source": "DeepSpeed 0.16, transformers"}, "megatron-deepspeed"),
        ({"source": "somewhere else"}, "unknown"),
    ],
)
def test_the_software_of_a_run(tmp_path: Path, change: dict[str, object], name: str) -> None:
    (run,) = read_training(write(tmp_path, change)).runs
    assert stack_of(run).name == name


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"source": "DeepSpeed 0.16, flash attention 2"}, "software taken as megatron-deepspeed"),
        ({"source": "DeepSpeed", "notes": "FlashAttention"}, "software taken as megatron-deepspeed"),
        ({"source": "DeepSpeed 0.16"}, "software taken as megatron-deepspeed: attention scores in memory"),
        (
            {"source": "DeepSpeed, no flash attention"},
            "software taken as megatron-deepspeed: attention scores in memory",
        ),
        ({"source": "somewhere else"}, ""),
    ],
)
def test_which_software_was_taken_is_told(tmp_path: Path, change: dict[str, object], note: str) -> None:
    found = known(tmp_path, change)
    assert stack_note(found.stacks[0]) == note
    assert float(found.points[0].layout.flash) == float("in memory" not in note)


@pytest.mark.parametrize(
    ("change", "release"),
    [
        ({"source": "Megatron-Bridge", "notes": "26.04.01 NeMo Container; model TFLOPs 26.02"}, "26.04.01"),
        ({"source": "dgxc-benchmarking", "notes": "v25.03; reduced-layer proxies"}, "25.03"),
        ({"source": "", "notes": "image nvcr.io/nvidia/nemo:25.09, Megatron"}, "25.09"),
        ({"source": "Megatron-Bridge", "notes": "model TFLOPs 26.04; MFU=25.11"}, NEWEST),
        ({"source": "llm-foundry", "notes": "v25.03"}, ""),
        ({"source": "NeMo 25.04"}, "25.04"),
        ({"source": "Megatron-LM 24.09"}, "24.09"),
        ({"source": "Megatron-Bridge", "notes": "26.04.01 NeMo Container, mcore 0.17"}, "26.04.01"),
        ({"source": "Megatron-LM core_r0.12"}, "0.012"),
        ({"source": "Megatron-LM (core 0.9)"}, "0.009"),
        ({"source": "Megatron-LM v0.15.1"}, "25.11"),
        ({"source": "", "notes": "Megatron-Core==0.14.0"}, "25.09"),
        ({"source": "mcore", "notes": "score 0.12, 36 cores"}, NEWEST),
        ({"source": "megatron-core 0.18"}, "core 0.018"),
    ],
)
def test_the_release_of_the_software(tmp_path: Path, change: dict[str, object], release: str) -> None:
    (run,) = read_training(write(tmp_path, change)).runs
    assert release_of(run, stack_of(run)) == release
    told = "the release of the software is not stated: the newest" in known(tmp_path, change).notes[0]
    assert told == (release == NEWEST)


def test_releases_sort_by_age(tmp_path: Path) -> None:
    sources = [f"Megatron-LM core_r0.{minor}" for minor in (9, 12, 14, 17, 18)]
    found = [release_of(run, stack_of(run)) for run in known(tmp_path, *({"source": each} for each in sources)).runs]
    measured = [name.rpartition("/")[2] for name in load_training().deviations if "/release/" in name]
    assert found == sorted(found) and found[1] < min(measured) and max(measured) < found[-1] < NEWEST


def test_adapters_learn_and_the_model_does_not(tmp_path: Path) -> None:
    found = known(tmp_path, {"task": "LoRA"}, {})
    assert [(float(p.layout.lora_rank), float(p.layout.frozen)) for p in found.points] == [(16.0, 1.0), (0.0, 0.0)]


@pytest.mark.parametrize(
    ("notes", "rank"),
    [
        ("LoRA rank 64", 64.0),
        ("rank=256; 26.06 NeMo Container", 256.0),
        ("lora_r=256", 256.0),
        ("r=8", 8.0),
        ("all linear layers, Rank: 32.", 32.0),
        ("LoRA dim 128", 128.0),
        ("26.06 NeMo Container; model TFLOPs 2086", 16.0),
        ("node_rank=1, lr=2, r=0.5, 4 ranks", 16.0),
    ],
)
def test_notes_tell_the_rank_of_adapters(tmp_path: Path, notes: str, rank: float) -> None:
    found = known(tmp_path, {"task": "LoRA", "notes": notes}, {"notes": notes})
    assert [float(point.layout.lora_rank) for point in found.points] == [rank, 0.0]
    assert ["LoRA rank is not stated: 16" in note for note in found.notes] == [rank == 16.0, False]


def test_a_rank_above_the_width_is_refused(tmp_path: Path) -> None:
    found = known(tmp_path, {"task": "LoRA", "notes": "rank=100000"}, {})
    assert len(found.points) == 1
    assert any("a LoRA rank of 100,000 is above the model's width of" in str(why) for why in found.reasons.values())


def test_a_format_the_device_lacks_has_the_share_of_its_stand_in_and_is_told(tmp_path: Path) -> None:
    """An A100 multiplies fp8 in bf16 (NVIDIA's white paper of 2020, table 1): at that peak with that share of it."""
    wide, narrow, native, scaled = (
        {"gpu": "a100-sxm-80gb"},
        {"gpu": "a100-sxm-80gb", "dtype": "fp8"},
        {"dtype": "fp8"},
        {"dtype": "mxfp8"},
    )
    found = known(tmp_path, *({**SHAPE, **each} for each in (wide, narrow, native, scaled)))
    assert found.classes == ("16-bit", "16-bit", "8-bit", "8-bit")
    assert found.notes[0] == found.notes[2] == ""
    assert found.notes[1] == "no fp8 matrix units: multiplied in bf16"
    assert found.notes[3] == "no matrix units for the scales of mxfp8: counted at its fp8 rate"
    assert explored_rows(found).tolist() == [False, True, True, True]  # nobody measured that stand-in either


def test_a_format_of_weights_alone_is_told(tmp_path: Path) -> None:
    found = known(tmp_path, *({**SHAPE, "dtype": name} for name in ("int4", "mxfp4_wo", "bf16")))
    told = "is a format of weights alone: trained in bf16"
    assert found.notes == (f"int4 {told}", f"mxfp4_wo {told}", "") and found.classes == ("16-bit",) * 3
