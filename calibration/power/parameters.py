"""The fitted power law on disk, stored like the kernel parameters: safetensors and a JSON card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.stored import save_arrays
from jaxperf.core.parameter_files import damaged
from jaxperf.serving.techniques.power import PowerLaw
from jaxperf.serving.techniques.power_file import REMEDY, SCHEMA, SHARES, SHIPPED, load_law


@dataclass(frozen=True)
class PowerParameters:
    """`law`; `calibrated`: whether the twins met the targets; `devices` whose power was measured; `card`: data with
    hashes, date, errors, command."""

    law: PowerLaw
    calibrated: bool
    devices: tuple[str, ...]
    card: Mapping[str, Any]


def save_power(parameters: PowerParameters, path: str | Path) -> None:
    """Write PATH.safetensors and PATH.json, each whole or not at all. Raises `InputError` where that fails."""
    card = {**parameters.card, "calibrated": parameters.calibrated, "devices": list(parameters.devices)}
    shares = np.array([float(getattr(parameters.law, name)) for name in SHARES])
    save_arrays(path, {"shares": shares}, {**card, "shares": list(SHARES)}, SCHEMA)


def load_power(path: str | Path | None = None) -> PowerParameters:
    """The law at PATH (.safetensors and .json beside each other), or the shipped one.

    **Raises:** `InputError` for files that are missing, damaged or of another schema.
    """
    law, card = load_law(path)
    try:
        return PowerParameters(law, bool(card["calibrated"]), tuple(map(str, card["devices"])), card)
    except (KeyError, TypeError) as error:
        raise damaged(path, SHIPPED, error, REMEDY) from None
