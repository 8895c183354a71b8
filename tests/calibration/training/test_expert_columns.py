"""Columns of a table of training runs that say how experts and recomputed layers are laid out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from calibration.datasets.training import read_training
from calibration.training.points import Known, known_runs
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.network.expert_exchange import token_hits
from jaxperf.network.limited_routing import GroupLimit, hits_table
from jaxperf.training.model_build import training_model
from tests.calibration.training.runs import SHAPE, write

# An expert on each of 64 ranks of eight nodes, by software that sends a token to a node once.
SPARSE = {
    **SHAPE,
    "model": "ours",
    "source": "Megatron-Core 0.15",
    "experts": 64,
    "topk": 8,
    "moe_ffn": 1024,
    "n_gpus": 64,
    "tp": 1,
    "pp": 1,
    "dp": 64,
    "vp": 1,
    "ep": 64,
    "global_batch": 64,
}


def known(tmp_path: Path, *changes: dict[str, object]) -> Known:
    return known_runs(read_training(write(tmp_path, *({**SPARSE, **change} for change in changes))))


def test_what_the_columns_say_is_in_the_point(tmp_path: Path) -> None:
    change = {"etp": 2, "ep": 32, "recompute": "full", "recomputed_share": 0.25, "dense_layers": 3, "overlap_data": 0.5}
    point = known(tmp_path, change).points[0]
    layout, model = point.layout, point.model
    assert (float(layout.expert_tensor), float(layout.recomputed_share), model.hits) == (2, 0.25, None)
    assert (float(model.dense_layers), float(model.moe_layers), float(layout.overlap_data)) == (3, 29, 0.5)


def test_a_table_without_the_columns_means_what_it_did(tmp_path: Path) -> None:
    point = known(tmp_path, {}).points[0]
    layout = point.layout
    assert (float(layout.expert_tensor), float(layout.recomputed_share), float(layout.overlap_data)) == (1, 1, 1)
    assert (float(point.model.dense_layers), point.model.hits) == (0, None)


@pytest.mark.parametrize(("groups", "chosen"), [(8, 4), (16, 4), (4, 1), (4, 4)])
def test_groups_limit_the_bins_of_a_token(tmp_path: Path, groups: int, chosen: int) -> None:
    found = known(tmp_path, {"expert_groups": groups, "groups_per_token": chosen}).points[0].model.hits
    np.testing.assert_allclose(found, hits_table(GroupLimit(64, 8, groups, chosen)), rtol=1e-12)


def test_what_the_software_makes_nothing_of_is_told(tmp_path: Path) -> None:
    groups = {"expert_groups": 8, "groups_per_token": 4, "source": "deepspeed"}
    found = known(tmp_path, groups, {"recompute": "none", "recomputed_share": 0.5})
    assert "expert_groups are not used: this software sends a token once for each of its experts" in found.notes[0]
    assert "recomputed_share is not used: nothing is recomputed" in found.notes[1]


def test_a_shipped_model_has_its_groups_as_in_a_sweep(tmp_path: Path) -> None:
    shipped = {name: math.nan for name in (*SHAPE, "experts", "topk", "moe_ffn")} | {"model": "deepseek-v3", "etp": 1}
    stated = shipped | {"expert_groups": 8, "groups_per_token": 2, "dense_layers": 3}
    own, other = (point.model.hits for point in known(tmp_path, shipped, stated).points)
    np.testing.assert_array_equal(own, training_model(load_model("deepseek-v3")).hits)
    assert float(own[7]) > 3.5 and float(other[7]) < 2.0  # nodes of eight


def test_rows_beside_limited_ones_stay_as_they_are(tmp_path: Path) -> None:
    """Their tables are of one length, zeros where a token may use any expert."""
    alone = known(tmp_path, {}).points[0].model
    limited = {"experts": 128, "expert_groups": 4, "groups_per_token": 2}
    beside, other = (point.model for point in known(tmp_path, {}, limited).points)
    assert alone.hits is None and beside.hits.shape == other.hits.shape == (128,)
    for bins in (1.0, 4.5, 8.0):
        draws = as_float(8.0)
        assert token_hits(as_float(bins), draws, beside.hits) == token_hits(as_float(bins), draws, alone.hits)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"etp": 1.5}, "etp: 1.5 must be a whole number from 1 to 1e+15."),
        ({"recomputed_share": 1.5}, "recomputed_share: 1.5 must be a number from 0 to 1."),
        ({"overlap_data": 2}, "overlap_data: 2 must be a number from 0 to 1."),
        ({"recomputed_share": -1}, "recomputed_share: '-1' must be a number from 0 to 1."),
        ({"dense_layers": 32}, "dense_layers: 32 must be fewer than the 32 layers."),
        ({"dense_layers": 0.5}, "dense_layers: 0.5 must be a whole number."),
        (
            {"dense_layers": 2, "experts": math.nan},
            "dense_layers: 2 of a model without experts; state experts, or leave it empty.",
        ),
        ({"expert_groups": 8}, "groups_per_token is not stated; expert_groups and groups_per_token go together."),
        (
            {"expert_groups": 7, "groups_per_token": 2},
            "expert_groups: 7 must divide the 64 experts of a layer.",
        ),
        (
            {"expert_groups": 8, "groups_per_token": 9},
            "groups_per_token: 9 must be at most the 8 of expert_groups.",
        ),
    ],
)
def test_a_bad_cell_is_a_reason(tmp_path: Path, change: dict[str, object], sentence: str) -> None:
    assert known(tmp_path, change).reasons == {0: sentence}


WIDTHS = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": 128}


def test_latent_attention_has_its_columns(tmp_path: Path) -> None:
    """DeepSeek-V3's attention in another model, in Megatron's words; what plain heads have is not asked for."""
    stated = {**WIDTHS, "hidden": 7168, "heads": 128, "kv_heads": None, "head_dim": None}
    model = known(tmp_path, stated).points[0].model
    shipped = training_model(load_model("deepseek-v3"))
    for field in ("attention_weights", "score_width", "value_width", "kv_width", "latent_width", "up_weights"):
        assert float(getattr(model, field)) == float(getattr(shipped, field)), field
    sizes = dict.fromkeys((*SHAPE, "experts", "topk", "moe_ffn"), None)
    own, other = known(tmp_path, {**sizes, "model": "deepseek-v3", "layers": 61, "kv_lora_rank": 512}), stated
    assert float(own.points[0].model.parameters) == float(shipped.parameters)
    reasons = known(tmp_path, {**other, "v_head_dim": None}, {**other, "kv_lora_rank": None, "kv_heads": 8}).reasons
    assert "v_head_dim" in reasons[0] and "head_dim" in reasons[1]


def test_widths_of_latent_heads_need_a_rank(tmp_path: Path) -> None:
    (reason,) = known(tmp_path, {"q_lora_rank": 1536}).reasons.values()
    assert reason == "q_lora_rank: 1536 without kv_lora_rank; state it, or leave q_lora_rank empty."
