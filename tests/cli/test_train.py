"""`jaxperf train`: the same rows in the same order, what is said about them, and every mistake one sentence."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from calibration.training.parameters import TIERS, TrainingParameters, save_training
from calibration.training.predict import EXPOSED, NUMBERS
from calibration.training.scalars import assumed_starts

HEADER = "note,source,model,gpu,n_gpus,tp,pp,dp,vp,micro_batch,global_batch,seq,recompute,step_time_s"
TABLE = f"""{HEADER}
a,lab,Llama 3.1 8B,H100-SXM-80GB,8,2,2,2,2,1,016,4096,full,1.5
b,lab,DeepSeekV3,GB200,256,1,4,64,4,1,4096,4096,,
c,lab,lama,H100-SXM-80GB,8,2,2,2,2,1,16,4096,full,
d,lab,llama-3-8b,H1000,8,2,2,2,2,1,16,4096,full,
"e, last",lab,llama-3-8b,h100,8,2,2,4,2,1,16,4096,full,
"""

pytestmark = pytest.mark.usefixtures("plain_jax")


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scalars of the step that are the assumed ones."""
    path = tmp_path_factory.mktemp("steps") / "assumed"
    widths = dict(zip(TIERS, (0.1, 0.2, 0.3), strict=True))
    card = {"created": "2026-11-21", "data": []}
    save_training(TrainingParameters({"gemm/all/": 0.0}, assumed_starts(), widths, (), (), card), path)
    return path


@pytest.fixture
def predict(answered, no_kernels: Path, steps: Path) -> Callable[..., dict]:
    return partial(answered, "train", "--params", no_kernels, "--steps", steps)


def test_the_same_rows_come_back_with_predictions(predict: Callable[..., dict], table: Path, own_folder: Path) -> None:
    said = predict(table, "-o", "out.csv")
    with (own_folder / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [*HEADER.split(","), *NUMBERS, "feasible", "tier", "reason"]
    assert [row["note"] for row in rows] == ["a", "b", "c", "d", "e, last"]
    assert rows[0]["global_batch"] == "016"
    assert [row["tier"] for row in rows] == ["unseen", "exploratory", "", "", ""]
    assert [row["feasible"] for row in rows] == ["true", "false", "false", "false", "false"]
    assert rows[1]["reason"].startswith("memory over capacity")  # all experts on every rank, where ep is not stated
    reasons = [row["reason"].partition(":")[0] for row in rows]
    assert reasons[2:] == ["unknown_model", "unknown_device", "world_size"]
    assert (said["rows"], said["predicted"], said["feasible"]) == (5, 2, 1)
    assert [answer["row"] for answer in said["answers"]] == [1, 2]
    assert all(answer["mfu"] == pytest.approx(float(rows[answer["row"] - 1]["mfu"])) for answer in said["answers"])
    assert [entry["tier"] for entry in said["errors"]] == ["unseen"]
    time, lower, upper = (float(rows[0][name]) for name in NUMBERS[:3])
    assert math.log(upper / time) == pytest.approx(0.2) == math.log(time / lower)
    # 6 x 8.03e9 parameters x 65,536 tokens on 8 devices of 989 TFLOP/s are 0.4 s; with attention and a third more.
    assert 0.4 < time < 1.5
    assert 0.2 < float(rows[0]["mfu"]) < 1.0


def test_what_a_step_waits_for_is_told_by_kind(predict: Callable[..., dict], table: Path, own_folder: Path) -> None:
    predict(table, "-o", "out.csv")
    with (own_folder / "out.csv").open(newline="") as file:
        row = next(csv.DictReader(file))
    kinds = {name: float(row[name]) for name in EXPOSED}
    shown, sent = float(row["exposed_communication_s"]), float(row["communication_s"])
    assert sum(kinds.values()) == pytest.approx(shown) and 0.0 < shown <= sent < float(row["predicted_step_time_s"])
    used = {name for name, seconds in kinds.items() if seconds > 0.0}
    assert used == {"exposed_tensor_s", "exposed_pipeline_s", "exposed_data_s"}
    # Full recomputation: a forward pass more to a forward and a backward one of twice that; the head is not recomputed.
    assert 1.25 < float(row["hfu"]) / float(row["mfu"]) < 4.0 / 3.0


def test_a_table_may_be_json(predict: Callable[..., dict], table: Path, own_folder: Path) -> None:
    rows = list(csv.DictReader(TABLE.splitlines()))
    (own_folder / "in.json").write_text(json.dumps(rows))
    said = predict("in.json", "-o", "from_json.csv")
    assert (said["rows"], said["predicted"]) == (5, 2)
    predict(table, "-o", "from_csv.csv")
    assert (own_folder / "from_json.csv").read_text() == (own_folder / "from_csv.csv").read_text()


def test_its_own_json_is_read_as_a_table(predict: Callable[..., dict], cli, table: Path, own_folder: Path) -> None:
    predict(table, "-o", "out.json")
    result = cli("train", "out.json", "-o", "again.csv")
    assert result.exit_code == 2 and "out.json already has a column 'predicted_step_time_s'" in result.stderr
    (own_folder / "none.json").write_text("[1, 2]")
    assert "none.json must be a list of objects, one a row." in cli("train", "none.json", "-o", "again.csv").stderr


def test_nothing_predicted_ends_with_its_own_code(predict: Callable[..., dict], own_folder: Path) -> None:
    (own_folder / "in.csv").write_text(TABLE.splitlines()[0] + "\n" + TABLE.splitlines()[3] + "\n")
    said = predict("in.csv", "-o", "out.csv", code=3)
    assert said["predicted"] == 0 and said["without_prediction"][0]["reason"].startswith("unknown_model: 'lama'")


def test_a_run_may_be_described_by_another_tool(predict: Callable[..., dict], own_folder: Path) -> None:
    """Llama-3-8B on 8 H100 as Megatron's arguments: the row of a table that says the same has the same step time."""
    (own_folder / "run.args").write_text(
        "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8 "
        "--ffn-hidden-size 14336 --swiglu --seq-length 4096 --max-position-embeddings 4096 --vocab-size 128256 "
        "--untie-embeddings-and-output-weights --tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 1 "
        "--global-batch-size 128 --bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
    )
    (own_folder / "run.csv").write_text(
        "source,model,gpu,n_gpus,tp,pp,dp,micro_batch,global_batch,seq,recompute,seq_par,zero\n"
        "Megatron,llama-3-8b,h100,8,2,1,4,1,128,4096,none,1,1\n"
    )
    predict("run.args", "--device", "h100-sxm", "--n", "8", "-o", "described.csv")
    predict("run.csv", "-o", "listed.csv")
    times = []
    for name in ("described.csv", "listed.csv"):
        with (own_folder / name).open(newline="") as file:
            times.append(float(next(csv.DictReader(file))["predicted_step_time_s"]))
    assert times[0] == pytest.approx(times[1], rel=1e-6)


def test_options_without_effect_are_said(cli, own_folder: Path, no_kernels: Path, steps: Path) -> None:
    (own_folder / "run.args").write_text(
        "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --vocab-size 1024 "
        "--micro-batch-size 2 --bf16 --nproc_per_node 8 --tensor-model-paralel-size 2"
    )
    common = ("train", "run.args", "--device", "h100-sxm", "--params", no_kernels, "--steps", steps)
    said = "--tensor-model-paralel-size (did you mean --tensor-model-parallel-size?)"
    assert said in cli(*common, "-o", "out.csv").stderr
    assert said in (own_folder / "out.csv").read_text()
    assert said not in cli(*common, "-o", "quiet.csv", "--quiet").stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "run.args does not say which device; give --device"),
        (("--device", "h100-sxn"), "'h100-sxn' is not a known device. Did you mean h100-sxm"),
    ],
)
def test_the_device_of_one_run_is_checked(
    cli, own_folder: Path, no_kernels: Path, steps: Path, options: tuple[str, ...], said: str
) -> None:
    (own_folder / "run.args").write_text(
        "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --vocab-size 1024 "
        "--micro-batch-size 2 --bf16 --nproc_per_node 8"
    )
    result = cli("train", "run.args", *options, "-o", "out.csv", "--params", no_kernels, "--steps", steps)
    assert result.exit_code == 2 and said in result.stderr
    assert not Path("out.csv").exists()


