"""The shipped parameters of collectives: what their card claims, and the tables they were fitted to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibration.collectives.as_known import with_known_kernels
from calibration.collectives.parameters import CollectiveParameters, load_collectives
from calibration.collectives.predict import predict_collectives
from calibration.collectives.rows import FAMILY, read_collectives
from calibration.datasets import data_hash

TABLES = ("kernels/collectives.parquet", "static_batch/all_reduce.parquet")


@pytest.fixture(scope="module")
def shipped() -> CollectiveParameters:
    return load_collectives()


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


def _predicted(tmp_path: Path, shipped: CollectiveParameters, *rows: str) -> list[tuple[float, str]]:
    file = tmp_path / "c.csv"
    file.write_text("gpu,framework,version,kernel,dtype,op,num_gpus,bytes,topology\n" + "\n".join(rows) + "\n")
    read = read_collectives(file)
    columns = predict_collectives(read.table(FAMILY), read.rows, shipped)
    return list(zip(np.asarray(columns["predicted_us"]).tolist(), np.asarray(columns["reason"]).tolist(), strict=True))


def test_a_release_without_a_kernel_has_the_only_one_measured_of_it(
    tmp_path: Path, shipped: CollectiveParameters
) -> None:
    named, silent, other, unknown = _predicted(
        tmp_path,
        shipped,
        "h100_sxm,nccl,2.27.3,NCCL,half,all_gather,8,1048576,intra_node",
        "h100_sxm,nccl,2.27.3,,half,all_gather,8,1048576,intra_node",
        "h100_sxm,nccl,2.27.3,,bfloat16,all_gather,8,1048576,intra_node",
        "h100_sxm,nccl,9.9,,bfloat16,all_gather,8,1048576,intra_node",
    )
    assert silent[0] == named[0] and named[1] == ""
    assert all("the only one measured of this release" in reason for _, reason in (silent, other))
    assert unknown[0] != named[0] and "kernel not stated" not in unknown[1]


def test_of_several_kernels_of_a_release_none_is_chosen(tmp_path: Path) -> None:
    cells = [f"all_reduce/engine/direct//h100-sxm/intra/{kernel}/bf16/vllm/0.1/8/1/0" for kernel in ("a", "b")]
    nccl = "all_reduce/library/direct//h100-sxm/intra/nccl/bf16/nccl/2.27/8/1/0"
    file = tmp_path / "c.csv"
    rows = ("vllm,0.1,bf16", "nccl,2.27,bf16", "nccl,2.27,fp16", "nccl,2.28,bf16")
    lines = [f"h100_sxm,{row},all_reduce,8,1024" for row in rows]
    file.write_text("\n".join(["gpu,framework,version,dtype,op,num_gpus,bytes", *lines]))
    given = read_collectives(file).table(FAMILY)
    assert given is not None
    table, alone = with_known_kernels(given, [*cells, nccl])
    assert table.kernel.tolist() == ["", "nccl", "nccl", ""] and alone.tolist() == [False, True, True, False]


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
