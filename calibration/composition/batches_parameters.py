"""Fitted scalars of fixed batches on disk, stored like the kernel parameters: safetensors and a JSON card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.composition.batches_links import Curve, curve_arrays, curves_from
from calibration.composition.batches_step import JOULE
from calibration.stored import save_arrays
from jaxperf.core.parameter_files import damaged, load_arrays

SCHEMA = 1
SHIPPED = "batches"
LINKS = "links/"
REMEDY = "make them again with python -m calibration.composition.batches_refit"
PHASES = ("prefill", "decode_step")
TIERS = ("measured", "transfer", "unseen")


@dataclass(frozen=True)
class StepParameters:
    """What a prediction of fixed batches needs besides the kernel parameters.

    `scalars`: logarithms by name; `curves`: measured all-reduces; `widths[tier]`: half-width of the 90 % interval of
    (prefill, decode step) [log 1], the tier "measured" where the device has labels, "transfer" where its
    generation has, else "unseen"; `devices`: those with labels; `card`: data with hashes, date, errors, command.
    """

    scalars: Mapping[str, float]
    curves: tuple[Curve, ...]
    widths: Mapping[str, tuple[float, float]]
    devices: tuple[str, ...]
    card: Mapping[str, Any]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of device whose energy was fitted, see `batches_points.kind_of`."""
        return tuple(name.removeprefix(JOULE) for name in self.scalars if name.startswith(JOULE))


def save_steps(parameters: StepParameters, path: str | Path) -> None:
    """Write PATH.safetensors and PATH.json, each whole or not at all. Raises `InputError` where that fails."""
    curves = {LINKS + name: values for name, values in curve_arrays(parameters.curves).items()}
    card = {
        **parameters.card,
        "scalars": list(parameters.scalars),
        "values": {name: float(np.exp(value)) for name, value in parameters.scalars.items()},
        "widths": {tier: list(width) for tier, width in parameters.widths.items()},
        "devices": list(parameters.devices),
    }
    save_arrays(path, {"scalars": np.array(list(parameters.scalars.values())), **curves}, card, SCHEMA)


def load_steps(path: str | Path | None = None) -> StepParameters:
    """The scalars at PATH (.safetensors and .json beside each other), or the shipped ones.

    **Raises:** `InputError` for a file that is missing, damaged or of another schema, saying what to do.
    """
    tensors, card = load_arrays(path, SHIPPED, SCHEMA, REMEDY)
    try:
        scalars = dict(zip(card["scalars"], map(float, tensors.pop("scalars")), strict=True))
        curves = curves_from({name.removeprefix(LINKS): values for name, values in tensors.items()})
        widths = {tier: (float(card["widths"][tier][0]), float(card["widths"][tier][1])) for tier in TIERS}
        return StepParameters(scalars, curves, widths, tuple(card["devices"]), card)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, SHIPPED, error, REMEDY) from None
