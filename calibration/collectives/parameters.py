"""Fitted collectives on disk: the curves as safetensors, names, widths and the card as JSON; never a pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.collectives.fit import Curves
from calibration.collectives.learn import Learned
from calibration.collectives.points import Network
from calibration.collectives.terms import ALL
from calibration.intervals import UNKNOWN
from calibration.stored import save_arrays
from jaxperf.core.parameter_files import damaged, load_arrays

SCHEMA = 4
SHIPPED = "collectives"
REMEDY = "make them again with python -m calibration.collectives.refit"
# How much is known of a row: its cell and setting; its device in another setting or with another version of the
# software; a few of its rows, which the parameters were adapted to; other devices only; nothing but the law.
MEASURED, DEVICE, ADAPTED, TRANSFER, LAW = TIERS = ("measured", "device", "adapted", "transfer", "law")
EVERY = ""  # the width of kinds that have none of their own
BELOW, ABOVE = "below", "above"  # in the place of a kind: the two ends of the interval, where they differ


@dataclass(frozen=True)
class CollectiveParameters:
    """`learned`: curves, networks, launches; `widths[tier][kind]`: half-width of the 90 % interval [log 1], kind "" for
    any other; `adapted`: cells that the parameters were adapted to; `card`: data with hashes, date, errors, command."""

    learned: Learned
    widths: Mapping[str, Mapping[str, float]]
    adapted: tuple[str, ...]
    card: Mapping[str, Any]

    def half_width(self, tier: str, kind: str) -> float:
        """Of the 90 % interval [log 1]."""
        known = self.widths.get(tier, {})
        return known.get(kind, known.get(EVERY, UNKNOWN[1]))

    def ends(self, tier: str, kind: str) -> tuple[float, float]:
        """(below, above) a predicted time, of the 90 % interval [log 1]: the half-width, but where they were taken
        apart."""
        known, half = self.widths.get(tier, {}), self.half_width(tier, kind)
        return known.get(BELOW, half), known.get(ABOVE, half)


def save_collectives(parameters: CollectiveParameters, path: str | Path) -> None:
    """Write PATH.safetensors and PATH.json, each whole or not at all. Raises `InputError` where that fails."""
    learned, curves = parameters.learned, parameters.learned.curves
    arrays = {name: np.asarray(values, np.float32) for name, values in curves.values.items()}
    names = {name: list(known) for name, known in curves.known.items()}
    network = {"port_pairs": dict(learned.network.port_pairs), "static_routes": list(learned.network.static_routes)}
    hosts = {"launches": dict(learned.launches), "adapted": list(parameters.adapted)}
    told = {"names": names, "widths": parameters.widths, **network, **hosts}
    save_arrays(path, arrays, {**parameters.card, **told}, SCHEMA)


def load_collectives(path: str | Path | None = None) -> CollectiveParameters:
    """The parameters at PATH (.safetensors and .json beside each other), or the shipped ones.

    **Raises:** `InputError` for a file that is missing, damaged or of another schema, saying what to do.
    """
    arrays, card = load_arrays(path, SHIPPED, SCHEMA, REMEDY)
    try:
        known = {term.name: tuple(card["names"][term.name]) for term in ALL}
        values = {term.name: arrays[term.name].astype(float) for term in ALL}
        for term in ALL:
            if values[term.name].shape != (len(known[term.name]) + 1, term.knots):
                raise ValueError(f"{term.name} has shape {values[term.name].shape}")
        widths = {tier: {kind: float(width) for kind, width in card["widths"][tier].items()} for tier in TIERS}
        static, adapted = (tuple(map(str, card[name])) for name in ("static_routes", "adapted"))
        pairs, launches = (
            {str(name): float(value) for name, value in card[name_of].items()} for name_of in ("port_pairs", "launches")
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, SHIPPED, error, REMEDY) from None
    own = ("names", "widths", "port_pairs", "static_routes", "launches", "adapted")
    rest = {name: value for name, value in card.items() if name not in own}
    return CollectiveParameters(Learned(Curves(known, values), Network(pairs, static), launches), widths, adapted, rest)
