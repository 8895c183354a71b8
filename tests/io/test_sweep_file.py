"""The sweep file: what it holds, and that no text makes anything but a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.io.sweep_file import Keep, SweepFile, parse_keep, read_sweep_file

EXAMPLE = """
model: meta-llama/Llama-3-70B        # a name, a config.json, or an HF directory
task: decode
axes:
  device: all(memory >= 64 GB)
  layout: {tensor_parallel: [1, 2], pipeline_parallel: [2, 1]}
  batch: powers(1, 512)
  context: linspace(512, 2048, 4)
  weights: [bf16, fp8, int4]
metrics: [tpot, tokens_per_second, memory, energy_per_token]
keep: top(100, tokens_per_second)
"""
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3))
documents = st.dictionaries(
    st.one_of(st.sampled_from([*SweepFile.model_fields]), st.text(max_size=5)), values, max_size=5
)
keeps = st.one_of(
    st.text(max_size=30),
    st.text("toparetl(),0123456789 tpot", max_size=30),
    st.builds("{}({})".format, st.sampled_from(["top", "pareto", "all"]), st.text("0123456789,tpo _٣", max_size=20)),
)


def read(folder: Path, text: str | bytes) -> SweepFile:
    path = folder / "sweep.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return read_sweep_file(path)


def test_powers_of_ten_are_numbers(tmp_path: Path) -> None:
    found = read(tmp_path, "model: gpt2\naxes: {batch: [1e2, 1.5E+3, -2e-1, .5e1], device: 1e100-sxm}\n")
    assert found.axes == {"batch": [100.0, 1500.0, -0.2, 5.0], "device": "1e100-sxm"}


def test_the_example(tmp_path: Path) -> None:
    found = read(tmp_path, EXAMPLE)
    assert found.axes["device"] == "all(memory >= 64 GB)"
    assert found.axes["layout"] == {"tensor_parallel": [1, 2], "pipeline_parallel": [2, 1]}
    assert found.axes["batch"] == tuple(2**i for i in range(10)) and found.axes["context"] == (512, 1024, 1536, 2048)
    assert list(found.axes) == ["device", "layout", "batch", "context", "weights"]
    assert parse_keep(found.keep) == Keep(kind="top", metrics=("tokens_per_second",), count=100)


def test_merge_keys_still_work(tmp_path: Path) -> None:
    text = "model: gpt2\naxes:\n  a: &a {batch: [1, 2]}\n  b:\n    <<: *a\n    context: [1, 2]\n"
    assert read(tmp_path, text).axes["b"] == {"batch": [1, 2], "context": [1, 2]}


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("all", Keep(kind="all")),
        (" all ", Keep(kind="all")),
        ("top(5,tpot)", Keep(kind="top", metrics=("tpot",), count=5)),
        ("pareto(tpot, memory)", Keep(kind="pareto", metrics=("tpot", "memory"))),
    ],
)
def test_keep(text: str, keep: Keep) -> None:
    assert parse_keep(text) == keep


@settings(max_examples=300)
@given(keeps)
def test_any_keep_is_read_or_refused(text: str) -> None:
    try:
        found = parse_keep(text)
    except InputError as error:
        assert "allowed: all, top(COUNT, METRIC), pareto(METRIC, METRIC, ...)" in str(error)
    else:
        assert found.kind in ("all", "top", "pareto")
        assert found.kind == "all" or all(found.metrics)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.text(), st.binary(), st.text("[]{}:-&*!?|> \n\tab1", max_size=40)))
def test_any_content_is_read_or_refused(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(InputError, match=r"sweep\.yaml"):
        read(tmp_path, text)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents)
def test_any_mapping_is_read_or_refused(tmp_path: Path, document: dict) -> None:
    try:
        read(tmp_path, yaml.safe_dump(document, allow_unicode=True))
    except InputError as error:
        assert "sweep.yaml" in str(error)
