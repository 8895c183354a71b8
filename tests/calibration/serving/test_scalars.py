"""Scalars that stay above what a roofline allows, and campaigns that are told apart by their source."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.datasets.serving import read_serving
from calibration.serving.layouts import deployed
from calibration.serving.scalars import above, levels_of


@given(moved=st.floats(-50.0, 5.0), further=st.floats(1e-3, 5.0))
def test_a_scalar_stays_above_its_least_and_grows_with_its_levels(moved: float, further: float):
    low, high = (float(above(0.6, np.asarray(u))) for u in (moved, moved + further))
    assert 0.6 <= low <= high
    assert float(above(0.0, np.asarray(moved))) == pytest.approx(np.exp(moved))
    assert moved < 0.0 or low == pytest.approx(np.exp(moved))


@pytest.mark.parametrize("moved", [-1e-9, 0.0, 1e-9])
def test_where_both_curves_meet_they_have_one_slope(moved: float):
    assert float(jax.grad(lambda u: above(0.6, u))(moved)) == pytest.approx(1.0, abs=1e-6)


def test_campaigns_without_a_release_are_told_apart_by_their_source(tmp_path: Path):
    header = "source,model,gpu,n_gpu,tp,framework,framework_version,mode,input_len,output_len,concurrency"
    row = "{},llama3.1-8b,h100_sxm,1,1,vllm,{},agg,1024,128,8"
    rows = [row.format(source, version) for source in ("a", "b") for version in ("", "0.12.0")]
    (tmp_path / "in.csv").write_text("\n".join([header, *rows]) + "\n")
    points, reasons = deployed(read_serving(tmp_path / "in.csv"))
    sites = {point.configuration.source: [] for point in points}
    for point, site in zip(points, levels_of(points)["site"], strict=True):
        sites[point.configuration.source].append(site)
    assert not reasons and sites["a"][0] != sites["b"][0]
    assert sites["a"][1:] == sites["b"][1:]


@pytest.mark.parametrize(
    ("source", "version", "engine"),
    [
        ("splitwise-sim", "", "vllm static"),
        ("splitwise-sim", "0.12.0", "vllm"),
        ("", "0.2.5", "vllm static"),
        ("", "0.2.6", "vllm"),
        ("", "", "vllm"),
    ],
)
def test_a_fixed_batch_has_the_kernels_of_its_release(tmp_path: Path, source: str, version: str, engine: str):
    """The fitted ones launched each kernel by itself, which no release does that replays graphs."""
    header = "source,model,gpu,n_gpu,tp,framework,framework_version,mode,input_len,output_len,batch"
    (tmp_path / "in.csv").write_text(f"{header}\n{source},llama3.1-8b,h100_sxm,1,1,vllm,{version},static,128,128,8\n")
    points, _ = deployed(read_serving(tmp_path / "in.csv"))
    assert levels_of(points)["engine"] == [engine]
