"""`jaxperf validate kernels`: the table of errors, its pooled figures, where the data is looked for, and mistakes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import calibration.calibrate
import calibration.evaluate
from calibration.evaluate import Cell
from calibration.fit import Settings

HEADER = "device,framework,version,kernel,dtype,m,n,k,latency_us"
PEAKS = {"a100-sxm-80gb": (312e12, 2.04e12), "h100-sxm": (989e12, 3.35e12)}
BLANK = Cell("gemm", "bf16", "unseen generation", "h100-sxm", 10, 4.0, 5.0, 9.0, 40.0, 41.0, 20.0, 21.0, 90.0, 30.0)
CELLS = [
    BLANK,
    dataclasses.replace(BLANK, format="fp8", rows=30, median=8.0, roofline_median=80.0, constant_median=24.0),
    dataclasses.replace(BLANK, device="l40s", median=13.0, roofline_median=50.0, constant_median=27.0),
    dataclasses.replace(BLANK, family="moe", split="200 rows", median=2.0, constant_median=float("nan")),
]


@pytest.fixture
def table(own_folder: Path) -> Path:
    """Gemms of two generations that reach 70 % of their peaks after 4 us."""
    rows = [HEADER]
    for device, (flops, bandwidth) in PEAKS.items():
        for m in (1, 64, 512, 4096):
            for n, k in ((1024, 1024), (4096, 1024), (4096, 4096), (8192, 2048)):
                bound = max(2 * m * n * k / flops, 2 * (m * k + n * k + m * n) / bandwidth)
                rows.append(f"{device},vllm,0.24.0,cublas,bf16,{m},{n},{k},{(bound / 0.7 + 4e-6) * 1e6:.3f}")
    path = own_folder / "gemm.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stands in for an evaluation of minutes; holds what it was asked."""
    asked: dict[str, Any] = {}

    def evaluate(reads: Any, families: Any = None, *, progress: Any) -> Iterator[list[Cell]]:
        asked.update(files=[Path(read.path).name for read in reads], families=families)
        yield from ([cell] for cell in CELLS)

    monkeypatch.setattr(calibration.evaluate, "evaluate", evaluate)
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
    assert len(said["cells"]) == 4 and said["cells"][0] == dataclasses.asdict(CELLS[0])
    assert said["files"] == [{"file": "gemm.csv", "rows": 32}]


def test_the_table_has_every_cell_with_both_references(cli, table: Path, canned) -> None:
    lines = [line.split() for line in cli("validate", "kernels", table).stdout.splitlines()]
    expected = "gemm fp8 h100-sxm 30 8.00 5.00 9.00 80.0 41.0 24.0 21.0 90.0 30.0"
    assert expected.split() in lines
    assert "unseen generation 10.0 60.0 25.0 2 50".split() in lines
    assert "moe bf16 h100-sxm 10 2.00 5.00 9.00 40.0 41.0 - 21.0 90.0 30.0".split() in lines


def test_cells_as_a_file(cli, table: Path, canned) -> None:
    assert cli("validate", "kernels", table, "--family", "gemm", "-o", "cells.parquet").exit_code == 0
    rows = pq.read_table("cells.parquet").to_pylist()
    assert rows[1] == dataclasses.asdict(CELLS[1]) and canned["families"] == ["gemm"]


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
        (("gemmini", "gemm.csv", "--family", "gemm"), "--family, --card and --params go with validate kernels"),
        (("training", "gemm.csv", "--card"), "not with training"),
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
    monkeypatch.setattr(calibration.evaluate, "evaluate", lambda *arguments, **named: iter(()))
    assert "at least two generations" in refuse("validate", "kernels", table)


def test_ctrl_c_ends_with_130_and_no_file(cli, table: Path, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(calibration.evaluate, "evaluate", interrupted)
    assert cli("validate", "kernels", table, "-o", "cells.csv").exit_code == 130
    assert [path.name for path in own_folder.iterdir()] == ["gemm.csv"]


def test_ctrl_c_loses_no_family_that_is_finished(cli, table: Path, monkeypatch: pytest.MonkeyPatch, parse_json) -> None:
    def interrupted(*arguments: object, **named: object) -> Iterator[list[Cell]]:
        yield CELLS[:2]
        raise KeyboardInterrupt

    monkeypatch.setattr(calibration.evaluate, "evaluate", interrupted)
    result = cli("validate", "kernels", table, "--json", "-o", "cells.parquet")
    assert result.exit_code == 130 and "only these were finished: gemm." in result.stderr
    assert parse_json(result.stdout)["cells"] == [dataclasses.asdict(cell) for cell in CELLS[:2]]
    assert len(pq.read_table("cells.parquet")) == 2


def test_a_tiny_evaluation_in_earnest(
    cli, table: Path, plain_jax: None, monkeypatch: pytest.MonkeyPatch, parse_json
) -> None:
    """Two generations, each predicted from the other alone; the real evaluation at a few steps."""
    tiny = Settings(steps=50, law_steps=50, batch=32, widths=(4,))
    real = functools.partial(calibration.evaluate.evaluate, settings=tiny, splits=("unseen generation",))
    monkeypatch.setattr(calibration.evaluate, "evaluate", real)
    result = cli("validate", "kernels", table, "--json")
    assert result.exit_code == 0, result.output
    said = parse_json(result.stdout)
    assert sorted((cell["device"], cell["rows"]) for cell in said["cells"]) == [("a100-sxm-80gb", 16), ("h100-sxm", 16)]
    medians = [cell["median"] for cell in said["cells"]]
    assert said["pooled"][0]["median"] == pytest.approx(np.mean(medians)) and max(medians) < 60.0
