"""The table of errors on devices and networks that were held out, ours and one constant a multiply-accumulate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibration.edge.evaluate import (
    CHOSEN_ON,
    PROTOCOLS,
    SHOTS,
    Measured,
    Trial,
    choose,
    elsewhere,
    known_devices,
    learned,
    measured_residuals,
    trials,
    widths,
)
from calibration.edge.prior import Prior
from calibration.figures import figures
from calibration.orders import spearman

UNSEEN, LEFT_OUT, MEASURED = "unseen", "left out", "measured"


def error_tables(data: Measured) -> list[dict[str, Any]]:
    """Rows of three kinds: "unseen": devices that neither the prior nor its choice saw, by measured networks (HELP's
    protocol); "left out": each other device left out of all the rest, with ten; "measured": networks held out of
    measured devices."""
    freedom = choose(data, known_devices(data))
    prior = learned(data, known_devices(data), freedom)
    published = {name: each for name, each in PROTOCOLS[data.space].tested.items() if name in data.latency}
    rows = [row for shots in SHOTS for row in _rows(data, UNSEEN, prior, widths(data, prior, (shots,)), published)]
    whole = learned(data, list(data.latency), freedom)
    others = dict.fromkeys(data.latency)
    rows += _rows(data, LEFT_OUT, whole, widths(data, whole, (CHOSEN_ON,)), others)
    residuals = measured_residuals(data, freedom)
    return rows + [
        {"space": data.space, "kind": MEASURED, "device": name, **figures(each)} for name, each in residuals.items()
    ]


def _rows(
    data: Measured, kind: str, prior: Prior, width: Mapping[int, float], devices: Mapping[str, float | None]
) -> list[dict[str, Any]]:
    """One row a device and number of measured networks; `devices`: with HELP's rank correlation, where it has one."""
    rows = []
    for device, published in devices.items():
        for shots, half in width.items():
            found = trials(data, device, elsewhere(prior, device), shots)
            told = {"space": data.space, "kind": kind, "device": device, "networks": shots, **_figures(found, half)}
            rows.append(told | {"spearman_help": published if shots == CHOSEN_ON else None})
    return rows


def _figures(found: Sequence[Trial], width: float) -> dict[str, float]:
    predicted, measured, _, by_macs = (np.concatenate(each) for each in zip(*found, strict=True))
    ratio = np.concatenate([trial.ratio for trial in found])
    return {
        **figures(np.log(predicted / measured)),
        "median_macs": figures(np.log(by_macs / measured))["median"],
        "spearman": float(np.mean([spearman(trial.predicted, trial.measured) for trial in found])),
        "spearman_macs": spearman(found[0].by_macs, found[0].measured),
        "inside": float(np.mean(np.abs(ratio) <= width)),
    }
