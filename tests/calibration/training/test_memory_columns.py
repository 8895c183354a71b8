"""Columns of a table of training runs that say what saves memory, and what answers say of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibration.datasets.training import read_training
from calibration.kernels.parameters import load_parameters
from calibration.training.parameters import load_training
from calibration.training.points import Known, known_runs
from calibration.training.predict import host_notes
from calibration.training.scalars import assumed_starts
from calibration.training.shares import starts_of
from jaxperf.io.huggingface import load_model
from jaxperf.training.layout import SCHEDULES
from jaxperf.training.model_build import training_model
from tests.calibration.training.runs import SHAPE, write


def known(tmp_path: Path, *changes: dict[str, object]) -> Known:
    return known_runs(read_training(write(tmp_path, *({**SHAPE, **change} for change in changes))))


def test_what_the_columns_say_is_in_the_point(tmp_path: Path) -> None:
    assert float(known(tmp_path, {"host_memory_gb": 250}).points[0].layout.host_memory) == 250e9
    change = {"recompute": "selective", "recompute_modules": "moe_act, mlp", "offload_optimizer": 0.5, "mtp": 2}
    point = known(tmp_path, {**change, "overlap_offload": 0.0}).points[0]
    layout, plain = point.layout, known(tmp_path, {}).points[0]
    assert (float(layout.recompute_moe_act), float(layout.recompute_mlp), float(layout.recompute_core_attn)) == (
        1,
        1,
        0,
    )
    assert (float(layout.offload_optimizer), float(layout.overlap_offload)) == (0.5, 0.0)
    assert float(point.model.layers - plain.model.layers) == float(point.model.mtp) == 2
    assert (float(plain.layout.recompute_core_attn), float(plain.layout.offload_optimizer)) == (1, 0)
    assert (float(plain.layout.overlap_offload), float(plain.model.mtp)) == (1, 0)


def test_modules_without_a_stated_recomputation_are_selective(tmp_path: Path) -> None:
    untold, full = (
        {"recompute": None, "recompute_modules": "layernorm"},
        {"recompute": "full", "recompute_modules": "mlp"},
    )
    found = known(tmp_path, untold, full)
    assert [float(point.layout.recompute) for point in found.points] == [1, 2]
    assert "recompute is not stated: selective, as there are recompute_modules" in found.notes[0]
    assert "recompute_modules are not used: recompute is full" in found.notes[1]


def test_a_table_names_its_pipeline_schedule_and_shard_group(tmp_path: Path) -> None:
    rows = [{"schedule": name, "vp": None} for name in ("", "1F1B", "zb_v", "DualPipe", "interleaved")]
    found = known(tmp_path, *({"pp": 4, "n_gpus": 32, "tp": 1, "dp": 8, **row} for row in rows), {"shard_group": 2})
    told = [(SCHEDULES[int(point.layout.schedule)], float(point.layout.interleave)) for point in found.points[:-1]]
    assert told == [("interleaved", 4), ("1f1b", 1), ("zb-v", 2), ("dualpipe", 1), ("interleaved", 4)]
    assert [float(point.layout.shard_group) for point in found.points[-2:]] == [0, 2]
    assert ["in no measured run" in note for note in found.notes] == [False, False, True, True, False, False]


def test_rows_that_tensor_ranks_cannot_split_are_whole(tmp_path: Path) -> None:
    """Sequence parallelism where nothing is said: 4,096 tokens on two ranks, not 4,097."""
    told = [known(tmp_path, {"tp": 2, "n_gpus": 8, "seq": seq}).points[0].layout for seq in (4096, 4097)]
    assert [float(layout.sequence_parallel) for layout in told] == [1, 0]


def test_a_sequence_beyond_the_description_is_told(tmp_path: Path) -> None:
    row = {**dict.fromkeys(SHAPE), "model": "llama-2-7b"}
    long, short = known_runs(read_training(write(tmp_path, row | {"seq": 8192}, row | {"seq": 4096}))).notes
    assert "longer than the 4,096 tokens" in long and "longer" not in short


def test_modules_that_the_model_lacks_are_told(tmp_path: Path) -> None:
    lacks, has = known(tmp_path, {"recompute_modules": "moe_act mlp"}, {"recompute_modules": "mlp"}).notes
    assert "recompute_modules: the model has no moe_act" in lacks and "has no" not in has


def test_what_is_offloaded_tells_what_is_taken_of_the_host(tmp_path: Path) -> None:
    """Of the device's file, or assumed where it tells nothing; nothing where all stays on the device."""
    rows = known(tmp_path, {"offload_optimizer": 1}, {"offload_optimizer": 1, "gpu": "tpu-v5p"}, {})
    near, assumed, none = host_notes(rows, load_training())
    assert "pcie5-x16" in near and "no file tells" in assumed and none == ""
    starts = starts_of(rows, load_parameters(None), assumed_starts())
    assert starts["host_bandwidth"].tolist() == [50.4e9, 50e9, 50.4e9]


def test_a_shipped_model_has_its_own_layer_for_further_tokens(tmp_path: Path) -> None:
    """Megatron's name of the column; `params` and `layers` stay those of the model without it."""
    row = {**dict.fromkeys(SHAPE), "model": "deepseek-v3", "layers": 61, "params": 671e9, "mtp_num_layers": 1}
    (point,) = known_runs(read_training(write(tmp_path, row))).points
    assert float(point.model.parameters) == float(training_model(load_model("deepseek-v3"), mtp=1).parameters)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"recompute_modules": "moe_activation"}, "Did you mean moe_act"),
        ({"offload_optimizer": 1.5}, "offload_optimizer: 1.5 must be a number from 0 to 1."),
        ({"schedule": "zb-h3"}, "Did you mean zb-h1"),
        ({"shard_group": 0}, "shard_group: 0 must be a whole number from 1"),
        ({"host_memory_gb": 0}, "host_memory_gb: 0 must be a number of GB above 0"),
        ({"mtp": 0.5}, "mtp: 0.5 must be a whole number from 0"),
        ({"mtp": 1e6}, "mtp is 1000000; it must be an integer from 0 to 10000."),
    ],
)
def test_impossible_numbers_are_told(tmp_path: Path, change: dict[str, object], told: str) -> None:
    (reason,) = known(tmp_path, change).reasons.values()
    assert told in reason
