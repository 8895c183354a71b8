"""The fitted pace of Gemmini on disk, stored like the kernel parameters: safetensors and a JSON card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.stored import save_arrays
from jaxperf.core.parameter_files import damaged, load_arrays
from jaxperf.loopnest.gemmini import GemminiPace

SCHEMA = 1
SHIPPED = "gemmini"
REMEDY = "make them again with python -m calibration.gemmini"


@dataclass(frozen=True)
class GemminiParameters:
    """`pace`; `width`: half-width of the 90 % interval [log 1]; `card`: data with hashes, date, errors, command."""

    pace: GemminiPace
    width: float
    card: Mapping[str, Any]


def save_gemmini(parameters: GemminiParameters, path: str | Path) -> None:
    """Write PATH.safetensors and PATH.json, each whole or not at all. Raises `InputError` where that fails."""
    card = {**parameters.card, "width": parameters.width, "scalars": list(GemminiPace._fields)}
    save_arrays(path, {"pace": np.array(parameters.pace, float)}, card, SCHEMA)


def load_gemmini(path: str | Path | None = None) -> GemminiParameters:
    """The pace at PATH (.safetensors and .json beside each other), or the shipped one.

    **Raises:** `InputError` for files that are missing, damaged or of another schema.
    """
    tensors, card = load_arrays(path, SHIPPED, SCHEMA, REMEDY)
    try:
        scalars: dict[str, Any] = dict(zip(card["scalars"], map(float, tensors["pace"]), strict=True))
        return GemminiParameters(GemminiPace(**scalars), float(card["width"]), card)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, SHIPPED, error, REMEDY) from None
