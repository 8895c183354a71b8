"""Fitted scalars of engines and clients on disk, stored like the kernel parameters: safetensors and a JSON card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.serving.scalars import deviation_of
from calibration.stored import save_arrays
from jaxperf.core.parameter_files import damaged, load_arrays

SCHEMA = 1
SHIPPED = "serving"
REMEDY = "make them again with python -m calibration.serving"
TIERS = ("known", "transfer", "unseen")
PARTS = ("dense", "experts", "disagg", "static")
WIDTHS = ("ttft", "tpot", "e2e")


@dataclass(frozen=True)
class ServingParameters:
    """`deviations`: of the levels of each scalar, by name [log or logit]; `widths[tier][part]`: half-widths of the 90 %
    interval by `WIDTHS` [log 1], "known" where this engine served the architecture in the fit, "transfer" where it
    served others, else, and on a device that served nothing, "unseen"; `kin`: engines with the architectures they
    served; `card`: data with hashes, date, errors, command."""

    deviations: Mapping[str, float]
    widths: Mapping[str, Mapping[str, tuple[float, ...]]]
    kin: tuple[str, ...]
    card: Mapping[str, Any]

    @property
    def values(self) -> np.ndarray:
        """The deviations in the order of their names [T]."""
        return np.array(list(self.deviations.values()))

    @property
    def engines(self) -> frozenset[str]:
        """Those that the fit saw."""
        return frozenset(name.split()[0] for name in self.kin)

    @property
    def devices(self) -> frozenset[str]:
        """Those that the fit saw."""
        levels = (name.split("/", 2) for name in self.deviations)
        return frozenset(value for _, level, value in levels if level == "device")


def save_serving(parameters: ServingParameters, path: str | Path) -> None:
    """Write PATH.safetensors and PATH.json, each whole or not at all. Raises `InputError` where that fails."""
    card = {
        **parameters.card,
        "deviations": list(parameters.deviations),
        "widths": {
            tier: {part: list(each) for part, each in parts.items()} for tier, parts in parameters.widths.items()
        },
        "kin": list(parameters.kin),
    }
    save_arrays(path, {"deviations": parameters.values}, card, SCHEMA)


def load_serving(path: str | Path | None = None) -> ServingParameters:
    """The scalars at PATH (.safetensors and .json beside each other), or the shipped ones.

    **Raises:** `InputError` for files that are missing, damaged or of another schema.
    """
    tensors, card = load_arrays(path, SHIPPED, SCHEMA, REMEDY)
    try:
        deviations = dict(zip(card["deviations"], map(float, tensors["deviations"]), strict=True))
        for name in deviations:
            deviation_of(name)
        widths = {
            tier: {part: tuple(float(width) for width in card["widths"][tier][part]) for part in PARTS}
            for tier in TIERS
        }
        if any(len(each) != len(WIDTHS) for parts in widths.values() for each in parts.values()):
            raise ValueError(f"widths: each needs {len(WIDTHS)} numbers")
        return ServingParameters(deviations, widths, tuple(map(str, card["kin"])), card)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, SHIPPED, error, REMEDY) from None
