"""Gemmini's pace: fitted from cycles, kept on disk, asked for rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from calibration.gemmini.evaluate import OURS, error_rows, hold_out
from calibration.gemmini.fit import cycles_of, fit_paces
from calibration.gemmini.parameters import GemminiParameters, load_gemmini, save_gemmini
from calibration.gemmini.predict import COLUMNS, rtl_columns
from calibration.gemmini.rows import read_rtl, stacked, tiling_of
from hwspecs.errors import InputError
from jaxperf.loopnest.gemmini import GemminiPace

PACE = GemminiPace(8.0, 6.0, 4.0, 5.0, 0.3, 2.5)


def row(p: int = 28, q: int = 28, c: int = 64, k: int = 128, tiles: int = 2, **more: object) -> dict[str, object]:
    """A mapping of a 1 x 1 convolution whose filters are cut into tiles."""
    mapping = f"L3[WIO] K{tiles} - L2[WI] N1 K16X - L1[O] K{k // tiles // 16} C{c // 16} Q{q} C16X - L0[W] P{p}"
    bounds = {"P": p, "Q": q, "C": c, "K": k, "N": 1, "R": 1, "S": 1, "Wstride": 1, "Hstride": 1}
    arch = {"arch.pe": 256, "arch.meshX": 16, "arch.mem1_entries": 512, "arch.mem2_entries": 130048}
    return {**{f"prob.{name}": value for name, value in bounds.items()}, **arch, "mapping.mapping": mapping, **more}


def table(folder: Path, rows: list[dict[str, object]]) -> Path:
    path = folder / "rtl.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cycles of a known pace for twelve layers."""
    shapes = [(p, p, c, k) for p in (3, 7, 14, 28) for c, k in ((64, 256), (512, 64), (1024, 1024))]
    rows = [row(*shape, tiles=tiles) for shape in shapes for tiles in (1, 2)]
    cycles = cycles_of(PACE, stacked([tiling_of(each) for each in rows]))
    stated = [
        {**each, "target.gemmini_cycle": float(value), "target.cycle": float(value) / 2, "split": "test"}
        for each, value in zip(rows, cycles, strict=True)
    ]
    return table(
        tmp_path_factory.mktemp("rtl"), [*stated, {**stated[0], "split": "train", "target.gemmini_cycle": 1.0}]
    )


def test_a_known_pace_is_found_again(made: Path) -> None:
    rows = read_rtl(made)
    assert len(rows.measured) == 24 and len(set(rows.problems)) == 12
    (pace,) = fit_paces(rows, np.ones((1, 24)))
    assert np.abs(np.log(cycles_of(pace, rows.tilings) / rows.measured)).max() < 0.05


def test_held_out_layers_and_references(made: Path) -> None:
    rows = {row["who"]: row for row in error_rows(hold_out(read_rtl(made)))}
    assert rows["timeloop"]["median"] == pytest.approx(0.5) and rows["constant"]["median"] < 1e-9
    assert rows[OURS]["median"] < 0.1 and rows[OURS]["spearman"] > 0.98


def test_every_row_is_answered_or_nothing_is_said(tmp_path: Path) -> None:
    parameters = GemminiParameters(PACE, 0.4, {})
    found = rtl_columns([row(), row(**{"mapping.mapping": "L9[W] K2"}), row(**{"arch.meshX": None})], parameters)
    time, lower, upper = (found[0][name] for name in COLUMNS)
    assert lower == pytest.approx(time * np.exp(-0.4)) and upper == pytest.approx(time * np.exp(0.4))
    assert found[1] == found[2] == dict.fromkeys(COLUMNS)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    save_gemmini(GemminiParameters(PACE, 0.4, {"created": "2026-11-21"}), tmp_path / "own")
    found = load_gemmini(tmp_path / "own.json")
    assert found.pace == PACE and found.width == 0.4
    card = json.loads((tmp_path / "own.json").read_text())
    (tmp_path / "own.json").write_text(json.dumps({**card, "schema": 9}))
    with pytest.raises(InputError, match="newer jaxperf"):
        load_gemmini(tmp_path / "own")


def test_the_shipped_pace_is_within_its_bounds() -> None:
    from calibration.gemmini.fit import BOUNDS

    shipped = load_gemmini()
    assert all(low < value < high for value, (low, high) in zip(shipped.pace, BOUNDS.values(), strict=True))
    assert shipped.card["errors"][0]["mean"] <= 0.15


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mapping.mapping": "K2"}, "row 0: mapping.mapping"),
        ({"arch.meshX": 0}, "row 0: arch.meshX is 0"),
        ({"target.gemmini_cycle": None}, "has no row with target.gemmini_cycle"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, change: dict[str, object], sentence: str) -> None:
    path = table(tmp_path, [{**row(), "target.gemmini_cycle": 10.0, "split": "test", **change}])
    with pytest.raises(InputError, match=sentence):
        read_rtl(path)


@pytest.mark.validation
def test_layers_held_out_meet_the_target(data_directory: Path) -> None:
    rows = {
        row["who"]: row for row in error_rows(hold_out(read_rtl(data_directory / "edge/dosa_gemmini_firesim.csv.gz")))
    }
    assert rows[OURS]["mean"] <= 0.15 and rows[OURS]["spearman"] >= 0.98
