"""The tables that ship in `calibration/measured`: whole, readable, physical, and learned from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import calibration
import hwspecs
from calibration.datasets import data_hash, read_table
from calibration.kernels.calibrate import calibrate
from calibration.kernels.fit import Settings
from calibration.kernels.inputs import prepare
from calibration.kernels.parameters import load_parameters
from calibration.kernels.predict import predict_table
from calibration.microbench.compare import compare
from calibration.microbench.registry import families
from hwspecs.errors import InputError

FOLDER = Path(calibration.__file__).parent / "measured"
TABLES = sorted(FOLDER.glob("*.parquet"))
PAIRS = [(path.with_name(path.name.replace("-held-out", "")), path) for path in TABLES if "-held-out" in path.name]
FITTED, HELD_OUT = PAIRS[-1]
GPUS = ("h100-sxm", "h200-sxm")
OUTCOMES = {"device", "latency_us", "median_us", "fastest_us", "spread", "repeats"}
QUICK = Settings(steps=60, law_steps=60, law_rows=500, batch=64, widths=(8, 8))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_row_reads_and_the_card_belongs_to_it(path: Path) -> None:
    read, card = read_table(path), json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert read.problems == ()
    assert card["sha256"] == data_hash(path) and card["table"] == path.name
    assert card["kernels_measured"] == read.rows == sum(map(len, read.tables))
    assert {table.family for table in read.tables} == set(families())
    assert card["device"] in hwspecs.names() and "/" not in card["command"]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_no_time_beats_the_dispatch_or_the_arithmetic(path: Path) -> None:
    """Not below the fastest dispatch, where it is timed, but for its scatter, nor above the peak rate by more than a
    clock can rise; a kernel alone takes a GPU half a microsecond and more."""
    card = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    least = {"host": 0.8e-6 * card["dispatch_floor_us"]["fastest"], "device": 0.5e-6}[card.get("clock", "host")]
    for table in read_table(path).tables:
        assert (table.measured >= least).all()
        if table.family in ("gemm", "bmm"):
            data = prepare(table)
            assert data.usable.all() and (table.measured >= 0.6 * data.demand.ideal).all(), table.family


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].stem)
def test_the_two_tables_are_of_other_sizes(pair: tuple[Path, Path]) -> None:
    fitted, held = map(read_table, pair)
    for family in families():
        first, second = fitted.table(family), held.table(family)
        assert first is not None and second is not None
        shapes = [set(zip(*(table.shape[name] for name in table.shape), strict=True)) for table in (first, second)]
        assert len(shapes[0] & shapes[1]) <= 0.1 * len(shapes[1]) + 1, family


@pytest.mark.parametrize("name", [f"{gpu}{part}" for gpu in GPUS for part in ("", "-held-out")])
def test_memory_streams_at_nearly_the_stated_rate(name: str) -> None:
    card = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert 0.85 <= card["stream_bandwidth"] / hwspecs.load(card["device"]).memory_bandwidth.si <= 1.0


def test_two_gpus_ran_the_same_kernels_and_differ_as_their_memory_does() -> None:
    """No family is faster on the H100, none slower by more than the memory is; few kernels, for which the library
    chose otherwise, are faster."""
    slower = hwspecs.load("h200-sxm").memory_bandwidth.si / hwspecs.load("h100-sxm").memory_bandwidth.si
    for family, pairs in _on_both(_latencies).items():
        ratio = pairs[:, 0] / pairs[:, 1]
        assert 1.0 <= np.median(ratio) <= slower and np.mean(ratio < 0.95) < 0.1, family


@pytest.mark.long
def test_the_step_between_two_gpus_is_predicted_better_than_by_rooflines() -> None:
    parameters = load_parameters()

    def ratios(path: Path) -> np.ndarray:
        """Measured over predicted and over the roofline [rows, 2]."""
        read = read_table(path)
        found = np.full((read.rows, 2), np.nan)
        for table in read.tables:
            columns = predict_table(table, parameters)
            predicted = np.stack([columns["predicted_us"], columns["roofline_us"]], axis=1)
            found[table.row] = 1e6 * table.measured[:, None] / predicted
        return found

    for family, pairs in _on_both(ratios).items():
        ours, roofline = np.median(np.abs(pairs[:, 1] / pairs[:, 0] - 1.0), axis=0)
        assert ours < 0.2 and ours < roofline, family


@pytest.mark.long
def test_they_can_be_learned_from_and_compared() -> None:
    read, held = read_table(FITTED), read_table(HELD_OUT)
    parameters = calibrate([read], settings=QUICK, families=["gemm", "softmax"])
    found = {each.family: each for each in compare(read, held, parameters)}
    assert set(found) == {"gemm", "softmax"}
    for family, each in found.items():
        table = held.table(family)
        assert table is not None and each.rows + each.same == len(table)
        assert each.predicted[0] < each.roofline[0] and each.constant[0] < each.roofline[0]
        assert 0.0 <= each.inside <= 1.0


@pytest.mark.long
def test_a_table_says_nothing_of_its_own_shapes() -> None:
    read = read_table(HELD_OUT)
    parameters = calibrate([read], settings=QUICK, families=["softmax"])
    with pytest.raises(InputError, match="no kernel of another shape"):
        compare(read, read, parameters)


def test_a_constant_is_the_median_ratio_of_its_format() -> None:
    from calibration.microbench.compare import _constants

    table = read_table(FITTED).table("gemm")
    assert table is not None
    constant, ratio = _constants(table, table), table.measured / prepare(table).roofline
    for dtype in ("fp32", "bf16"):
        rows = table.dtype == dtype
        assert np.ptp(constant[rows]) == 0.0
        assert (ratio[rows] <= constant[rows]).sum() == pytest.approx(rows.sum() / 2, abs=0.5)


def _latencies(path: Path) -> np.ndarray:
    return pq.read_table(path)["latency_us"].to_numpy()


def _on_both(column: Callable[[Path], np.ndarray]) -> dict[str, np.ndarray]:
    """A column of the tables of both GPUs by family [kernels, GPUs, ...]; each kernel of the first is of the second."""
    first, second = (
        {
            tuple(value for name, value in row.items() if name not in OUTCOMES): (row["family"], value)
            for part in ("", "-held-out")
            for row, value in _rows(FOLDER / f"{gpu}{part}.parquet", column)
        }
        for gpu in GPUS
    )
    assert set(first) <= set(second)
    found: dict[str, list[np.ndarray]] = {}
    for key, (family, value) in first.items():
        found.setdefault(family, []).append(np.stack([value, second[key][1]]))
    return {family: np.stack(each) for family, each in found.items()}


def _rows(path: Path, column: Callable[[Path], np.ndarray]) -> list[tuple[dict[str, Any], np.ndarray]]:
    return list(zip(pq.read_table(path).to_pylist(), column(path), strict=True))
