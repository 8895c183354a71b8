"""Iterations over several devices from shipped parameters: what holds of them, reasons, and the measured ones."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

import hwspecs
from calibration.composition.evaluate_graphs import LEFT_OUT, Result, cells, trusted
from calibration.composition.graph_answers import Prediction
from calibration.composition.graph_parameters import load_graphs
from calibration.composition.parallel import Layout
from calibration.composition.parallel_predict import FRAMEWORK, LINKS, Part, joined
from calibration.composition.parallel_stages import stages_of
from calibration.composition.predict_graphs import GraphParameters, predict_rows
from calibration.composition.row_graphs import Graphs
from calibration.composition.rows import Row, read_rows
from jaxperf.io.huggingface import load_model

pytestmark = pytest.mark.usefixtures("plain_jax")

VARIANTS = ("plain", "dp4", "tp4", "pp4_1", "pp4_4", "dp2-tp2", "dp64")
COLUMNS = ("device", "model", "mode", "seq", "batch", "variant")


@pytest.fixture(scope="module")
def parameters() -> GraphParameters:
    return load_graphs()


def table(path: Path, *rows: tuple[object, ...]) -> list[Row]:
    path.write_text("\n".join(",".join(map(str, row)) for row in (COLUMNS, *rows)) + "\n")
    return read_rows(path)


@pytest.mark.long
def test_what_several_devices_take(parameters: GraphParameters, tmp_path: Path):
    rows = table(tmp_path / "rows.csv", *[("a100-sxm-80gb", "gpt2", "train", 512, 64, v) for v in VARIANTS])
    found = predict_rows(rows, Graphs(), parameters)
    time = dict(zip(VARIANTS, found["predicted_ms"].tolist(), strict=True))
    assert time["plain"] / 4 < time["dp4"] < time["plain"] and time["plain"] / 4 < time["tp4"] < time["plain"]
    assert time["plain"] / 4 < time["pp4_4"] < time["pp4_1"] < 1.2 * time["plain"]
    assert time["plain"] / 64 < time["dp64"] < time["dp4"]
    assert time["plain"] / 4 < time["dp2-tp2"] < time["plain"]
    assert (found["roofline_ms"] < found["predicted_ms"]).all()
    assert (found["kernel_ms"] < found["predicted_ms"]).all() and (found["host_ms"] < found["kernel_ms"]).all()
    half = np.log(found["upper_ms"] / found["predicted_ms"])
    assert (half[1:] > half[0]).all()  # wider than that of one device
    assert found["reason"][0] == "" and all("several devices" in reason for reason in found["reason"][1:])


def test_reasons_why_there_is_no_prediction(parameters: GraphParameters, tmp_path: Path):
    asked = {
        ("gpt2", "train", 64, 6, "dp4"): "A batch of 6 sequences does not divide into 4 .replicas",
        ("gpt2", "train", 64, 8, "tp5"): "heads: 12 is not a multiple of 5",
        ("gpt2", "train", 64, 8, "pp5_1"): "12 layers, which 5 stages do not divide",
        ("t5-small", "train", 64, 8, "pp2_1"): "an encoder and a decoder",
        ("no-such-model", "train", 64, 8, "dp2"): "no graph: No model",
        ("gpt2", "inf", 64, 8, "tp2"): "over several devices only training is predicted",
        ("gpt2", "train", 64, 8, "ep4"): "variant 'ep4' is neither plain, fusion nor devices",
    }
    found = predict_rows(table(tmp_path / "rows.csv", *[("t4", *row) for row in asked]), Graphs(), parameters)
    assert np.isnan(found["predicted_ms"]).all()
    for reason, message in zip(found["reason"], asked.values(), strict=True):
        assert re.search(message, reason), reason


def test_the_interval_adds_links_and_framework():
    """No communication: the deviations of the stages; sqrt(common) is their mean, and the framework comes on top."""
    layout = Layout(pipeline_parallel=2)
    passes = Prediction(1.0, 0.4, 0.9, 0.1, 0.5, common=0.04, separate=0.01, tier="transfer")
    update = Prediction(0.1, 0.0, 0.1, 0.0, 0.05, common=0.0, separate=0.0, tier="measured")
    parts = [Part(stage, passes, update) for stage in stages_of(load_model("gpt2"), layout, 64, 8)]
    one = joined(layout, parts, hwspecs.load("h100-sxm"), (), overhead=0.0)
    links = 1.0 - (2 * 1.0 + 0.1) / one.time
    assert 0.0 < links < 1e-2 and one.tier == "transfer"
    assert one.common == pytest.approx((0.2 * (1 - links) + links * LINKS) ** 2 + FRAMEWORK**2)
    assert one.separate == pytest.approx((0.1 * (1 - links)) ** 2 + (links * LINKS) ** 2 + FRAMEWORK**2)
    assert one.exposed == pytest.approx(links * one.time)
    assert one.forward == pytest.approx(0.8) and one.kernel == pytest.approx(1.0)


def test_rows_of_several_devices_teach_nothing(tmp_path: Path):
    plain, several = table(tmp_path / "rows.csv", *[("t4", "gpt2", "train", 64, 8, v) for v in ("plain", "dp2")])
    assert trusted(plain) and not trusted(several)
    prediction = Prediction(1.1, 0.4, 1.0, 0.1, 0.5, 0.04, 0.01, "transfer")
    label = {"label": 1.0, "peers": (math.nan,) * 4}
    made = [Result(LEFT_OUT, Row(**{**vars(row), **label}), prediction) for row in (plain, several)]
    assert {(cell["mode"], cell["device"]) for cell in cells(made, rho=1.0)} == {
        *{("train", "t4"), ("train", "pooled")},
        *{("dp2", "t4"), ("several devices", "pooled")},
    }


@pytest.mark.long
def test_the_measured_iterations_over_several_devices(parameters: GraphParameters, data_directory: Path):
    """Four A100 SXM: each within 10 % and nearer than NeuSight's prediction, in its interval, 5 % in the mean."""
    path = data_directory / "neusight" / "e2e_labels.csv"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    rows = [row for row in read_rows(path) if row.layout.devices > 1 and math.isfinite(row.label)]
    if not rows:
        pytest.skip("no iteration over several devices among the labels")
    numbered = [Row(**{**vars(row), "place": place}) for place, row in enumerate(rows)]
    found = predict_rows(numbered, Graphs(), parameters)
    label = 1e3 * np.array([row.label for row in rows])
    error = np.abs(found["predicted_ms"] / label - 1.0)
    neusight = np.abs(np.array([row.peers[0] / row.label for row in rows]) - 1.0)
    assert (error < np.minimum(neusight, 0.1)).all() and error.mean() < 0.05
    assert (found["lower_ms"] <= label).all() and (label <= found["upper_ms"]).all()
