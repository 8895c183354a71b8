"""What people paste: recipes with latent attention, drawn pipelines, branches, DeepSpeed's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwspecs.errors import InputError
from jaxperf.io.megatron.arguments import read_megatron
from jaxperf.io.training_configuration import TrainingConfiguration
from jaxperf.io.training_rows import read_configuration
from tests.io.test_megatron import ARGUMENTS, read

# Of DeepSeek-V3 in Megatron-Core.
LATENT = """--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --swiglu
--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64
--v-head-dim 128 --num-experts 256 --moe-layer-freq ([0]*3+[1]*58) --moe-ffn-hidden-size 2048 --moe-router-topk 8
--moe-shared-expert-intermediate-size 2048 --seq-length 4096 --micro-batch-size 1 --bf16
--untie-embeddings-and-output-weights --tokenizer-model deepseek-ai/DeepSeek-V3 """


def not_read(found: TrainingConfiguration) -> str:
    return next((note for note in found.notes if note.startswith("Not read")), "")


def test_a_tokenizer_names_the_shipped_model_of_its_sizes(tmp_path: Path) -> None:
    """Which has the windows and groups that a table has no column for; its vocabulary goes with any sizes."""
    found = read(LATENT, tmp_path)
    assert (found.model, found.vocab, found.head_dim, not_read(found)) == ("deepseek-v3", None, 128, "")
    assert read(LATENT + "--vocab-size 129280", tmp_path).model == "deepseek-v3"
    assert read(LATENT + "--vocab-size 131072", tmp_path).model == "run"
    other = read(LATENT.replace("18432", "20480"), tmp_path)
    assert (other.model, other.vocab) == ("run", 129280)
    assert "--vocab-size is not given; 129280, that of the shipped deepseek-v3." in other.notes
    row = other.row()
    assert not_read(other) == ""
    assert [row[name] for name in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim")] == [
        1536, 512, 128, 128,
    ]  # fmt: skip
    few = read(
        LATENT.replace("18432", "20480").replace("--q-lora-rank 1536", "").replace("--qk-head-dim 128", ""), tmp_path
    )
    assert (few.q_lora_rank, few.qk_nope_head_dim, few.qk_rope_head_dim) == (None, 128, 64)
    plain = read(LATENT.replace("--multi-latent-attention", "--kv-channels 128"), tmp_path)
    assert plain.model == "run"


def test_a_tokenizer_of_one_vocabulary(tmp_path: Path) -> None:
    assert read(ARGUMENTS + "--tokenizer-type GPT2BPETokenizer", tmp_path).vocab == 50304
    assert read(ARGUMENTS + "--tokenizer-type NullTokenizer", tmp_path).vocab is None


def test_a_drawn_pipeline_counts_its_chunks(tmp_path: Path) -> None:
    drawn = "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout "
    for spelled in ('"Et|(t|)*2tmL"', "Et\\|\\(t\\|\\)*2tmL", "Et|t|t|tmL"):
        found = read(ARGUMENTS + drawn + spelled, tmp_path)
        assert (found.interleave, found.layers) == (1, 4)
        assert not_read(found).endswith("--pipeline-model-parallel-layout (but for the number of its stages).")
    assert read(f'L="E|t|t|t|t|m||L"\n{ARGUMENTS}{drawn} $L', tmp_path).interleave == 2
    with pytest.raises(InputError, match="has 3 stages, no multiple of --pipeline-model-parallel-size 4"):
        read(ARGUMENTS + drawn + '"Ett|t|tL"', tmp_path)
    for bad in ('"E((t*999)*999)*9|L"', '"E(t|L"'):
        with pytest.raises(InputError, match="is no layout"):
            read(ARGUMENTS + drawn + bad, tmp_path)


def test_the_embedding_and_the_loss_may_count_as_layers(tmp_path: Path) -> None:
    """As in Llama 3 405B, whose 126 layers are on 16 stages."""
    text = ARGUMENTS.replace("--num-layers 4", "--num-layers 126") + "--pipeline-model-parallel-size 16 "
    text += "--num-layers-per-virtual-pipeline-stage 1 "
    both = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
    assert read(text + both, tmp_path, 16).interleave == 8
    with pytest.raises(InputError, match="--num-layers 126 is no multiple"):
        read(text, tmp_path, 16)


def test_branches_of_a_script_contradict_each_other_only_where_it_matters(tmp_path: Path) -> None:
    script = "if [ $1 ]; then\n  A=(--tokenizer-type NullTokenizer {0})\nelse\n  B=(--tokenizer-type Other {1})\nfi\n"
    assert read(script.format("--data-path x", "--data-path y") + ARGUMENTS, tmp_path).layers == 4
    with pytest.raises(InputError, match="--context-parallel-size is given twice: 1 and 2"):
        read(script.format("--context-parallel-size 1", "--context-parallel-size 2") + ARGUMENTS, tmp_path)


def test_the_number_of_devices_stands_in_for_what_only_the_cluster_knows(tmp_path: Path) -> None:
    text = "torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES train.py " + ARGUMENTS
    assert read(text, tmp_path, 64).devices == 64
    with pytest.raises(InputError, match=r"--nnodes is '\$SLURM_NNODES'"):
        read(text, tmp_path, None)


@pytest.mark.parametrize(
    ("given", "share", "missing"),
    [
        ("", 0.0, "--overlap-grad-reduce is not given"),
        ("--overlap-grad-reduce", 1.0, ""),
        ("--use-distributed-optimizer", 0.0, "--overlap-grad-reduce and --overlap-param-gather are not given"),
        ("--use-distributed-optimizer --overlap-grad-reduce", 2.0 / 3.0, "--overlap-param-gather is not given"),
        ("--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather", 1.0, ""),
        ("--use-torch-fsdp2", None, ""),
        ("--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2", None, ""),
    ],
)
def test_what_data_parallel_ranks_exchange_is_hidden_if_asked(
    given: str, share: float | None, missing: str, tmp_path: Path
) -> None:
    found = read(ARGUMENTS + given, tmp_path)
    assert found.row()["overlap_data"] == (share if share is None else pytest.approx(share))
    said = [note for note in found.notes if "is not hidden" in note]
    assert len(said) == bool(missing) and "".join(said).startswith(missing)


def test_how_the_software_works_is_told_apart_from_what_is_not_understood(tmp_path: Path) -> None:
    found = read(
        ARGUMENTS + "--moe-token-dispatcher-type flex --tp-comm-overlap --exp-avg-dtype bf16 --main-grads-dtype fp32 "
        "--cpu-offloading --rope-scaling-factor 8 --no-bias-swiglu-fusion --made-up",
        tmp_path,
    )
    assert not_read(found).endswith(": --cpu-offloading, --exp-avg-dtype bf16.")
    told = "--moe-token-dispatcher-type flex, --tp-comm-overlap, --no-bias-swiglu-fusion."
    assert f"Taken as measured runs of this software have it, whatever is given: {told}" in found.notes
    assert found.unknown == ("--made-up",)


def test_deepspeed_in_megatrons_words(tmp_path: Path) -> None:
    text = "deepspeed --num_gpus=4 --num_nodes 2 pretrain_gpt.py --deepspeed --num-key-value-heads 2 --zero-stage 1 "
    text += "--ds-sequence-parallel-size 2 --num-experts 8 --moe-expert-parallel-size 2 --deepspeed_config a.json "
    path = tmp_path / "run.sh"
    path.write_text(text + ARGUMENTS + "--use-flash-attn-v2")
    found = read_megatron(path)
    assert (found.devices, found.kv_heads, found.context_parallel, found.data_parallel) == (8, 2, 2, 4)
    assert (found.context_method, found.expert_parallel, found.topk) == ("ulysses", 2, 1)
    assert (found.software, found.unknown) == ("Megatron-DeepSpeed arguments, flash attention", ())
    assert not_read(found).endswith("--deepspeed-config a.json.")
    assert read(text + ARGUMENTS + "--topk 2", tmp_path).topk == 2
    split = (
        text.replace("sequence-parallel-size 2", "sequence-parallel-size 1")
        + ARGUMENTS
        + "--tensor-model-parallel-size 2 "
    )
    assert read(split, tmp_path).expert_tensor == 1
    assert read(split + "--enable-expert-tensor-parallelism", tmp_path).expert_tensor == 2


def test_nemo_calls_chunks_the_virtual_pipeline(tmp_path: Path) -> None:
    text = ARGUMENTS + "--pipeline-model-parallel-size 2 --virtual-pipeline-model-parallel-size 2"
    found = read(text, tmp_path)
    assert (found.interleave, found.unknown) == (2, ())


def test_options_may_be_keys_of_a_yaml_file(tmp_path: Path) -> None:
    """As in NVIDIA's recipes of mixtures: what is false is not set, and other keys end an option."""
    path = tmp_path / "run.yaml"
    path.write_text(
        "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\nMODEL_ARGS:\n  --num-layers: 4  # all\n  --hidden-size: 64\n"
        "  --num-attention-heads: 4\n  --seq-length: 128\n  --micro-batch-size: 2\n  --bf16: true\n"
        "  --sequence-parallel: false\n  --swiglu: True\n  --num-experts: 4\n  --moe-layer-freq: ([0]*1+[1]*3)\n"
        '  --pipeline-model-parallel-size: 2\n  --pipeline-model-parallel-layout: "Et|(t|)*2tL"\n'
        "  --global-batch-size: 16\nOTHER: 3\n"
    )
    found = read_configuration(path, devices=8)
    assert (found.layers, found.gated, found.sequence_parallel, found.dtype) == (4, True, False, "bf16")
    assert (found.dense_layers, found.interleave, found.global_batch, found.unknown) == (1, 2, 16, ())


