"""Releases and devices held out one by one: what another release, or a relative of the device, says of them."""

from __future__ import annotations

from collections.abc import Callable
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
FAMILIES = {  # with their file, and the least gains of the medians: of releases, of devices
    "gemm": ("gemm", 0.85, 0.75),
    "mla_pre": ("mla", 0.8, 0.9),
    "mla_post": ("mla", 0.6, 0.75),
    "moe": ("moe", 1.0, 0.75),
    "attention_decode": ("attention_decode", 1.0, 0.7),
    "attention_prefill": ("attention_prefill", 1.0, 0.75),
}
Names = Callable[[Prepared], np.ndarray]


def of_release(data: Prepared) -> np.ndarray:
    return np.char.add(_text(data, "framework"), np.char.add("/", _text(data, "version")))


def of_device(data: Prepared) -> np.ndarray:
    return _text(data, "device")


@pytest.mark.parametrize(("named", "said", "gain"), [(of_release, "nearest", 1), (of_device, "relative", 2)])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_held_out_is_nearer_to_what_stands_in(
    family: str, named: Names, said: str, gain: int, data_directory: Path
) -> None:
    """Against what all have in common; each device and format is a cell."""
    data = prepare(gather([read_table(data_directory / "kernels" / f"{FAMILIES[family][0]}.parquet")])[family])
    data = data.take(np.flatnonzero(data.usable))
    data = data.take(sample(np.asarray(data.spelled["cell"]), ROWS, 1))
    names = named(data)
    found = [row for each in np.unique(names) for row in _held_out(family, data, names == each, said)]
    common, nearest, common_mean, nearest_mean = np.mean(found, axis=0)
    print(
        f"\n{family}, {named.__name__}: {len(found)} cells, median {common:.1%} to {nearest:.1%}, mean "
        f"{common_mean:.1%} to {nearest_mean:.1%}"
    )
    assert nearest < FAMILIES[family][gain] * common


def _held_out(family: str, data: Prepared, out: np.ndarray, said: str) -> list[tuple[float, ...]]:
    """Medians and means of the errors without and with what stands in, of each device and format."""
    fitted = fit(data.take(np.flatnonzero(~out)), Settings(**{**FOLD, "steps": 2500}))
    held = data.take(np.flatnonzero(out))
    told = predict_table(held.table, Parameters({family: fitted}, {}))
    stood_in = np.array([said in reason for reason in told["reason"].tolist()], bool)
    measured = held.table.measured
    common = np.abs(np.exp(log_times(fitted, held)) / measured - 1.0)
    nearest = np.abs(1e-6 * told["predicted_us"] / measured - 1.0)
    cells = np.char.add(_text(held, "device"), np.char.add("/", _text(held, "dtype")))
    at = [stood_in & (cells == cell) for cell in np.unique(cells)]
    return [(np.median(common[a]), np.median(nearest[a]), common[a].mean(), nearest[a].mean()) for a in at if a.any()]


def _text(data: Prepared, column: str) -> np.ndarray:
    return np.asarray(getattr(data.table, column)).astype(str)
