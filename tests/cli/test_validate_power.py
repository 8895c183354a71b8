"""`validate power`: what it refuses, and what it says of a table whose power-capped rows nobody measured."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from calibration.power import evaluate
from jaxperf.serving.techniques.power import PowerLaw

COLUMNS = "model,hardware,prompt_size,batch_size,token_size,tensor_parallel"
HEAD = f"{COLUMNS},peak_power,average_power,prompt_time,token_time,e2e_time"
ROW = "llama2-70b,a100-80gb,512,1,128,4,0,0,127,44,5800"


def test_what_is_refused(refuse, own_folder) -> None:
    assert "no-such.csv" in refuse("validate", "power", "no-such.csv")
    (own_folder / "power.csv").write_text(f"{HEAD}\n{ROW}\n")
    assert "takes one table" in refuse("validate", "power", "power.csv", "power.csv")
    assert "0 runs without a limit state a power; at least 8 are needed" in refuse("validate", "power", "power.csv")
    unknown = ROW.replace("a100-80gb", "warp-drive")
    (own_folder / "power.csv").write_text(f"{HEAD}\n{unknown}\n")
    assert "no row can be used. The first: hardware: 'warp-drive'" in refuse("validate", "power", "power.csv")
    (own_folder / "power.csv").write_text(f"{HEAD}\n")
    assert "power.csv has no rows" in refuse("validate", "power", "power.csv")
    (own_folder / "power.csv").write_text("model,gpu\nllama2-70b,a100\n")
    assert "the column 'hardware' is missing" in refuse("validate", "power", "power.csv")


@pytest.fixture
def held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation of four runs and two twins, made up."""
    powers = {name: np.array([0.5, 0.6, 0.7, 0.8]) for name in evaluate.POWERS}
    halves = {name: np.array([0.1, 0.2]) for name in evaluate.TIMES}
    nothing = {name: np.full(2, np.nan) for name in evaluate.POWERS}
    whos = ("ours", "constant", "tdp"), ("ours", "unchanged", "cube_root", "in_proportion")
    predicted = {
        "ranks": {who: {name: 1.1 * values for name, values in powers.items()} for who in whos[0]},
        evaluate.TWIN: {who: {**halves, **nothing} for who in whos[1]},
    }
    measured = {"ranks": powers, evaluate.TWIN: {**halves, **nothing}}
    runs, twins = tuple([SimpleNamespace(average_power=0.5)] * 4), tuple([SimpleNamespace()] * 2)
    found = evaluate.HeldOut(PowerLaw(0.3, 1.0, 0.4), runs, twins, predicted, measured)  # type: ignore[arg-type]
    monkeypatch.setattr(evaluate, "hold_out", lambda *_, **__: found)


def test_the_verdict_is_printed_with_its_reasons(cli, parse_json, held_out, own_folder) -> None:
    (own_folder / "power.csv").write_text(f"{HEAD}\n{ROW}\n")
    text = " ".join(cli("validate", "power", "power.csv").stdout.split())
    assert "energy: uncalibrated" in text and "No run under a power limit states its power." in text
    assert "computed, not measured" in text and "10.0% / 10.0% / 10.0%" in text
    record = parse_json(cli("validate", "power", "power.csv", "--json").stdout)
    assert record["calibrated"] is False and record["twins"] == 2
    assert "metered by jaxperf measure" in text and record["metered"][-1]["family"] == "all"
    assert {row["output"] for row in record["errors"] if row["split"] == "twin"} == set(evaluate.TIMES)
    cli("validate", "power", "power.csv", "-o", "errors.csv")
    assert len((own_folder / "errors.csv").read_text().splitlines()) == 1 + len(record["errors"])
