"""Megatron's arguments from text and scripts: what a script means, its defaults, and what contradicts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.io.megatron.arguments import read_megatron
from jaxperf.io.megatron.options import parse_options
from jaxperf.io.training_configuration import COLUMNS, TrainingConfiguration
from jaxperf.io.training_rows import read_configuration, rows_from

# The shape of examples/gpt3/train_gpt3_175b_distributed.sh of NVIDIA/Megatron-LM.
SCRIPT = r"""#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-16}   # nodes
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
TP=8
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NNODES
    --master_addr localhost
)
GPT_MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96   # heads
    --seq-length 2048
    --max-position-embeddings 2048
    --vocab-size 50257
)
TRAINING_ARGS="
    --micro-batch-size 1 \
    --global-batch-size $((NNODES * 96)) \
    --fp16 --lr 6.0e-5 --weight-decay 0.1
    --recompute-granularity selective
"
MODEL_PARALLEL_ARGS=(--tensor-model-parallel-size ${TP} --pipeline-model-parallel-size 8)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${GPT_MODEL_ARGS[@]} $TRAINING_ARGS ${MODEL_PARALLEL_ARGS[@]} \
    --num-layers-per-virtual-pipeline-stage=4 --sequence-parallel --use-distributed-optimizer \
    --my-new-option 3 > log 2>&1
