"""Training is priced as its parameters were fitted: experts of any group, and a row says so."""

from __future__ import annotations

from pathlib import Path

from calibration.datasets.training import read_training
from calibration.training.models import model_of
from calibration.training.ungrouped import ungrouped
from jaxperf.io.huggingface import load_model
from jaxperf.models.config import ModelConfig
from jaxperf.models.feedforward import Moe


def groups(model: ModelConfig) -> set[int]:
    return {layer.ffn.groups for layer in (*model.layers, *model.mtp_layers) if isinstance(layer.ffn, Moe)}


def test_a_model_without_groups_is_itself() -> None:
    model, mixtral = load_model("deepseek-v3"), load_model("mixtral-8x7b")
    assert groups(model) == {8} and groups(ungrouped(model)) == {1} and ungrouped(mixtral) is mixtral


def test_a_row_says_that_groups_were_not_taken(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text(
        "model,gpu,n_gpus,seq,global_batch\ndeepseek-v3,h100-sxm,8,4096,8\nmixtral-8x7b,h100-sxm,8,4096,8\n"
    )
    (limited, said), (plain, silent) = (model_of(run) for run in read_training(table).runs)
    assert limited.limit is None and "any group of experts" in said
    assert plain.limit is None and "group" not in silent
