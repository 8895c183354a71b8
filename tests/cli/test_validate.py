"""`jaxperf validate kernels`: the table of errors, its pooled figures, where the data is looked for, and mistakes."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import calibration.kernels.calibrate
import calibration.kernels.evaluate
from calibration.kernels.fit import Settings
from jaxperf.cli import processes

HEADER = "device,framework,version,kernel,dtype,m,n,k,latency_us"
SIDES = ((1024, 1024), (1024, 4096), (4096, 1024), (4096, 4096), (8192, 2048), (8192, 8192))
PEAKS = {"a100-sxm-80gb": (312e12, 2.04e12), "h100-sxm": (989e12, 3.35e12)}
NAMES = ("family", "format", "device", "split", "rows", "median", "mean", "p90", "roofline_median", "roofline_mean")
NAMES = (*NAMES, "constant_median", "constant_mean", "coverage90", "half_width", "interval_score")
BLANK: dict[str, Any] = dict(
    zip(NAMES, ("gemm", "bf16", "h100-sxm", "unseen generation", 10, *map(float, range(10))), strict=True)
)
BLANK |= {"median": 4.0, "mean": 5.0, "p90": 9.0, "roofline_median": 40.0, "roofline_mean": 41.0}
BLANK |= {"constant_median": 20.0, "constant_mean": 21.0, "coverage90": 90.0, "half_width": 30.0}
CELLS: list[dict[str, Any]] = [
    BLANK,
    BLANK | {"format": "fp8", "rows": 30, "median": 8.0, "roofline_median": 80.0, "constant_median": 24.0},
    BLANK | {"device": "l40s", "median": 13.0, "roofline_median": 50.0, "constant_median": 27.0},
    BLANK | {"family": "moe", "split": "200 rows", "median": 2.0, "constant_median": float("nan")},
]


@pytest.fixture
def table(own_folder: Path) -> Path:
    """Gemms of two generations that reach 70 % of their peaks after 4 us."""
    rows = [HEADER]
    for device, (flops, bandwidth) in PEAKS.items():
        for m in (1, 16, 64, 512, 2048, 4096):
            for n, k in SIDES:
                bound = max(2 * m * n * k / flops, 2 * (m * k + n * k + m * n) / bandwidth)
                rows.append(f"{device},vllm,0.24.0,cublas,bf16,{m},{n},{k},{(bound / 0.7 + 4e-6) * 1e6:.3f}")
    path = own_folder / "gemm.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stands in for an evaluation of minutes; holds what it was asked."""
    asked: dict[str, Any] = {}

    def evaluate(reads: Any, families: Any, *, progress: Any, apart: Any, whole: Any) -> Iterator[list[dict[str, Any]]]:
        asked.update(files=[Path(read.path).name for read in reads], families=families)
        yield from ([cell] for cell in CELLS)

    monkeypatch.setattr(calibration.kernels.evaluate, "evaluate", evaluate)
    return asked


def test_pooled_is_the_unweighted_mean_over_families_and_devices(cli, table: Path, canned, parse_json) -> None:
    said = parse_json(cli("validate", "kernels", table, "--json").stdout)
    unseen, few = said["pooled"]
    # gemm on the H100: formats weighted by rows, (10 x 4 + 30 x 8) / 40 = 7; with 13 on the L40S the mean is 10.
    assert (unseen["split"], unseen["groups"], unseen["rows"]) == ("unseen generation", 2, 50)
    assert unseen["median"] == pytest.approx(10.0)
    assert unseen["roofline_median"] == pytest.approx((70.0 + 50.0) / 2)
    assert unseen["constant_median"] == pytest.approx((23.0 + 27.0) / 2)
    assert (few["split"], few["median"], few["constant_median"]) == ("200 rows", 2.0, None)
    assert len(said["cells"]) == 4 and said["cells"][0] == CELLS[0]
    assert said["files"] == [{"file": "gemm.csv", "rows": 72}]


