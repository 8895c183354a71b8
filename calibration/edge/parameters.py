"""What is known of the measured devices, on disk: safetensors and a JSON card, as the kernel parameters are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.edge.prior import IDEAL, Freedom, Prior
from calibration.edge.spaces import SPACES
from calibration.stored import save_arrays
from jaxperf.core.parameter_files import damaged, load_arrays

SCHEMA = 1
SHIPPED = "edge"
REMEDY = "make them again with python -m calibration.edge"
ARRAYS = ("center", "spread", "coefficients", "scale")


@dataclass(frozen=True)
class Known:
    """A space's `prior`; `measured`: device -> half-width of its 90 % interval [log 1]; `adapted`: number of measured
    networks -> the same in standard deviations of the prediction's logarithm."""

    prior: Prior
    measured: Mapping[str, float]
    adapted: Mapping[int, float]

    def adapted_width(self, networks: int) -> float:
        """Between the numbers that were tried, linear in the logarithm; beyond them that of the last."""
        tried = sorted(self.adapted)
        return float(np.interp(np.log(networks), np.log(tried), [self.adapted[each] for each in tried]))


@dataclass(frozen=True)
class EdgeParameters:
    """`spaces`: by name; `card`: data with hashes, date, errors, command."""

    spaces: Mapping[str, Known]
    card: Mapping[str, Any]


def save_edge(parameters: EdgeParameters, path: str | Path) -> None:
    """Write PATH.safetensors and PATH.json, each whole or not at all. Raises `InputError` where that fails."""
    arrays = {
        f"{space}.{name}": np.asarray(getattr(known.prior, name), float)
        for space, known in parameters.spaces.items()
        for name in ARRAYS
    }
    spaces = {
        space: {
            "devices": list(known.prior.devices),
            "least": known.prior.least,
            "freedom": known.prior.freedom._asdict(),
            "measured_width": dict(known.measured),
            "adapted_width": {str(shots): width for shots, width in known.adapted.items()},
        }
        for space, known in parameters.spaces.items()
    }
    save_arrays(path, arrays, {**parameters.card, "spaces": spaces}, SCHEMA)


def load_edge(path: str | Path | None = None) -> EdgeParameters:
    """The parameters at PATH (.safetensors and .json beside each other), or the shipped ones.

    **Raises:** `InputError` for files that are missing, damaged or of another schema.
    """
    tensors, card = load_arrays(path, SHIPPED, SCHEMA, REMEDY, part="spaces")
    try:
        return EdgeParameters({space: _known(space, each, tensors) for space, each in card["spaces"].items()}, card)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, SHIPPED, error, REMEDY) from None


def _known(space: str, stated: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Known:
    arrays = {name: tensors[f"{space}.{name}"] for name in ARRAYS}
    devices = tuple(map(str, stated["devices"]))
    parsed = SPACES[space]  # a space of another version is damage
    if arrays["coefficients"].shape != (len(devices) + IDEAL, 1 + len(arrays["center"])) or not parsed:
        raise ValueError(f"coefficients of {space} do not fit its devices")
    prior = Prior(devices, **arrays, least=float(stated["least"]), freedom=Freedom(**stated["freedom"]))
    adapted = {int(shots): float(width) for shots, width in stated["adapted_width"].items()}
    return Known(prior, {name: float(stated["measured_width"][name]) for name in devices}, adapted)