"""
ARGUMENTS = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --micro-batch-size 2 --bf16 "


def read(text: str, tmp_path: Path, devices: int | None = 8) -> TrainingConfiguration:
    path = tmp_path / "run.args"
    path.write_text(text)
    return read_megatron(path, devices)


def test_a_script_means_what_it_would_run(tmp_path: Path) -> None:
    found = read(SCRIPT, tmp_path, None)
    assert (found.layers, found.hidden, found.heads, found.kv_heads, found.head_dim) == (96, 12288, 96, 96, 128)
    assert (found.ffn, found.gated, found.vocab, found.seq) == (49152, False, 51200, 2048)
    assert (found.devices, found.tensor_parallel, found.pipeline_parallel, found.data_parallel) == (128, 8, 8, 2)
    assert (found.micro_batch, found.global_batch, found.interleave, found.zero) == (1, 1536, 3, 1)
    assert (found.recompute, found.sequence_parallel, found.dtype) == ("selective", True, "fp16")
    assert found.unknown == ("--my-new-option",)
    assert found.row()["notes"].endswith("Not understood and left out: --my-new-option.")


def test_the_defaults_are_megatrons(tmp_path: Path) -> None:
    found = read(ARGUMENTS, tmp_path)
    assert (found.ffn, found.gated, found.kv_heads, found.global_batch, found.data_parallel) == (256, False, 4, 16, 8)
    assert (found.recompute, found.zero, found.vocab, found.experts) == ("none", 0, None, None)
    assert any("tokenizer" in note for note in found.notes)
    assert "--global-batch-size is not given; 16, Megatron's default." in found.notes
    gated = read(ARGUMENTS.replace("64", "4096") + "--swiglu", tmp_path)
    assert (gated.ffn, gated.gated) == (int(4096 * 4 * 2 / 3 / 64) * 64, True)
    assert read(ARGUMENTS + "--group-query-attention --num-query-groups 2", tmp_path).kv_heads == 2
    ungrouped = read(ARGUMENTS + "--num-query-groups 2", tmp_path)
    assert ungrouped.kv_heads == 4 and any("without --group-query-attention" in note for note in ungrouped.notes)
    assert read(ARGUMENTS + "--checkpoint-activations", tmp_path).recompute == "full"
    assert read(ARGUMENTS + "--sequence-parallel", tmp_path).sequence_parallel is False


def test_experts_formats_and_sharding(tmp_path: Path) -> None:
    text = "--num-experts 8 --moe-ffn-hidden-size 96 --expert-model-parallel-size 4 --moe-router-topk 3"
    found = read(ARGUMENTS + text + " --moe-shared-expert-intermediate-size 192", tmp_path)
    assert (found.experts, found.topk, found.moe_ffn, found.shared_experts, found.expert_parallel) == (8, 3, 96, 2, 4)
    assert found.row()["family"] == "moe"
    plain = read(ARGUMENTS + "--num-experts 8", tmp_path)
    assert (plain.topk, plain.ffn, plain.moe_ffn, plain.shared_experts) == (2, 256, 256, None)
    for options, dtype in (
        ("--fp8-format hybrid", "fp8"),
        ("--fp8-format e4m3 --fp8-recipe mxfp8", "mxfp8"),
        ("--fp4-format e2m1", "nvfp4"),
    ):
        assert read(ARGUMENTS + options, tmp_path).dtype == dtype
    for options, stage in (
        ("--zero-stage 2", 2),
        ("--use-torch-fsdp2", 3),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", 2),
        ("--use-megatron-fsdp", 0),
    ):
        assert read(ARGUMENTS + options, tmp_path).zero == stage
    told = "--data-parallel-sharding-strategy is not given; no_shard, Megatron's default."
    assert told in read(ARGUMENTS + "--use-megatron-fsdp", tmp_path).notes


def test_one_token_table_or_two_are_told_by_the_count_of_parameters(tmp_path: Path) -> None:
    text = ARGUMENTS + "--vocab-size 50257 "
    tied, untied = (read(text + each, tmp_path) for each in ("", "--untie-embeddings-and-output-weights"))
    assert (tied.tied, untied.tied, untied.unknown) == (True, False, ())
    assert untied.row()["params"] - tied.row()["params"] == 50304 * 64
    assert read(ARGUMENTS, tmp_path).row()["params"] is None  # nobody knows the vocabulary


@given(
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 4]),
    cp=st.sampled_from([1, 2]),
    batches=st.integers(1, 16),
    vocab=st.integers(1, 60_000),
)
def test_sizes_multiply_out(
    tp: int, pp: int, cp: int, batches: int, vocab: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    options = f"--tensor-model-parallel-size {tp} --pipeline-model-parallel-size {pp} --context-parallel-size {cp} "
    dp = 64 // (tp * pp * cp)
    options += f"--global-batch-size {2 * dp * batches} --vocab-size {vocab}"
    found = read(ARGUMENTS + options, tmp_path_factory.mktemp("args"), 64)
    assert (found.data_parallel, found.global_batch) == (dp, 2 * dp * batches)
    assert found.vocab is not None and found.vocab % (128 * tp) == 0 and 0 <= found.vocab - vocab < 128 * tp


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no option"),
        (ARGUMENTS.replace("--hidden-size 64 ", ""), "--hidden-size is missing"),
        (ARGUMENTS + "--fp16", "--fp16 and --bf16 contradict"),
        (ARGUMENTS + "--num-layers 8", "--num-layers is given twice: 4 and 8"),
        (ARGUMENTS + "--tensor-model-parallel-size 3", "8 devices are no multiple of --tensor-model-parallel-size 3"),
        (ARGUMENTS + "--tensor-model-parallel-size $TP", "--tensor-model-parallel-size is '$TP'"),
        ("TP=2\nTP=4\n" + ARGUMENTS + "--tensor-model-parallel-size $TP", "not to one value"),
        (ARGUMENTS + "--tensor-model-parallel-size two", "--tensor-model-parallel-size is 'two'"),
        (ARGUMENTS + "--world-size 16", "stated as 8 and 16"),
        (ARGUMENTS + "--global-batch-size 12", "a global batch of 12 is no multiple"),
        (ARGUMENTS + "--recompute-activations --recompute-granularity full", "contradict each other"),
        (ARGUMENTS + "--recompute-granularity some", "--recompute-granularity is 'some'"),
        (ARGUMENTS + "--expert-model-parallel-size 2", "needs --num-experts"),
        (ARGUMENTS + "--num-experts 6 --expert-model-parallel-size 4", "--num-experts 6 is no multiple"),
        (ARGUMENTS + "--group-query-attention --num-query-groups 3", "no multiple of --num-query-groups 3"),
        (ARGUMENTS.replace("heads 4", "heads 5"), "no multiple of --num-attention-heads 5"),
        (
            ARGUMENTS + "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3",
            "no multiple of --num-layers-per-virtual-pipeline-stage 3",
        ),
        (ARGUMENTS + "--zero-stage 4", "--zero-stage is '4'"),
        (ARGUMENTS + "--use-torch-fsdp2 --zero-stage 1", "--use-torch-fsdp2 and --zero-stage contradict"),
    ],
)
def test_contradictions_are_refused_by_the_name_of_the_option(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read(text, tmp_path)
    assert says in str(error.value) and "run.args" in str(error.value)


@pytest.mark.parametrize("value", [" false", " False", "=0", " no", " true"])
@pytest.mark.parametrize("flag", ["--sequence-parallel", "--swiglu", "--use_distributed_optimizer"])
def test_a_flag_that_is_told_no_is_not_taken_for_a_yes(flag: str, value: str, tmp_path: Path) -> None:
    said = rf"run\.args: {flag.replace('_', '-')} takes no value, but '{value[1:]}' follows it"
    with pytest.raises(InputError, match=said):
        read(f"{ARGUMENTS} --tensor-model-parallel-size 2 {flag}{value} --seed 1", tmp_path)
    alone = read(f"{ARGUMENTS} --tensor-model-parallel-size 2 {flag} 1>log", tmp_path)
    assert alone.sequence_parallel or alone.gated or alone.zero == 1


@pytest.mark.parametrize("option", ["--fp8-format e5m2", "--fp8-recipe mxfp", "--fp4-format nvfp4", "--fp8-format"])
def test_a_format_that_is_none_is_refused(option: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{option.split()[0]} is '.*'; it must be one of "):
        read(f"{ARGUMENTS} {option}", tmp_path)


@pytest.mark.parametrize("end", ["2>&1 | tee log", "2>errors", "1>log 2>&1", "2> errors &", "&> log", ">log2"])
def test_where_the_output_goes_is_no_value(end: str, tmp_path: Path) -> None:
    assert read(f"{ARGUMENTS} --vocab-size 51200 {end}", tmp_path).vocab == 51200


def test_the_number_of_devices_must_be_known(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="number of devices is not stated"):
        read(ARGUMENTS, tmp_path, None)
    assert read(ARGUMENTS + "--nproc_per_node 4 --nnodes 2", tmp_path, None).devices == 8


@pytest.mark.parametrize("program", ["pretrain_gpt.py", "'$REPO/pretrain_gpt.py'", "-m megatron.pretrain", "-u gpt.py"])
def test_the_program_ends_the_last_option_of_its_launcher(program: str, tmp_path: Path) -> None:
    found = read(f"torchrun --nproc_per_node 4 --nnodes 2 {program} {ARGUMENTS} --seed -1", tmp_path, None)
    assert (found.devices, found.layers, found.unknown) == (8, 4, ())


def test_columns_of_experts_and_of_recomputed_layers(tmp_path: Path) -> None:
    """The router of DeepSeek-V3 as Megatron-Core spells it, on two stages of two chunks."""
    text = "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --micro-batch-size 1 --swiglu "
    text += '--num-experts 16 --moe-layer-freq "([0]*3+[1]*5)" --moe-router-num-groups 8 --moe-router-group-topk 4 '
    text += "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
    text += "--recompute-granularity full --recompute-method block --recompute-num-layers 1 --vocab-size 1024 "
    row = read(text + "--expert-tensor-parallel-size 1", tmp_path).row()
    names = ("etp", "recomputed_share", "dense_layers", "expert_groups", "groups_per_token")
    assert [row[name] for name in names] == [1, 0.5, 3, 8, 4]
    found = read(text, tmp_path)
    assert found.row()["etp"] == 2
    assert "--expert-tensor-parallel-size is not given; 2, Megatron's default." in found.notes
    plain = read(ARGUMENTS, tmp_path).row()
    assert [plain[name] for name in names] == [None] * 5


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("--moe-router-num-groups 2", "go together"),
        ("--moe-router-num-groups 3 --moe-router-group-topk 1", "--num-experts 4 is no multiple"),
        ("--moe-router-num-groups 2 --moe-router-group-topk 3", "--moe-router-group-topk is 3; at most"),
        ("--moe-layer-freq [0]*1+[1]*4", "--moe-layer-freq has 5 layers, where --num-layers is 4"),
        ("--moe-layer-freq [1]*5", "--moe-layer-freq has 5 layers, where --num-layers is 4"),
    ],
)
def test_groups_and_layers_that_do_not_fit_are_refused(given: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says.replace("*", "[*]")):
        read(ARGUMENTS + "--num-experts 4 " + given, tmp_path)


@pytest.mark.parametrize("spelled", ['"([0]*1+[1]*3)"', "'([0]*1 + [1]*3)'", "([0]*1+[1]*3)", "[0]*1+[1]*3"])
def test_leading_dense_layers_as_recipes_spell_them(spelled: str, tmp_path: Path) -> None:
    for text in ("%s", "ARGS=(%s)\npython pretrain_gpt.py ${ARGS[@]}"):
        options = f"--num-experts 4 --moe-layer-freq {spelled} " + ARGUMENTS
        assert read(text % options, tmp_path).dense_layers == 1


def test_options_that_mean_nothing_are_one_sentence_with_typos_first(tmp_path: Path) -> None:
    found = read(ARGUMENTS + "--my-option 2 --pipeline-model-paralel-size 2 --wandb-project x", tmp_path)
    assert found.unknown == ("--my-option", "--pipeline-model-paralel-size")
    assert found.notes[-1] == (
        "Not understood and left out: --pipeline-model-paralel-size (did you mean "
        "--pipeline-model-parallel-size?), --my-option."
    )
    assert not any("Not understood" in note for note in read(ARGUMENTS + "--save /checkpoints", tmp_path).notes)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --moe-layer-freq 1", ""),
        ("--num-experts 4 --tensor-model-parallel-size 2 --expert-tensor-parallel-size 1", ""),
        ("--num-experts 4 --tensor-model-parallel-size 2 --moe-layer-freq 2", "--moe-layer-freq 2"),
        ("--num-experts 4 --moe-layer-freq [0]*1+[1]*3", ""),
        ("--num-experts 4 --moe-layer-freq ([1]*4)", ""),
        ("--num-experts 4 --moe-layer-freq [0]*1+[1,0,1]", "--moe-layer-freq [0]*1+[1,0,1]"),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 2", ""),
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2",
            "--recompute-num-layers 2",
        ),
        (
            "--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 1",
            "--decoder-first-pipeline-num-layers 1",
        ),
        ("--context-parallel-size 2 --cp-comm-type a2a+p2p", "--cp-comm-type a2a+p2p"),
        ("--context-parallel-size 2 --cp-comm-type p2p a2a", "--cp-comm-type p2p a2a"),
        ("--context-parallel-size 2 --cp-comm-type a2a", ""),
        ("--optimizer adam", ""),
        ("--optimizer sgd", "--optimizer sgd"),
    ],
)
def test_options_that_change_a_step_and_have_no_column_are_said(given: str, said: str, tmp_path: Path) -> None:
    found = read(ARGUMENTS + given, tmp_path)
    notes = [note for note in found.notes if note.startswith("Not read")]
    assert found.unknown == ()
    assert notes == ([f"Not read, though this changes the answer: {said}."] if said else [])


@pytest.mark.parametrize(
    ("given", "method"),
    [("", "ring"), ("--cp-comm-type all_gather", "all-gather"), ("--cp-comm-type a2a a2a", "ulysses")],
)
def test_how_context_ranks_exchange_keys(given: str, method: str, tmp_path: Path) -> None:
    assert read(f"{ARGUMENTS} --context-parallel-size 2 {given}", tmp_path).row()["context_method"] == method
    with pytest.raises(InputError, match="--cp-comm-type is 'ring'; it must be one of p2p"):
        read(f"{ARGUMENTS} --cp-comm-type ring", tmp_path)


@given(st.text(alphabet="-abn=$(){}[];|\"' \n\\0123*", max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        found = parse_options("--a 1 " + text, "file")
    except InputError as error:
        assert str(error).startswith("file")
    else:
        assert all(isinstance(value, str) for values in found.values() for value in values)


def test_variables_that_hold_one_another_end(tmp_path: Path) -> None:
    assert parse_options("A=$B\nB=$A\n--x $A", "file")["x"]
    assert len(parse_options("A=$A$A\n--x $A", "file")) == 1


def test_rows_have_the_columns_of_measured_steps(tmp_path: Path) -> None:
    path = tmp_path / "gpt.sh"
    path.write_text(SCRIPT)
    (row,) = rows_from(path, device="h100-sxm")
    assert list(row) == COLUMNS
    assert (row["gpu"], row["n_gpus"], row["tp"], row["pp"], row["vp"], row["seq_par"]) == (
        "h100-sxm",
        128,
        8,
        8,
        3,
        1.0,
    )
    assert row["step_time_s"] is None
    for paths in ((), (path, path), (tmp_path / "x.toml",)):
        with pytest.raises(InputError, match="give one file of Megatron's arguments"):
            read_configuration(*paths)