def test_the_table_has_every_cell_with_both_references(cli, table: Path, canned) -> None:
    lines = [line.split() for line in cli("validate", "kernels", table).stdout.splitlines()]
    expected = "gemm fp8 h100-sxm 30 8.00 5.00 9.00 80.0 41.0 24.0 21.0 90.0 30.0"
    assert expected.split() in lines
    assert "unseen generation 10.0 60.0 25.0 2 50".split() in lines
    assert "moe bf16 h100-sxm 10 2.00 5.00 9.00 40.0 41.0 - 21.0 90.0 30.0".split() in lines


def test_cells_as_a_file(cli, table: Path, canned) -> None:
    assert cli("validate", "kernels", table, "--family", "gemm", "-o", "cells.parquet").exit_code == 0
    rows = pq.read_table("cells.parquet").to_pylist()
    assert rows[1] == CELLS[1] and canned["families"] == ["gemm"]


def test_the_default_data_is_the_shared_kernel_tables(
    cli, table: Path, own_folder: Path, canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = own_folder / "data"
    for name in ("kernels/gemm.csv", "neusight/ops.csv", "serving/requests.csv"):
        (data / name).parent.mkdir(parents=True)
        (data / name).write_text(table.read_text())
    monkeypatch.setenv("JAXPERF_DATA", str(data))
    assert cli("validate", "kernels", "--quiet").exit_code == 0
    assert canned["files"] == ["gemm.csv"]


def test_without_data_the_sentence_says_where_it_was_looked_for(refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXPERF_DATA", "no-data")
    assert "No measured kernels at 'no-data': give DATA" in refuse("validate", "kernels")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("kernel",), "Did you mean kernels"),
        (("kernels", "gemm.csv", "--family", "gem"), "Did you mean gemm"),
        (("kernels", "gemm.csv", "--family", "moe"), "the data has no row of moe; it has gemm"),
        (
            ("gemmini", "gemm.csv", "--family", "gemm"),
            "--family, --card, --params and --whole-folds go with validate kernels",
        ),
        (("training", "gemm.csv", "--card"), "not with training"),
        (("training", "gemm.csv", "--whole-folds"), "not with training"),
        (("serving", "gemm.csv", "--params", "own"), "not with serving"),
        (("gemmini", "gemm.csv", "gemm.csv"), "takes one table"),
        (("gemmini", "gemm.csv"), "no row with target.gemmini_cycle"),
        (("kernels", "none.csv"), "No such file"),
        (("kernels", "gemm.csv", "-o", "out.txt"), "the ending must be one of"),
        (("kernels", "gemm.csv", "-o", "nowhere/out.csv"), "does not exist"),
    ],
)
def test_refused(refuse, table: Path, canned, arguments: tuple[str, ...], said: str) -> None:
    assert said in refuse("validate", *arguments)


def test_nothing_to_hold_out_is_said(refuse, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration.kernels.evaluate, "evaluate", lambda *arguments, **named: iter(()))
    assert "at least two generations" in refuse("validate", "kernels", table)


