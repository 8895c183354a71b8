"""Fitted parameters on disk: safetensors for the arrays, JSON for names, spread and card; never a pickle."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibration.fit import FittedFamily, Settings, counts, new_correction
from calibration.intervals import Spread
from calibration.levels import LEVELS, Names
from calibration.model import KernelModel, Law, law_offsets
from hwspecs.errors import InputError

SCHEMA = 1
SHIPPED = "kernels"


@dataclass(frozen=True)
class Parameters:
    """Fitted families by name, and the card: schema, date, versions, data with hashes, error per family and device."""

    families: Mapping[str, FittedFamily]
    card: Mapping[str, Any]


def save_parameters(parameters: Parameters, path: str | Path) -> None:
    """Write PATH.safetensors and PATH.json, each whole or not at all. Raises `InputError` where that fails."""
    from safetensors.numpy import save

    tensors = {
        f"{name}/{place}": np.asarray(leaf)
        for name, fitted in parameters.families.items()
        for place, leaf in _leaves(fitted.model).items()
    }
    body = save(tensors)
    described = {name: _described(fitted) for name, fitted in parameters.families.items()}
    card = {**parameters.card, "schema": SCHEMA, "sha256": hashlib.sha256(body).hexdigest(), "families": described}
    tensors_path, card_path = _paths(path)
    try:
        _write(tensors_path, body)
        _write(card_path, (json.dumps(card, indent=1, sort_keys=True) + "\n").encode())
    except OSError as error:
        raise InputError(f"Cannot write '{path}': {error.strerror or error}.") from None


def load_parameters(path: str | Path | None = None) -> Parameters:
    """The parameters at PATH (.safetensors and .json beside each other), or the shipped ones.

    **Raises:** `InputError` for a file that is missing, damaged or of another schema, saying what to do.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    given = path if path is not None else Path(str(resources.files("calibration") / "fitted" / SHIPPED))
    tensors_path, card_path = _paths(given)
    try:
        body, text = tensors_path.read_bytes(), card_path.read_text(encoding="utf-8")
    except OSError as error:
        missing = error.filename or given
        raise InputError(
            f"Cannot read parameters '{missing}': {error.strerror}; make them with jaxperf calibrate."
        ) from None
    try:
        card = json.loads(text)
        _check(card, body, card_path, tensors_path)
        tensors = load(body)
        families = {name: _restored(name, each, tensors) for name, each in card.pop("families").items()}
    except (ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise InputError(
            f"Parameters '{card_path}' are damaged ({error}); make them again with jaxperf calibrate."
        ) from None
    return Parameters(families, card)


def _check(card: Any, body: bytes, card_path: Path, tensors_path: Path) -> None:
    schema = card.get("schema")
    if schema != SCHEMA:
        newer = isinstance(schema, int) and schema > SCHEMA
        remedy = "a newer jaxperf reads them" if newer else "make them again with jaxperf calibrate"
        raise InputError(
            f"Parameters '{card_path}' have schema {schema}; this version reads schema {SCHEMA}: {remedy}."
        )
    if hashlib.sha256(body).hexdigest() != card["sha256"]:
        raise InputError(
            f"Parameters '{tensors_path}' do not have the checksum that '{card_path}' gives: "
            "a byte was changed, or the two files do not belong together. Make them again with jaxperf calibrate."
        )


def _paths(path: str | Path) -> tuple[Path, Path]:
    base = str(path).removesuffix(".safetensors").removesuffix(".json")
    return Path(base + ".safetensors"), Path(base + ".json")


def _write(path: Path, body: bytes) -> None:
    """Through a temporary file beside it, so that a full disk or Ctrl-C leaves the old one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # as any other new file; mkstemp keeps it to its owner
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _leaves(model: KernelModel) -> dict[str, np.ndarray]:
    """Arrays by their place in the model."""
    found, _ = jax.tree_util.tree_flatten_with_path(model)
    return {jax.tree_util.keystr(place): np.asarray(leaf) for place, leaf in found}


def _described(fitted: FittedFamily) -> dict[str, Any]:
    spread = fitted.spread
    return {
        "features": list(fitted.features),
        "widths": [len(bias) for _, bias in fitted.model.correction.layers],
        "names": {level: list(known) for level, known in fitted.names.known.items()},
        "cells": {name: list(width) for name, width in spread.cells.items()},
        "measured": list(spread.measured),
        "transfer": list(spread.transfer),
    }


def _restored(family: str, described: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> FittedFamily:
    names = Names({level: tuple(described["names"][level]) for level in LEVELS})
    settings = Settings(widths=tuple(described["widths"]))
    law = Law(
        **dict.fromkeys((n for n in Law.__dataclass_fields__ if n != "offsets"), jnp.zeros(())),
        offsets=law_offsets(counts(names)),
    )
    empty = KernelModel(law, new_correction(np.zeros((1, len(described["features"]))), counts(names), settings))
    places, tree = jax.tree_util.tree_flatten_with_path(empty)
    found = [jnp.asarray(tensors[f"{family}/{jax.tree_util.keystr(place)}"], leaf.dtype) for place, leaf in places]
    for (place, leaf), value in zip(places, found, strict=True):
        if leaf.shape != value.shape:
            raise ValueError(f"{family}{jax.tree_util.keystr(place)} has shape {value.shape}, not {leaf.shape}")
    pairs = lambda table: {name: (float(width[0]), float(width[1])) for name, width in table.items()}  # noqa: E731
    widths = pairs({"measured": described["measured"], "transfer": described["transfer"]})
    spread = Spread(pairs(described["cells"]), widths["measured"], widths["transfer"])
    model = jax.tree_util.tree_unflatten(tree, found)
    return FittedFamily(family, tuple(described["features"]), names, model, spread)
