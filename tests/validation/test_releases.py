"""Releases of serving engines held out one by one: what the nearest one on the same device says of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibration.datasets import read_table
from calibration.kernels.calibrate import FOLD, gather
from calibration.kernels.fit import Settings, fit, log_times, sample
from calibration.kernels.inputs import Prepared, prepare
from calibration.kernels.parameters import Parameters
from calibration.kernels.predict import predict_table

pytestmark = pytest.mark.validation

ROWS = 2500  # of each cell
FAMILIES = {  # with the files and the least gain of the medians over what all releases have in common
    "gemm": ("gemm", 0.85),
    "mla_pre": ("mla", 0.8),
    "mla_post": ("mla", 0.6),
    "moe": ("moe", 1.0),
    "attention_decode": ("attention_decode", 1.0),
    "attention_prefill": ("attention_prefill", 1.0),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_release_held_out_is_nearer_to_its_nearest(family: str, data_directory: Path) -> None:
    """Median errors without and with the rule: 10.9 and 8.7 % (products); each release of a device a cell."""
    file, least = FAMILIES[family]
    data = prepare(gather([read_table(data_directory / "kernels" / f"{file}.parquet")])[family])
    data = data.take(np.flatnonzero(data.usable))
    data = data.take(sample(np.asarray(data.spelled["cell"]), ROWS, 1))
    release = np.char.add(_text(data, "framework"), np.char.add("/", _text(data, "version")))
    found = [row for each in np.unique(release) for row in _held_out(family, data, release == each)]
    common, nearest, common_mean, nearest_mean = np.mean(found, axis=0)
    print(
        f"\n{family}: {len(found)} cells that another release of the device speaks for: median {common:.1%} to "
        f"{nearest:.1%}, mean {common_mean:.1%} to {nearest_mean:.1%}"
    )
    assert nearest < least * common


def _held_out(family: str, data: Prepared, out: np.ndarray) -> list[tuple[float, ...]]:
    """Medians and means of the errors by the average of all releases and by the nearest, of each device and format."""
    fitted = fit(data.take(np.flatnonzero(~out)), Settings(**{**FOLD, "steps": 2500}))
    held = data.take(np.flatnonzero(out & np.isin(_text(data, "device"), np.unique(_text(data, "device")[~out]))))
    if not len(held.table):
        return []
    told = predict_table(held.table, Parameters({family: fitted}, {}))
    near = np.array(["nearest" in reason for reason in told["reason"].tolist()], bool)
    measured = held.table.measured
    common = np.abs(np.exp(log_times(fitted, held)) / measured - 1.0)
    nearest = np.abs(1e-6 * told["predicted_us"] / measured - 1.0)
    cells = np.char.add(_text(held, "device"), np.char.add("/", _text(held, "dtype")))
    at = [near & (cells == cell) for cell in np.unique(cells)]
    return [(np.median(common[a]), np.median(nearest[a]), common[a].mean(), nearest[a].mean()) for a in at if a.any()]


def _text(data: Prepared, column: str) -> np.ndarray:
    return np.asarray(getattr(data.table, column)).astype(str)