def test_a_table_states_its_own_devices(cli, table: Path) -> None:
    result = cli("train", table, "--n", "8", "-o", "out.csv")
    assert result.exit_code == 2 and "is a table" in result.output


def test_what_is_printed_names_reasons_and_scalars(cli, table: Path, no_kernels: Path, steps: Path) -> None:
    result = cli("train", table, "-o", "out.json", "--params", no_kernels, "--steps", steps)
    assert result.exit_code == 0, result.output
    assert "2 of 5 rows predicted, 1 feasible" in result.stdout
    heads = "row step s from to MFU memory GB bubble exposed s"
    assert heads in [" ".join(line.split()) for line in result.stdout.splitlines()], "few rows are printed"
    assert "no prediction (1): unknown_model: 'lama'" in result.stdout
    assert "note (1): recompute is not stated: none" in result.stdout
    assert "note (1): memory over capacity\n" in result.stdout
    assert "GB)" not in result.stdout and "everything recomputed)" not in result.stdout, "figures are of a row"
    assert "made 2026-11-21 on 0 pairs" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("missing.csv", "-o", "out.csv"), "Cannot read 'missing.csv'"),
        (("in.csv", "-o", "in.csv"), "is the input"),
        (("in.csv", "-o", "out.txt"), "must end in"),
        (("in.csv", "-o", "out.csv", "--steps", "nowhere"), "Cannot read parameters"),
    ],
)
def test_a_mistake_is_one_sentence(cli, table: Path, arguments: tuple[str, ...], sentence: str) -> None:
    result = cli("train", *arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr and "Traceback" not in result.stderr
    assert not Path("out.csv").exists()


def test_a_missing_column_is_named(cli, own_folder: Path, no_kernels: Path, steps: Path) -> None:
    (own_folder / "in.csv").write_text("model,gpu,n_gpus,sequ\nllama-3-8b,h100,8,4096\n")
    result = cli("train", "in.csv", "-o", "out.csv", "--params", no_kernels, "--steps", steps)
    assert result.exit_code == 2
    assert "the column 'seq' is missing" in result.stderr and "Did you mean sequ?" in result.stderr


def test_validation_needs_measured_runs(cli, table: Path) -> None:
    result = cli("validate", "training", table)
    assert result.exit_code == 2
    assert "has 1 known runs with step_time_s; at least 20 are needed" in result.stderr
