"""The fitted law of power on disk: the arrays and the card that `python -m calibration.power` writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxperf.core.parameter_files import damaged, load_arrays
from jaxperf.serving.techniques.power import PowerLaw

SCHEMA = 1
SHIPPED = "power"
REMEDY = "make them again with python -m calibration.power"
SHARES = ("background", "compute", "memory")


def load_law(path: str | Path | None = None) -> tuple[PowerLaw, Mapping[str, Any]]:
    """The law at PATH (.safetensors and .json beside each other), or the shipped one, and its card.

    **Raises:** `InputError` for files that are missing, damaged or of another schema.
    """
    tensors, card = load_arrays(path, SHIPPED, SCHEMA, REMEDY)
    try:
        shares = dict(zip(card["shares"], map(float, tensors["shares"]), strict=True))
        return PowerLaw(**{name: shares[name] for name in SHARES}), card
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(path, SHIPPED, error, REMEDY) from None
