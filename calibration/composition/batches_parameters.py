"""Fitted scalars of fixed batches on disk, stored like the kernel parameters: safetensors and a JSON card."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from calibration.composition.batches_links import Curve, curve_arrays, curves_from
from calibration.composition.batches_step import JOULE
from calibration.parameters import _check, _paths, _write
from hwspecs.errors import InputError

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
    from safetensors.numpy import save

    curves = {LINKS + name: values for name, values in curve_arrays(parameters.curves).items()}
    body = save({"scalars": np.array(list(parameters.scalars.values())), **curves})
    card = {
        **parameters.card,
        "schema": SCHEMA,
        "sha256": hashlib.sha256(body).hexdigest(),
        "scalars": list(parameters.scalars),
        "values": {name: float(np.exp(value)) for name, value in parameters.scalars.items()},
        "widths": {tier: list(width) for tier, width in parameters.widths.items()},
        "devices": list(parameters.devices),
    }
    tensors_path, card_path = _paths(path)
    try:
        _write(tensors_path, body)
        _write(card_path, (json.dumps(card, indent=1, sort_keys=True) + "\n").encode())
    except OSError as error:
        raise InputError(f"Cannot write '{path}': {error.strerror or error}.") from None


def load_steps(path: str | Path | None = None) -> StepParameters:
    """The scalars at PATH (.safetensors and .json beside each other), or the shipped ones.

    **Raises:** `InputError` for a file that is missing, damaged or of another schema, saying what to do.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    given = path if path is not None else Path(str(resources.files("calibration") / "fitted" / SHIPPED))
    tensors_path, card_path = _paths(given)
    try:
        body, text = tensors_path.read_bytes(), card_path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"Cannot read parameters '{error.filename or given}': {error.strerror}.") from None
    try:
        card = json.loads(text)
        _check(card, body, card_path, tensors_path)
        tensors = load(body)
        scalars = dict(zip(card["scalars"], map(float, tensors.pop("scalars")), strict=True))
        curves = curves_from({name.removeprefix(LINKS): values for name, values in tensors.items()})
        widths = {tier: (float(card["widths"][tier][0]), float(card["widths"][tier][1])) for tier in TIERS}
        return StepParameters(scalars, curves, widths, tuple(card["devices"]), card)
    except (ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise InputError(f"Parameters '{card_path}' are damaged ({error}); {REMEDY}.") from None
