"""Fitted parameters on disk: safetensors for the arrays, JSON for names, spread and card; never a pickle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibration.fit import FittedFamily, Settings, counts, new_correction, new_law
from calibration.intervals import Spread, Width
from calibration.levels import LEVELS, Names
from calibration.model import KernelModel
from calibration.priors import PRIORS
from calibration.stored import damaged, load_arrays, save_arrays

SCHEMA = 2
SHIPPED = "kernels"
REMEDY = "make them again with jaxperf calibrate"
# Types of the card's parts that commands read, and of what those hold.
CARD = {
    **dict.fromkeys(("data", "adapted_to"), (list, dict)),
    **dict.fromkeys(("devices", "excluded"), (list, str)),
    **{"adapted": (dict, list), "fits": (dict, dict)},
    **dict.fromkeys(("command", "created"), (str, str)),
}


@dataclass(frozen=True)
class Parameters:
    """Fitted families by name, and the card: schema, date, versions, data with hashes, error per family and device."""

    families: Mapping[str, FittedFamily]
    card: Mapping[str, Any]


def save_parameters(parameters: Parameters, path: str | Path) -> None:
    """Write PATH.safetensors and PATH.json, each whole or not at all. Raises `InputError` where that fails."""
    tensors = {
        f"{name}/{place}": np.asarray(leaf)
        for name, fitted in parameters.families.items()
        for place, leaf in _leaves(fitted.model).items()
    }
    described = {name: _described(fitted) for name, fitted in parameters.families.items()}
    save_arrays(path, tensors, {**parameters.card, "families": described}, SCHEMA)


def load_parameters(path: str | Path | None = None) -> Parameters:
    """The parameters at PATH (.safetensors and .json beside each other), or the shipped ones.

    **Raises:** `InputError` for a file that is missing, damaged or of another schema, saying what to do.
    """
    tensors, card = load_arrays(path, SHIPPED, SCHEMA, REMEDY)
    try:
        _check_card(card)
        families = {name: _restored(name, each, tensors) for name, each in card.pop("families").items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, SHIPPED, error, REMEDY) from None
    return Parameters(families, card)


def _check_card(card: Mapping[str, Any]) -> None:
    """Raises `TypeError` naming the part of the card that is not of its type in `CARD`."""
    for name, (kind, inner) in CARD.items():
        part = card.get(name, kind())
        held = part.values() if isinstance(part, dict) else part
        if not isinstance(part, kind) or not all(isinstance(each, inner) for each in held):
            raise TypeError(f"'{name}' is {str(part)[:40]}")


def _leaves(model: KernelModel) -> dict[str, np.ndarray]:
    """Arrays by their place in the model."""
    found, _ = jax.tree_util.tree_flatten_with_path(model)
    return {jax.tree_util.keystr(place): np.asarray(leaf) for place, leaf in found}


def _described(fitted: FittedFamily) -> dict[str, Any]:
    spread = fitted.spread
    return {
        "features": list(fitted.features),
        "habits": fitted.model.law.habits.shape[1],
        "widths": [len(bias) for _, bias in fitted.model.correction.layers],
        "names": {level: list(known) for level, known in fitted.names.known.items()},
        "cells": {name: list(width) for name, width in spread.cells.items()},
        "measured": list(spread.measured),
        "formats": {name: list(width) for name, width in spread.formats.items()},
        "transfer": list(spread.transfer),
    }


def _restored(family: str, described: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> FittedFamily:
    names = Names({level: tuple(described["names"][level]) for level in LEVELS})
    settings = Settings(widths=tuple(described["widths"]))
    inputs = np.zeros((1, len(described["features"])))

    def fresh() -> KernelModel:
        law = new_law(dict.fromkeys(PRIORS, 0.0), counts(names), described["habits"])
        return KernelModel(law, new_correction(inputs, counts(names), settings))

    places, tree = jax.tree_util.tree_flatten_with_path(jax.eval_shape(fresh))  # its shapes only: nothing is computed
    found = [jnp.asarray(tensors[f"{family}/{jax.tree_util.keystr(place)}"], leaf.dtype) for place, leaf in places]
    for (place, leaf), value in zip(places, found, strict=True):
        if leaf.shape != value.shape:
            raise ValueError(f"{family}{jax.tree_util.keystr(place)} has shape {value.shape}, not {leaf.shape}")
    widths = _widths({name: described[name] for name in ("measured", "transfer")})
    formats = _widths(described.get("formats", {}))  # none in files of jaxperf before it had widths by format
    spread = Spread(_widths(described["cells"]), widths["measured"], formats, widths["transfer"])
    model = jax.tree_util.tree_unflatten(tree, found)
    return FittedFamily(family, tuple(described["features"]), names, model, spread)


def _widths(table: Mapping[str, Sequence[float]]) -> dict[str, Width]:
    """Half-widths by name. Raises `ValueError` or `TypeError` for what is none."""
    found = {name: (float(half), float(most)) for name, (half, most) in table.items()}
    for name, width in found.items():
        if not all(0.0 <= each < math.inf for each in width):
            raise ValueError(f"the half-widths of '{name}' are {width}")
    return found
