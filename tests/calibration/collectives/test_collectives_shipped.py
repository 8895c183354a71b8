"""The shipped parameters of collectives: what their card claims, and the tables they were fitted to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibration.collectives.parameters import CollectiveParameters
from calibration.collectives.predict import predict_collectives
from calibration.collectives.rows import FAMILY, read_collectives
from calibration.datasets import data_hash

TABLES = ("kernels/collectives.parquet", "static_batch/all_reduce.parquet")


def test_the_card_says_what_was_learned_and_how_well(shipped: CollectiveParameters) -> None:
    assert {"created", "command", "data", "devices", "rows", "errors", "coverage"} <= set(shipped.card)
    whole = {row["split"]: row for row in shipped.card["errors"] if row["by"] == "all"}
    # The targets.
    assert whole["sizes"]["ours_mean"] <= 0.10
    assert whole["24 rows"]["ours_median"] <= 0.12
    assert whole["ranks"]["ours_mean"] <= 0.10
    for row in whole.values():
        assert row["ours_median"] < min(row["law_median"], row["alpha_beta_median"], row["constant_median"])


def test_the_card_names_the_files_it_was_made_of(shipped: CollectiveParameters, data_directory: Path) -> None:
    for name, entry in zip(TABLES, shipped.card["data"], strict=True):
        path = data_directory / name
        if not path.is_file():
            pytest.skip(f"{path} is absent")
        assert entry == {"file": path.name, "sha256": data_hash(path)}


@pytest.mark.parametrize("name", TABLES)
def test_rows_that_were_learned_from_come_out_right(
    shipped: CollectiveParameters, data_directory: Path, name: str
) -> None:
    path = data_directory / name
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    read = read_collectives(path)
    table = read.table(FAMILY)
    assert table is not None
    columns = predict_collectives(table, read.rows, shipped)
    time = np.asarray(columns["predicted_us"])[table.row] * 1e-6
    assert np.isfinite(time).all()
    known = table.flag == 0
    assert (np.asarray(columns["tier"])[table.row][known] == "measured").all()
    assert np.median(np.abs(time / table.measured - 1.0)[known]) < 0.02
    inside = (np.asarray(columns["lower_us"]) * 1e-6 < table.measured) & (
        table.measured < np.asarray(columns["upper_us"]) * 1e-6
    )
    assert inside[known].mean() > 0.9


@pytest.mark.parametrize(("newer", "older"), [("b200", "h100-sxm"), ("gb200", "h200-sxm"), ("b300", "b200")])
def test_faster_links_of_a_generation_never_measured_are_not_slower(
    shipped: CollectiveParameters, tmp_path: Path, newer: str, older: str
) -> None:
    """Between nodes the A100 alone was measured, by a ring and by trees that were off by unlike shares."""
    sizes = [round(2.0**power) for power in np.arange(16.0, 33.0, 0.5)]
    lines = [
        f"{gpu},all_reduce,{ranks},8,{size}" for ranks in (32, 64, 512) for gpu in (newer, older) for size in sizes
    ]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["gpu,op,num_gpus,gpus_per_node,bytes", *lines]) + "\n")
    read = read_collectives(path)
    time = np.asarray(predict_collectives(read.table(FAMILY), read.rows, shipped)["predicted_us"])
    fast, slow = np.moveaxis(time.reshape(3, 2, len(sizes)), 1, 0)
    assert (fast <= 1.02 * slow).all()


def test_more_ranks_than_a_node_has_are_not_faster_than_a_node(shipped: CollectiveParameters, tmp_path: Path) -> None:
    """Eight L40S over two sockets were measured slower than the law of several nodes, which nobody measured."""
    ops = ("all_reduce", "all_gather", "reduce_scatter")
    lines = [f"l40s,{op},{ranks},{size}" for op in ops for size in (4096, 67108864) for ranks in (8, 9, 16, 64)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["gpu,op,num_gpus,bytes", *lines]) + "\n")
    read = read_collectives(path)
    columns = predict_collectives(read.table(FAMILY), read.rows, shipped)
    time, lower, upper = (np.asarray(columns[name]).reshape(-1, 4) for name in ("predicted_us", "lower_us", "upper_us"))
    assert (np.diff(time) >= -1e-9 * time[:, 1:]).all() and (lower < time).all() and (time < upper).all()
    told = np.array(["as long as in one of its nodes" in each for each in np.asarray(columns["reason"]).tolist()])
    assert (told.reshape(-1, 4) == np.isclose(time, time[:, :1], rtol=1e-9) & (np.arange(4) > 0)).all() and told.any()
