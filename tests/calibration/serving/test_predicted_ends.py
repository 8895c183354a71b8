"""Ends of the tokens a second of open loops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from calibration.serving.predict import throughput_ends


def test_the_interval_of_an_open_loop_holds_what_rounding_makes_of_the_rate() -> None:
    asked, width = np.full(3, 155258.46), np.full(3, 0.5)
    rows: Any = SimpleNamespace(setups=SimpleNamespace(load=asked, output=np.ones(3)))
    found = np.array([np.nextafter(asked[0], 0.0), np.nextafter(asked[0], np.inf), np.nan])
    ends = throughput_ends(rows, np.full(3, 0.25), found, width)
    lower, upper = ends["output_tokens_per_s_lower"], ends["output_tokens_per_s_upper"]
    assert (lower[:2] <= found[:2]).all() and (found[:2] <= upper[:2]).all()
    assert np.isnan([lower[2], upper[2]]).all(), "no prediction, no interval"
