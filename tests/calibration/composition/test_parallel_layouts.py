"""Layouts as tables of iterations write them, and what rows of several devices say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.composition.parallel import ONE_DEVICE, Layout, parse_layout
from calibration.composition.rows import read_rows

DEGREES = st.integers(1, 65536)


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("dp4", Layout(data_parallel=4)),
        ("tp8", Layout(tensor_parallel=8)),
        ("pp4_1", Layout(pipeline_parallel=4)),
        ("pp4_16", Layout(pipeline_parallel=4, microbatches=16)),
        ("pp4", Layout(pipeline_parallel=4)),
        ("dp2tp4", Layout(2, 4)),
        ("tp4-dp2", Layout(2, 4)),
        ("dp2_tp4_pp8_16", Layout(2, 4, 8, 16)),
        ("dp1", ONE_DEVICE),
        ("cp8", Layout(context_parallel=8)),
        ("cp8_ulysses", Layout(context_parallel=8)),
        ("cp8_ring", Layout(context_parallel=8, context_method="ring")),
        ("dp2-cp4_ring", Layout(2, context_parallel=4, context_method="ring")),
        ("cp1_ring", ONE_DEVICE),
    ],
)
def test_the_layout_that_a_variant_names(text: str, layout: Layout):
    assert parse_layout(text) == layout


@given(data=DEGREES, tensor=DEGREES, stages=DEGREES, micro=DEGREES, context=DEGREES)
def test_layouts_come_back_as_written(data: int, tensor: int, stages: int, micro: int, context: int):
    written = Layout(data, tensor, stages, micro, context)
    assert parse_layout(f"dp{data}-tp{tensor}-pp{stages}_{micro}-cp{context}") == written
    assert written.devices == data * tensor * stages * context


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dp",
        "dp0",
        "tp4_2",
        "dp4dp2",
        "pp4_0",
        "cp8_rings",
        "cp8_2",
        "tp4_ring",
        "cp2cp4",
        "ddp4",
        "dp4x",
        "dp-4",
        "4",
        "dp4 tp",
        "ép4",
    ],
)
def test_other_texts_are_no_layout(text: str):
    assert parse_layout(text) is None


@given(data=st.integers(1, 64), micro=st.integers(1, 64), batch=st.integers(1, 4096))
def test_the_local_batch_is_exact(data: int, micro: int, batch: int):
    local = Layout(data_parallel=data, microbatches=micro).local_batch(batch)
    assert local == (batch // (data * micro) if batch % (data * micro) == 0 else None)


def test_rows_have_the_layout_of_their_variant(tmp_path: Path):
    path = tmp_path / "rows.csv"
    variants = ("DP4", "pp4_2", "dp1", "fused", "dp4q")
    path.write_text("device,model,mode,seq,batch,variant\n" + "".join(f"t4,gpt2,train,64,8,{v}\n" for v in variants))
    rows = read_rows(path)
    assert [row.layout for row in rows[:2]] == [Layout(4), Layout(1, 1, 4, 2)]
    assert [row.variant for row in rows] == ["dp4", "pp4_2", "plain", "fusion", "dp4q"]
    assert all(row.layout == ONE_DEVICE and row.reason == "" for row in rows[2:4])
    assert "variant 'dp4q' is neither plain, fusion nor devices" in rows[4].reason


@pytest.mark.parametrize(
    ("model", "seq", "reason"),
    [
        ("Wan-2.1-14B", "81x720x1280", ""),
        ("wan-2.1-14b", "81 x 720 x 1280", ""),
        ("wan-2.1-14b", "75600", ""),
        ("wan-2.1-14b", "80x720x1280", "seq '80x720x1280': A video's frames cannot be 80"),
        ("wan-2.1-14b", "81x720", "seq '81x720' is neither tokens nor a video as in 81x720x1280"),
        ("gpt2", "81x720x1280", "seq '81x720x1280' is the size of a video, which wan-2.1-1.3b, wan-2.1-14b take; "),
        ("wan-2.1", "81x720x1280", "seq '81x720x1280' is the size of a video, which wan-2.1-1.3b, wan-2.1-14b take; "),
        ("gpt2", "1k", "seq is not a whole number from 1"),
    ],
)
def test_seq_is_tokens_or_a_video(tmp_path: Path, model: str, seq: str, reason: str):
    path = tmp_path / "rows.csv"
    path.write_text(f"device,model,mode,seq,batch,variant\nt4,{model},inf,{seq},1,\nt4,gpt2,inf,16,1,\n")
    row, other = read_rows(path)
    assert row.reason.startswith(reason) and bool(row.reason) == bool(reason)
    assert reason or row.seq == 75_600
    assert ("Did you mean" in row.reason) == (model == "wan-2.1")
    assert (other.seq, other.reason) == (16, "")
