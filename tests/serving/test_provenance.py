"""Where an answer comes from: tiers by family and device, in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

import hwspecs
from jaxperf.core.efficiency import PROVENANCE
from jaxperf.core.sustained_file import calibration_of, load_sustained_table
from jaxperf.io.huggingface import load_model
from jaxperf.serving.provenance import families_of, provenance_of

TABLE = load_sustained_table()
DENSE = load_model("llama-3.1-8b")


def known(*names: str):
    return {name: calibration_of(hwspecs.load(name), TABLE) for name in names}


@pytest.mark.parametrize(
    ("model", "families"),
    [
        ("llama-3.1-8b", {"gemm", "attention_prefill", "attention_decode", "elementwise"}),
        ("gpt-oss-20b", {"gemm", "attention_prefill", "attention_decode", "elementwise", "moe"}),
        (
            "minimax-text-01",
            {"gemm", "attention_prefill", "attention_decode", "elementwise", "moe", "linear_attention"},
        ),
        ("bert-base", {"gemm", "attention_prefill", "attention_decode", "elementwise"}),
    ],
)
def test_families_of_a_model(model: str, families: set[str]) -> None:
    assert set(families_of(load_model(model))) == families


def test_one_measured_device() -> None:
    found = provenance_of(DENSE, known("h100-sxm"), ["bf16"])
    assert set(found.tiers["h100-sxm"].values()) == {"measured"} and found.calibrated
    assert found.sentence.startswith("calibrated: measured tier, fitted 20")


def test_one_device_never_measured() -> None:
    assert "transfer tier (no row of this device)" in provenance_of(DENSE, known("b200"), ["bf16"]).sentence


def test_a_format_never_measured_is_transfer() -> None:
    found = provenance_of(DENSE, known("h100-sxm"), ["bf16", "fp4"])
    assert found.tiers["h100-sxm"]["gemm"] == "transfer" and found.tiers["h100-sxm"]["attention_decode"] == "measured"
    assert "measured tier for attention prefill" in found.sentence and "transfer tier for gemm" in found.sentence


def test_a_kind_never_measured_is_uncalibrated() -> None:
    assert provenance_of(DENSE, known("epyc-9654"), ["bf16"]).sentence == PROVENANCE


def test_many_devices_are_grouped_and_counted() -> None:
    names = ("h100-sxm", "b200", "b100", "gb200", "gb300", "mi300x", "epyc-9654")
    found = provenance_of(DENSE, known(*names), ["bf16"])
    assert "measured tier for h100-sxm; transfer tier for 5 devices; assumed tier for epyc-9654" in found.sentence
    record = found.record
    assert set(record["tiers"]) == set(names) and record["fitted"] == TABLE.card["created"]
    assert record["parameters"] == "shipped"


@pytest.mark.parametrize(
    ("name", "base", "states", "said"),
    [
        ("mine", "h100-sxm", True, True),
        ("h100-sxm", "h100-sxm", True, True),
        ("mine", "h100-sxm", False, False),
        ("mine", "epyc-9654", True, False),  # nothing was fitted to any like it, so that its kernels read it
    ],
)
def test_a_launch_latency_that_fitted_floors_stand_for_is_said(
    tmp_path: Path, name: str, base: str, states: bool, said: bool
) -> None:
    latency = 'launch_latency = {quantity = "50 us", source = "me", confidence = "estimated", note = "what if"}\n'
    source = '[sources.me]\ntitle = "t"\npublisher = "me"\nkind = "estimate"\nyear = 2026\n'
    text = f'name = "{name}"\nbase = "{base}"\n' + (latency + source if states else "")
    (tmp_path / f"{name}.toml").write_text(text)
    found = provenance_of(DENSE, {name: calibration_of(hwspecs.load(name, [tmp_path]), TABLE)}, ["bf16"])
    assert (f"({name}: its launch_latency is not read by kernels" in found.sentence) == said
    assert found.record.get("launch_latency_not_read") == ([name] if said else None)
