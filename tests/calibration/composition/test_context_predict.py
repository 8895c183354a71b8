"""Inference over context ranks from shipped parameters: what holds of it, its exchanges and interval, and reasons."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

import hwspecs
from calibration.composition.context_predict import with_exchanges
from calibration.composition.graph_answers import Prediction
from calibration.composition.graph_parameters import load_graphs
from calibration.composition.parallel import Layout
from calibration.composition.parallel_links import exchange_time, ideal_exchange
from calibration.composition.parallel_predict import LINKS
from calibration.composition.predict_graphs import predict_rows
from calibration.composition.row_graphs import Graphs
from calibration.composition.rows import Row, read_rows
from jaxperf.models.graph import Op
from jaxperf.models.workloads.context import Exchange

pytestmark = pytest.mark.usefixtures("plain_jax")

COLUMNS = "device,model,mode,seq,batch,dtype,variant"
H100 = "h100-sxm"
ALONE = Prediction(1.0, 1.0, 0.9, 0.1, 0.5, common=0.04, separate=0.01, tier="transfer")
BLOCK = Op("attention_prefill", {"q_len": 8.0, "heads": 1.0, "kv_heads": 1.0, "head_dim": 64.0})


def predicted(path: Path, *rows: str) -> dict[str, np.ndarray]:
    path.write_text("\n".join((COLUMNS, *rows)) + "\n")
    return predict_rows(read_rows(path), Graphs(), load_graphs())


def row(ranks: int) -> Row:
    return Row(0, H100, "wan-2.1-14b", "inf", 75_600, 1, f"cp{ranks}", "", layout=Layout(context_parallel=ranks))


def test_more_ranks_are_faster_but_not_in_proportion(tmp_path: Path) -> None:
    """One rank is the undivided answer to the bit; what is waited for is a growing part of the time."""
    variants = ("plain", "cp1", "cp2", "cp4", "cp8", "cp40")
    found = predicted(tmp_path / "rows.csv", *(f"{H100},wan-2.1-14b,inf,75600,1,bf16,{each}" for each in variants))
    alone, one, *_ = time = found["predicted_ms"]
    assert one == alone and found["lower_ms"][0] == found["lower_ms"][1]
    ranks = np.array([1, 2, 4, 8, 40])
    efficiency = alone / (ranks * time[1:])
    assert (np.diff(time[1:]) < 0).all() and (efficiency[1:] < 1).all() and (efficiency[1:] > 0.7).all()
    assert (np.diff(found["exposed_communication_fraction"][1:]) > 0).all()
    assert efficiency[-1] < efficiency[1]
    half = np.log(found["upper_ms"] / time)
    assert (half > 0).all() and (found["roofline_ms"] < time).all()
    assert found["reason"][1] == found["reason"][0] and all("context ranks" in each for each in found["reason"][2:])


def test_reasons_why_there_is_no_prediction(tmp_path: Path) -> None:
    asked = {
        "wan-2.1-14b,inf,75600,1,bf16,cp7": "those that do: 1, 2, 4, 5, 8, 10, 20, 40",
        "wan-2.1-1.3b,inf,81x480x832,1,bf16,cp8": "12 heads and 32,760 tokens do not divide over 8 context ranks",
        "wan-2.1-14b,train,75600,1,fp32,cp8": r"over context ranks \(cp8\) only inference is predicted",
        "wan-2.1-14b,inf,75600,2,bf16,dp2-cp4": "context ranks are predicted alone, as in cp4; variant is dp2-cp4",
        "gpt2,inf,128,1,bf16,cp2": "Context ranks divide wan-2.1-1.3b, wan-2.1-14b in inference, not 'gpt2'",
    }
    found = predicted(tmp_path / "rows.csv", *(f"{H100},{each}" for each in asked))
    assert np.isnan(found["predicted_ms"]).all() and np.isnan(found["exposed_communication_ms"]).all()
    for reason, message in zip(found["reason"], asked.values(), strict=True):
        assert re.search(message, reason), reason


def test_an_all_to_all_is_waited_for_and_widens_the_interval() -> None:
    """Seven of eight parts leave over 450 GB/s a direction, of which 75 % are assumed."""
    spec = hwspecs.load(H100)
    each = exchange_time(spec, 8, 3e8)
    assert each == pytest.approx(7 / 8 * 3e8 / (0.75 * 450e9), rel=0.02)
    assert ideal_exchange(spec, 8, 3e8) == pytest.approx(7 / 8 * 3e8 / 450e9)
    assert exchange_time(spec, 16, 3e8) > ideal_exchange(spec, 16, 3e8) > ideal_exchange(spec, 8, 3e8)
    one = with_exchanges(ALONE, row(8), [Exchange(3e8, 40.0)], spec, {})
    links = one.exposed / one.time
    assert one.exposed == pytest.approx(40 * each) and one.time == pytest.approx(1.0 + one.exposed)
    assert one.roofline == pytest.approx(0.5 + 40 * ideal_exchange(spec, 8, 3e8))
    assert one.common == pytest.approx((0.2 * (1 - links) + links * LINKS) ** 2)
    assert one.separate == pytest.approx((0.1 * (1 - links)) ** 2 + (links * LINKS) ** 2)


@pytest.mark.parametrize("block", [0.0, 1e-4, 1.0])
def test_of_a_ring_only_what_outlasts_a_block_is_waited_for(block: float) -> None:
    spec = hwspecs.load(H100)
    sent = [Exchange(1e8, 7.0, BLOCK)]
    whole = with_exchanges(ALONE, row(8), sent, spec, {(H100, BLOCK.key): (0.0, 0.0)}).exposed
    one = with_exchanges(ALONE, row(8), sent, spec, {(H100, BLOCK.key): (block, block)})
    assert whole == pytest.approx(7 * 1e8 / (0.75 * 450e9), rel=0.02)
    assert one.exposed == pytest.approx(max(0.0, whole - 7 * block)) and math.isfinite(one.time)
    assert one.roofline == pytest.approx(0.5 + 7 * max(0.0, 1e8 / 450e9 - block))


@pytest.mark.long
def test_a_ring_hides_what_it_sends_behind_long_blocks(tmp_path: Path) -> None:
    """Over PCIe."""
    rows = (f"l40s,wan-2.1-1.3b,inf,{seq},1,bf16,cp8_ring" for seq in (960, 75_600))
    found = predicted(tmp_path / "rows.csv", *rows)
    short, long = found["exposed_communication_fraction"]
    assert long == 0.0 < short
