"""`sweep`: rows on disk with units and provenance, selections equal to brute force, zip axes, own devices."""

from __future__ import annotations

import csv
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jaxperf.core.feasible import Reason, sentences
from jaxperf.serving.unit_costs import ENERGY_NOTE

METRICS = ["tpot", "tokens_per_second", "memory", "limiter", "reason"]
INTERVALS = ("tpot", "tokens_per_second")


def rows_of(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist()


def run(cli, *more: str, out: str = "rows.parquet") -> Any:
    result = cli("sweep", "sweep.yaml", "-o", out, *more)
    assert result.exit_code == 0, result.output
    return result


def test_all_rows_with_units_and_provenance(cli, own_folder: Path, sweep_file) -> None:
    sweep_file()
    run(cli)
    table = pq.read_table(own_folder / "rows.parquet")
    assert table.num_rows == 2 * 4 * 3
    ends = [f"{name}_{end}" for name in INTERVALS for end in ("lower", "upper")]
    assert set(table.column_names) == {"device", "batch", "context", "weights", "kv_cache", *METRICS, *ends}
    metadata = table.schema.metadata
    assert metadata[b"jaxperf.efficiencies"].startswith(b"calibrated: ") and metadata[b"jaxperf.model"] == b"gpt2"
    units = {field.name: (field.metadata or {}).get(b"units") for field in table.schema}
    assert (units["tpot"], units["tpot_lower"], units["tokens_per_second"], units["memory"]) == (
        b"s",
        b"s",
        b"1/s",
        b"B",
    )
    for name in INTERVALS:
        low, value, high = (table[column].to_numpy() for column in (f"{name}_lower", name, f"{name}_upper"))
        assert (low <= value).all() and (value <= high).all() and (low > 0).all()
    assert {type(value) for value in table["batch"].to_pylist()} == {int}


def test_opens_in_xarray(cli, own_folder: Path, sweep_file) -> None:
    xarray = pytest.importorskip("xarray")
    sweep_file()
    run(cli)
    columns = {name: column.to_numpy(zero_copy_only=False) for name, column in zip(*_named(own_folder), strict=True)}
    data = xarray.Dataset({"tpot": ("row", columns["tpot"])}, {n: ("row", columns[n]) for n in ("device", "batch")})
    assert float(data.tpot.where(data.device == "l4", drop=True).min()) > float(data.tpot.min())


def _named(folder: Path) -> tuple[list[str], list[pa.Array]]:
    table = pq.read_table(folder / "rows.parquet")
    return table.column_names, [table[name].combine_chunks() for name in table.column_names]


def test_json_summary(cli, sweep_file, parse_json) -> None:
    sweep_file()
    summary = parse_json(run(cli, "--json").stdout)
    assert summary["points"] == 24 and "calibrated: " in summary["provenance"]["efficiencies"]
    assert summary["axes"]["device"] == 2 and summary["out"] == "rows.parquet"
    best = summary["best"][0]
    assert [row["tokens_per_second"] for row in best] == sorted((r["tokens_per_second"] for r in best), reverse=True)


def test_keep_top_is_brute_force(cli, own_folder: Path, sweep_file) -> None:
    axes = {"device": ["h100-sxm", "l4"], "tensor_parallel": [1, 5], "batch": [1, 2, 4], "context": [64, 128, 4096]}
    sweep_file(axes=axes)
    run(cli)
    rows = rows_of(own_folder / "rows.parquet")
    assert [row["reason"] for row in rows[:12:3]] == [0, 0, 0, 2] and rows[2]["reason"] == 32
    assert all(np.isnan(row["tpot"]) == (row["reason"] != 0) for row in rows), "infeasible is data"
    feasible = [row for row in rows if row["reason"] == 0]
    assert 0 < len(feasible) < len(rows) == 36
    sweep_file(axes=axes, keep="top(5, tpot)")
    said = run(cli, out="kept.parquet").stdout
    for bits in {row["reason"] for row in rows} - {0}:
        number = sum(row["reason"] == bits for row in rows)
        assert f"{number} of 36 points do not run: {'; '.join(sentences(bits))}" in said
    assert rows_of(own_folder / "kept.parquet") == sorted(feasible, key=operator.itemgetter("tpot"))[:5]


def test_keep_pareto_is_brute_force(cli, own_folder: Path, sweep_file) -> None:
    sweep_file()
    run(cli)
    sweep_file(keep="pareto(tpot, tokens_per_second)")
    run(cli, out="kept.parquet")
    rows = rows_of(own_folder / "rows.parquet")
    points = np.array([(row["tpot"], -row["tokens_per_second"]) for row in rows])
    beaten = [((points <= mine).all(axis=1) & (points < mine).any(axis=1)).any() for mine in points]
    wanted = [row for row, out in zip(rows, beaten, strict=True) if not out]
    assert sorted(rows_of(own_folder / "kept.parquet"), key=str) == sorted(wanted, key=str)


@pytest.mark.long
def test_selections_round_trip_in_every_format(cli, own_folder: Path, sweep_file, parse_json) -> None:
    sweep_file(keep="top(5, tpot)")
    for ending in ("parquet", "json", "csv"):
        run(cli, out=f"kept.{ending}")
    rows = rows_of(own_folder / "kept.parquet")
    document = parse_json((own_folder / "kept.json").read_text())
    assert document["rows"] == rows and "calibrated: " in str(document["metadata"])
    with (own_folder / "kept.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [{name: str(value) for name, value in row.items()} for row in rows]


def test_zip_axes(cli, own_folder: Path, sweep_file) -> None:
    layout = {"tensor_parallel": [1, 2], "pipeline_parallel": [2, 1]}
    sweep_file(axes={"device": "h100-sxm", "layout": layout, "context": [64, 128]})
    run(cli)
    rows = rows_of(own_folder / "rows.parquet")
    assert [(row["tensor_parallel"], row["pipeline_parallel"], row["context"]) for row in rows] == [
        (1, 2, 64), (1, 2, 128), (2, 1, 64), (2, 1, 128),
    ]  # fmt: skip


def test_a_device_may_be_zipped(cli, own_folder: Path, sweep_file) -> None:
    zipped = {"device": ["mi300x", "H100", "h100-sxm"], "tensor_parallel": [1, 2, 4]}
    sweep_file(axes={"setup": zipped, "context": 64})
    run(cli)
    rows = rows_of(own_folder / "rows.parquet")
    assert [(row["device"], row["tensor_parallel"]) for row in rows] == [
        ("mi300x", 1),
        ("h100-sxm", 2),
        ("h100-sxm", 4),
    ]


def test_conditions_files_folders_and_aliases(cli, own_folder: Path, sweep_file) -> None:
    (own_folder / "mine").mkdir()
    for name in ("chip-a", "chip-b"):
        (own_folder / "mine" / f"{name}.toml").write_text(f'name = "{name}"\nbase = "l4"\n')
    axes = {"batch": [1], "context": 64}
    for device, names in (
        ("all(memory >= 250 GB, memory_bandwidth >= 7 TB/s, tdp < 1.2 kW, kind = GPU)", {"b300", "mi350x"}),
        (["H100", "mine/*.toml", "chip-b", "l4"], {"h100-sxm", "chip-a", "chip-b", "l4"}),
    ):
        sweep_file(axes={"device": device, **axes}, devices_directory="mine", metrics=["tpot"])
        run(cli, "--overwrite")
        assert {row["device"] for row in rows_of(own_folder / "rows.parquet")} == names


def test_nothing_feasible_exits_with_three(cli, own_folder: Path, sweep_file, parse_json) -> None:
    sweep_file(axes={"device": "h100-sxm", "context": [4096, 8192]})
    result = cli("sweep", "sweep.yaml", "-o", "rows.parquet", "--plot", "front.png")
    assert result.exit_code == 3 and "Nothing is feasible" in result.stdout
    assert (own_folder / "rows.parquet").is_file() and not (own_folder / "front.png").exists()
    assert result.stderr.splitlines()[-1] == "jaxperf: 'front.png' is not written: nothing is feasible."
    result = cli("sweep", "sweep.yaml", "-o", "rows.parquet", "--json")
    said = parse_json(result.stdout)
    assert result.exit_code == 3 and said["front_size"] == 0
    assert said["infeasible"] == [{"points": 2, "reasons": sentences(32)}]


def test_why_nothing_is_feasible_is_said_whatever_the_metrics(cli, own_folder: Path, sweep_file, parse_json) -> None:
    sweep_file(axes={"device": "h100-sxm", "context": [4096, 8192]}, metrics=["tpot"])
    result = cli("sweep", "sweep.yaml", "-o", "rows.parquet")
    assert result.exit_code == 3 and "Nothing is feasible." in result.stdout and "column" not in result.stdout
    assert f"2 of 2 points do not run: {'; '.join(sentences(32))}" in result.stdout
    assert "reason" not in pq.read_table(own_folder / "rows.parquet").column_names
    said = parse_json(cli("sweep", "sweep.yaml", "-o", "rows.parquet", "--json").stdout)
    assert said["infeasible"] == [{"points": 2, "reasons": sentences(32)}]


def test_metrics_of_infeasible_rows_never_break_json(cli, sweep_file, parse_json) -> None:
    sweep_file(axes={"device": "h100-sxm", "context": [64, 4096]}, metrics=["memory", "limiter", "reason"])
    assert parse_json(run(cli, "--json").stdout)["points"] == 2


def test_an_energy_is_called_uncalibrated(cli, sweep_file, parse_json) -> None:
    said = []
    for metric in ("energy_per_token", "tpot"):
        sweep_file(axes={"device": "h100-sxm", "context": 64}, metrics=[metric])
        said.append(ENERGY_NOTE in parse_json(run(cli, "--json", out=f"{metric}.parquet").stdout)["notes"])
    assert said == [True, False]


def test_numbers_of_limiters_and_reasons_are_told_in_words(cli, own_folder: Path, sweep_file, parse_json) -> None:
    sweep_file(axes={"device": "h100-sxm", "context": [64, 4096]}, metrics=["memory", "limiter", "reason"])
    said = parse_json(run(cli, "--json").stdout)
    assert said["codes"]["reason"]["32"] == sentences(32)[0] and len(said["codes"]["reason"]) == len(Reason)
    limiter = said["codes"]["limiter"][str(said["best"][0][0]["limiter"])]
    assert parse_json(pq.read_schema(own_folder / "rows.parquet").metadata[b"jaxperf.codes"]) == said["codes"]
    (row,) = (line for line in run(cli, "--overwrite").stdout.splitlines() if line.split()[:1] == ["64"])
    assert row.split()[2:] == limiter.split()


def test_the_reason_alone_keeps_what_cannot_run_from_the_best(cli, own_folder: Path, sweep_file, parse_json) -> None:
    at = {"axes": {"device": "h100-sxm", "context": [64, 4096]}, "metrics": ["memory", "reason"]}
    sweep_file(**at, keep="top(5, memory)")
    run(cli)
    assert [row["context"] for row in rows_of(own_folder / "rows.parquet")] == [64]
    sweep_file(**at)
    (best,) = parse_json(run(cli, "--json", out="all.parquet").stdout)["best"]
    assert [row["context"] for row in best] == [64] and len(rows_of(own_folder / "all.parquet")) == 2
    sweep_file(**(at | {"axes": {"device": "h100-sxm", "context": [4096, 8192]}}))
    result = cli("sweep", "sweep.yaml", "-o", "none.parquet")
    assert result.exit_code == 3 and "Nothing is feasible" in result.stdout and "Best" not in result.stdout


def test_no_best_points_where_no_metric_says_what_runs(cli, own_folder: Path, sweep_file, parse_json) -> None:
    sweep_file(axes={"device": "h100-sxm", "context": [64, 4096]}, metrics=["memory"])
    said = run(cli).stdout
    assert "No best points: none of the metrics (memory) says which points run" in said and "Best by" not in said
    assert len(rows_of(own_folder / "rows.parquet")) == 2
    record = parse_json(run(cli, "--json").stdout)
    assert record["best"] == [] and record["front_size"] is None


@pytest.mark.long
@pytest.mark.parametrize(("task", "length", "metric"), [("prefill", "prompt", "ttft"), ("serve", "output", "tpot")])
def test_other_tasks_have_metrics_of_their_own(
    cli, own_folder: Path, sweep_file, task: str, length: str, metric: str
) -> None:
    axes = {"device": "h100-sxm", "prompt": 64, length: [32, 64]}
    sweep_file(task=task, metrics=None, axes=axes)
    run(cli)
    rows = rows_of(own_folder / "rows.parquet")
    assert len(rows) == 2 and all(row[metric] > 0 and row["reason"] == 0 for row in rows)


def test_another_sweep_is_not_overwritten_unasked(cli, own_folder: Path, sweep_file) -> None:
    sweep_file()
    run(cli)
    before = (own_folder / "rows.parquet").read_bytes()
    sweep_file(metrics=["tpot"])
    result = cli("sweep", "sweep.yaml", "-o", "rows.parquet")
    assert result.exit_code == 2 and "overwrite" in result.stderr
    assert (own_folder / "rows.parquet").read_bytes() == before
    run(cli, "--overwrite")


@pytest.mark.parametrize("ending", ["parquet", "json", "csv"])
def test_a_selection_replaces_only_what_its_sweep_wrote(cli, own_folder: Path, sweep_file, ending: str) -> None:
    axes = {"device": "h100-sxm", "context": [64, 128]}
    out = own_folder / f"kept.{ending}"
    sweep_file(axes=axes, metrics=["tpot"], keep="top(1, tpot)")
    run(cli, out=out.name)
    before = out.read_bytes()
    run(cli, out=out.name)
    assert out.read_bytes() == before, "the same command again"
    sweep_file(axes=axes | {"context": [96, 128]}, metrics=["tpot"], keep="top(1, tpot)")
    result = cli("sweep", "sweep.yaml", "-o", out.name)
    assert result.exit_code == 2 and "overwrite" in result.stderr and out.read_bytes() == before
    run(cli, "--overwrite", out=out.name)
    kept = out.read_bytes()
    assert kept != before
    sweep_file(axes=axes | {"context": 4096}, metrics=["tpot"], keep="top(1, tpot)")
    result = cli("sweep", "sweep.yaml", "-o", out.name, "--overwrite")
    assert result.exit_code == 3 and f"'{out.name}' is not written" in result.stderr
    assert out.read_bytes() == kept, "by nothing"


@pytest.mark.parametrize("ending", ["parquet", "json", "csv"])
def test_a_selection_does_not_replace_other_files(cli, own_folder: Path, sweep_file, ending: str) -> None:
    out = own_folder / f"notes.{ending}"
    out.write_bytes(b"mine \xff")
    sweep_file(axes={"device": "h100-sxm", "context": 64}, metrics=["tpot"], keep="top(1, tpot)")
    result = cli("sweep", "sweep.yaml", "-o", out.name)
    assert result.exit_code == 2 and "overwrite" in result.stderr and out.read_bytes() == b"mine \xff"


def test_a_folder_of_parts(cli, own_folder: Path, sweep_file) -> None:
    sweep_file()
    run(cli, out="parts")
    run(cli)
    assert pq.read_table(own_folder / "parts").to_pylist() == rows_of(own_folder / "rows.parquet")
