"""Fitted scalars of the training step on disk, stored like the kernel parameters: safetensors and a JSON card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.stored import save_arrays
from jaxperf.core.parameter_files import damaged, load_arrays

SCHEMA = 1
SHIPPED = "training"
REMEDY = "make them again with python -m calibration.training.refit"
TIERS = ("known", "unseen", "exploratory")


@dataclass(frozen=True)
class TrainingParameters:
    """`deviations`: of the levels of each scalar, by name [log or logit]; `assumed`: where the fields of
    `TrainingEfficiencies` started that had no measurement of their own; `widths[tier]`: half-width of the 90 %
    interval [log 1], "known" where the software ran on this generation and the device in this class of formats in the
    fit, "exploratory" for experts and formats below 16 bits, else "unseen"; `stacks`: software and generation,
    `measured`: device and class of the fitted rows; `card`: data with hashes, date, errors, command."""

    deviations: Mapping[str, float]
    assumed: Mapping[str, float]
    widths: Mapping[str, float]
    stacks: tuple[str, ...]
    measured: tuple[str, ...]
    card: Mapping[str, Any]

    @property
    def values(self) -> np.ndarray:
        """The deviations in the order of their names [T]."""
        return np.array(list(self.deviations.values()))


def save_training(parameters: TrainingParameters, path: str | Path) -> None:
    """Write PATH.safetensors and PATH.json, each whole or not at all. Raises `InputError` where that fails."""
    card = {
        **parameters.card,
        "deviations": list(parameters.deviations),
        "assumed": dict(parameters.assumed),
        "widths": dict(parameters.widths),
        "stacks": list(parameters.stacks),
        "measured": list(parameters.measured),
    }
    save_arrays(path, {"deviations": parameters.values}, card, SCHEMA)


def load_training(path: str | Path | None = None) -> TrainingParameters:
    """The scalars at PATH (.safetensors and .json beside each other), or the shipped ones.

    **Raises:** `InputError` for files that are missing, damaged or of another schema.
    """
    tensors, card = load_arrays(path, SHIPPED, SCHEMA, REMEDY)
    try:
        deviations = dict(zip(card["deviations"], map(float, tensors["deviations"]), strict=True))
        widths = {tier: float(card["widths"][tier]) for tier in TIERS}
        assumed = {field: float(value) for field, value in card["assumed"].items()}
        stacks, measured = (tuple(map(str, card[name])) for name in ("stacks", "measured"))
        return TrainingParameters(deviations, assumed, widths, stacks, measured, card)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, SHIPPED, error, REMEDY) from None