def test_ctrl_c_ends_with_130_and_no_file(cli, table: Path, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(calibration.kernels.evaluate, "evaluate", interrupted)
    assert cli("validate", "kernels", table, "-o", "cells.csv").exit_code == 130
    assert [path.name for path in own_folder.iterdir()] == ["gemm.csv"]


def test_ctrl_c_loses_no_family_that_is_finished(cli, table: Path, monkeypatch: pytest.MonkeyPatch, parse_json) -> None:
    def interrupted(*arguments: object, **named: object) -> Iterator[list[dict[str, Any]]]:
        yield CELLS[:2]
        raise KeyboardInterrupt

    monkeypatch.setattr(calibration.kernels.evaluate, "evaluate", interrupted)
    result = cli("validate", "kernels", table, "--json", "-o", "cells.parquet")
    assert result.exit_code == 130 and "only these were finished: gemm." in result.stderr
    assert parse_json(result.stdout)["cells"] == CELLS[:2]
    assert len(pq.read_table("cells.parquet")) == 2


@pytest.fixture
def tiny(plain_jax: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real evaluation at a few steps."""
    quick = Settings(steps=20, law_steps=50, batch=32, widths=(4,))
    real = functools.partial(calibration.kernels.evaluate.evaluate, settings=quick)
    monkeypatch.setattr(calibration.kernels.evaluate, "evaluate", real)


@pytest.mark.long
def test_a_tiny_evaluation_in_earnest(cli, table: Path, tiny: None, parse_json) -> None:
    """Two generations, each predicted from the other alone, and every other split."""
    result = cli("validate", "kernels", table, "--json")
    assert result.exit_code == 0, result.output
    said = parse_json(result.stdout)
    names = ("unseen generation", "unseen device", "200 rows", "10 % of rows", "unseen shapes")
    splits: dict[str, dict[str, Any]] = {split: {} for split in names}
    for cell in said["cells"]:
        splits[cell["split"]][cell["device"]] = cell
    assert {split: set(cells) for split, cells in splits.items()} == dict.fromkeys(splits, set(PEAKS))
    none = splits["unseen generation"]
    assert none == {name: cell | {"split": "unseen generation"} for name, cell in splits["unseen device"].items()}
    assert all(cell["rows"] == 36 and cell["median"] < 60.0 for cell in none.values())
    pooled = {row["split"]: row for row in said["pooled"]}
    assert pooled["unseen generation"]["median"] == pytest.approx(np.mean([cell["median"] for cell in none.values()]))
    assert min(cell["constant_median"] for cell in none.values()) > 0.0


@pytest.mark.parametrize("whole", [(), ("--whole-folds",)])
def test_families_in_processes_of_their_own_say_the_same(
    whole: tuple[str, ...],
    cli,
    table: Path,
    own_folder: Path,
    plain_jax: None,
    parse_json,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def counted(data: Any, settings: Any, progress: Any, whole: bool) -> list[dict[str, Any]]:
        return [BLANK | {"family": data.table.family, "split": f"whole {whole}", "rows": len(data.table)}]

    monkeypatch.setattr(calibration.kernels.evaluate, "evaluate_family", counted)
    moved = [line.split(",") for line in table.read_text().splitlines()[1:]]
    norms = ["device,framework,version,kernel,op,dtype,rows,columns,latency_us"]
    norms += [f"{row[0]},vllm,0.24.0,norm,norm,bf16,{row[5]},{row[6]},{row[8]}" for row in moved]
    (own_folder / "norm.csv").write_text("\n".join(norms) + "\n")
    question = ("validate", "kernels", table, "norm.csv", *whole, "--json")
    monkeypatch.setattr(processes, "own_cores", lambda families, cores: [0])
    here = parse_json(cli(*question).stdout)
    assert here["whole_folds"] == bool(whole)
    played: list[str] = []

    def started(command: list[str], out: Path, core: int) -> Any:
        played.append(command[command.index("--family") + 1])
        ended = cli(*command, "-o", out)
        out.with_name(f"{out.name}.log").write_text(ended.stderr)
        return types.SimpleNamespace(poll=lambda: ended.exit_code, returncode=ended.exit_code)

    monkeypatch.setattr(processes, "own_cores", lambda families, cores: list(range(min(2, families))))
    monkeypatch.setattr(processes, "started", started)
    assert parse_json(cli(*question).stdout)["cells"] == here["cells"]
    assert {cell["split"] for cell in here["cells"]} == {f"whole {bool(whole)}"}
    assert sorted(played) == ["gemm", "norm"]


def test_what_is_no_gpu_is_left_out_aloud(cli, table: Path, canned) -> None:
    with table.open("a") as file:
        file.write("tpu-v6e,vllm,0.24.0,cublas,bf16,64,64,64,9.0\n")
    assert "left out: tpu-v6e: no GPU" in cli("validate", "kernels", table).stderr