@pytest.mark.parametrize("modules", ["", "core_attn", "mlp core_attn", "moe_act mla_up_proj"])
def test_selective_recomputation_is_of_the_named_modules(modules: str, tmp_path: Path) -> None:
    given = f"--recompute-granularity selective {modules and f'--recompute-modules {modules}'}"
    found = read(ARGUMENTS + given, tmp_path)
    assert (found.recompute, found.recompute_modules or "") == ("selective", modules)
    assert (found.row()["recompute_modules"], not_read(found)) == (modules or None, "")
    unused = read(ARGUMENTS + f"--recompute-modules {modules or 'mlp'}", tmp_path)
    assert (unused.recompute, unused.recompute_modules) == ("none", None)


def test_an_optimizer_on_the_host_and_further_tokens_have_columns(tmp_path: Path) -> None:
    fraction = "--optimizer-cpu-offload --optimizer-offload-fraction 0.75 --mtp-num-layers 1"
    names = ("offload_optimizer", "overlap_offload", "mtp")

    def told(given: str) -> tuple[object, ...]:
        found = read(ARGUMENTS + given, tmp_path)
        assert (not_read(found), found.unknown) == ("", ())
        return tuple(found.row()[name] for name in names)

    assert told(fraction) == (0.75, 0.0, 1)
    assert told("--optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d") == (1.0, 1.0, None)
    assert told("--mtp-num-layers 0") == (None, None, None)
    assert told("--cpu-optimizer") == (1.0, None, None)
    assert told("") == (None, None, None)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("--recompute-granularity selective --recompute-modules moe_activation", "--recompute-modules has"),
        ("--optimizer-cpu-offload --optimizer-offload-fraction 2", "must be a number from 0 to 1"),
        ("--optimizer-cpu-offload --optimizer-offload-fraction half", "must be a number from 0 to 1"),
    ],
)
def test_modules_and_fractions_that_do_not_exist_are_refused(given: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=told):
        read(ARGUMENTS + given, tmp_path)
