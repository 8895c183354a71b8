"""`jaxperf validate rank`: what it prints and writes of held-out fits, and what it refuses."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.datasets.serving import read_serving
from calibration.serving.evaluate import LINE, OURS, HeldOut
from calibration.serving.layouts import deployed
from jaxperf.cli import validate_serving

HEADER = "model,gpu,n_gpu,tp,dtype,framework,mode,input_len,output_len,concurrency,metric,value"
TABLE = "\n".join([HEADER, *(f"Qwen/Qwen3-32B,h100_sxm,2,2,fp8,vllm,agg,1024,128,{c},tpot,9" for c in (1, 2, 4, 8))])

pytestmark = pytest.mark.usefixtures("plain_jax")


@pytest.fixture
def fitted(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table whose fits are not made but given: ours are right, the roofline's a hundredth."""
    path = own_folder / "in.csv"
    path.write_text(TABLE + "\n")
    measured = np.log([[0.1, 0.010], [0.1, 0.015], [0.1, 0.019], [0.1, 0.030]])
    times = {OURS: measured, LINE: measured - np.log(100.0)}
    unused: Any = None
    points = tuple(deployed(read_serving(path))[0])
    found = HeldOut(points, unused, unused, measured, {"model": times, "group": times}, np.zeros(0))
    monkeypatch.setattr(validate_serving, "held_out", lambda *given: (path, found))
    return path


def test_the_table_has_every_picker_of_every_target(cli, fitted: Path, parse_json):
    said = parse_json(cli("validate", "rank", fitted, "--json").stdout)
    assert said["configurations"] == 4 and said["noise"] == 0.03
    ours = [row for row in said["ranks"] if row["who"] == "ours"]
    assert {row["split"] for row in ours} == {"model", "group"} and len({row["target"] for row in ours}) == 3
    assert all(row["tau"] == 1.0 and row["median"] == 0.0 for row in ours)
    line = [row for row in said["ranks"] if row["who"] == "roofline" and row["target"] == "20 ms a token"]
    assert all(row["median"] == 1.0 for row in line)


def test_the_picture_in_text_says_what_a_regret_is(cli, fitted: Path):
    shown = cli("validate", "rank", fitted).output
    assert "qwen3-32b on h100-sxm" in shown and "regret: the share of the best" in " ".join(shown.split())
    assert "regret: the share" not in cli("validate", "rank", fitted, "--quiet").output


def test_rows_are_written(cli, fitted: Path):
    cli("validate", "rank", fitted, "-o", "out.csv")
    with Path("out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 3 * 2 * 4 and {row["who"] for row in rows} == {"ours", "roofline", "random", "expected"}


def test_what_cannot_be_ranked_is_refused(refuse, own_folder: Path):
    table = own_folder / "in.csv"
    table.write_text(TABLE + "\n")
    assert "one table" in refuse("validate", "rank", table, table)
    assert "at least two models" in refuse("validate", "rank", table)
    assert "no-such" in refuse("validate", "rank", own_folder / "no-such.csv")
    assert "ending must be one of" in refuse("validate", "rank", table, "-o", "out.txt")
