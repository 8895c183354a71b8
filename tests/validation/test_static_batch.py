"""Calibrated steps against measured fixed batches; `make validate` prints the table that the docs show.

Nothing is fitted on these batches: the efficiencies come from single kernels. Beside them stand the assumed ones, the
plain roofline, and a constant times the roofline, the constant being the median ratio on the other devices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import jaxperf as jp
from calibration.datasets import StaticBatch, read_static_batches
from jaxperf.core.sustained import RATE_LEVELS, CalibratedDevice

pytestmark = pytest.mark.validation

PHASES = ("prefill", "decode")


@functools.cache
def steps(model: str) -> tuple[Callable, Callable]:
    """(prefill, decode) of a model, compiled once for all rows and levels."""
    config = jp.load_model(model)
    return jp.prefill_step(config), jp.decode_step(config)


def predicted(row: StaticBatch, level: str, device: jp.Device | CalibratedDevice) -> tuple[float, float]:
    """(prefill, decode step) at the mean lengths of the batch [s]."""
    prefill_step, decode_step = steps(row.model)
    prompt = float(np.mean(row.prompts))
    given = {"batch": len(row.prompts), "tensor_parallel": row.tensor_parallel, "weights": row.dtype, "level": level}
    prefill = prefill_step(device, prompt=prompt, **given)
    decode = decode_step(device, context=prompt + row.output / 2, **given)
    return float(prefill.stage_time), float(decode.time)


@pytest.fixture(scope="module")
def rows(data_directory: Path) -> list[StaticBatch]:
    return read_static_batches(data_directory / "static_batch" / "e2e_static_batch.csv")


@pytest.fixture(scope="module")
def errors(rows: list[StaticBatch]) -> dict[tuple[str, str], np.ndarray]:
    measured = np.array([[row.prefill, row.decode_step] for row in rows])
    devices = [jp.load_device(row.gpu) for row in rows]

    def at(level: str) -> np.ndarray:
        return np.array([predicted(row, level, device) for row, device in zip(rows, devices, strict=True)])

    times = {level: at(level) for level in RATE_LEVELS}
    assumed = np.array([predicted(row, "nominal", each.device) for row, each in zip(rows, devices, strict=True)])
    gpus = np.array([row.gpu for row in rows])
    roofline = times["roofline"]
    constants = np.array(
        [np.median((measured / roofline)[gpus != gpu], axis=0) for gpu in gpus]  # fitted on the other devices
    )
    predictions = {
        "jaxperf": times["nominal"],
        "assumed": assumed,
        "roofline": roofline,
        "constant": roofline * constants,
    }
    found = {
        (name, phase): np.abs(values[:, i] / measured[:, i] - 1.0)
        for name, values in predictions.items()
        for i, phase in enumerate(PHASES)
    }
    inside = (times["high"] <= measured) & (measured <= times["low"])
    for (name, phase), error in found.items():
        median, mean, p90 = np.median(error), np.mean(error), np.quantile(error, 0.9)
        print(f"\n{phase:8s} {name:9s} {len(rows)} rows  median {median:.1%}  mean {mean:.1%}  p90 {p90:.1%}", end="")
    for gpu in sorted(set(gpus)):
        mine = gpus == gpu
        cells = "  ".join(f"{phase} {np.median(found['jaxperf', phase][mine]):.1%}" for phase in PHASES)
        print(f"\n         {gpu:14s} {mine.sum():2d} rows  median {cells}", end="")
    width = np.median(np.sqrt(times["low"] / times["high"]) - 1.0, axis=0)
    print(f"\ninside the interval: prefill {inside[:, 0].mean():.0%}, decode {inside[:, 1].mean():.0%}", end="")
    print(f"; median half-width: prefill {width[0]:.0%}, decode {width[1]:.0%}")
    return found


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("other", ["assumed", "roofline", "constant"])
def test_calibrated_steps_are_nearer(errors: dict[tuple[str, str], np.ndarray], phase: str, other: str) -> None:
    assert np.median(errors["jaxperf", phase]) < np.median(errors[other, phase])
    assert np.mean(errors["jaxperf", phase]) < np.mean(errors[other, phase])
