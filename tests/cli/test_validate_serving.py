"""`jaxperf validate serving`: what it prints of held-out fits and of benchmarks that no fit sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibration.datasets.serving import read_serving
from calibration.serving.evaluate import hold_out
from calibration.serving.refit import measured_points
from jaxperf.cli import validate_serving
from jaxperf.cli.compute import start_jax
from jaxperf.core.sustained_file import load_sustained_table

HEADER = "source,model,gpu,n_gpu,tp,framework,mode,scenario,input_len,output_len,concurrency,metric,value"
LAB = "lab,gpt2{},h100_sxm,1,1,vllm,agg,,512,64,{},{},{}"
LOG = "MLPerf Inference x,llama3.1-8b,h200_sxm,8,,vLLM 0.10.0,agg,Offline,,,,tokens_per_s,30e3"

pytestmark = pytest.mark.usefixtures("plain_jax")


@pytest.fixture
def fitted(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of two models and one submission, held out by group alone."""
    rows = [
        LAB.format(size, load, metric, value)
        for size in ("", "-xl")
        for load in (1, 8)
        for metric, value in (("ttft", 30.0), ("tpot", 4.0 + load))
    ]
    start_jax()  # as the command does before it computes
    path = own_folder / "in.csv"
    path.write_text("\n".join([HEADER, *rows, LOG]) + "\n")
    found = hold_out(measured_points(read_serving(path)), load_sustained_table(), ("group",))
    monkeypatch.setattr(validate_serving, "held_out", lambda *given: (path, found))
    monkeypatch.setattr(validate_serving, "coverage_rows", lambda found: [])
    return path


@pytest.mark.long
def test_benchmarks_that_no_fit_sees_are_printed_apart(cli, fitted: Path, parse_json):
    said = parse_json(cli("validate", "serving", fitted, "--json", "-o", "out.csv").stdout)
    assert {row["split"] for row in said["errors"]} == {"group"} and said["configurations"] == 4
    (ours,) = [row for row in said["ungated"] if row.get("who") == "ours"]
    assert (ours["scenario"], ours["output"], ours["rows"]) == ("offline", "throughput", 1)
    assert [row["device"] for row in said["ungated"] if "device" in row] == ["h200-sxm"]
    shown = " ".join(cli("validate", "serving", fitted).stdout.split())
    assert "never fitted" in shown and "too few" in shown and "nan" not in shown  # a constant of no other device
    assert "predicted over measured tokens/s, median (rows): h200-sxm" in shown


@pytest.mark.long
def test_a_table_without_them_has_no_such_lines(cli, fitted: Path):
    fitted.write_text(fitted.read_text().replace(LOG + "\n", ""))
    shown = cli("validate", "serving", fitted, "--quiet").stdout
    assert "never fitted" not in shown and "over measured" not in shown
