"""Fitted parameters on disk: safetensors for the arrays, JSON for names, spread and card; never a pickle."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibration.intervals import Spread, Width
from calibration.kernels.family import FittedFamily, Local
from calibration.kernels.fit import Settings, counts, new_correction, new_law
from calibration.kernels.gaussian_process import Places, prior
from calibration.kernels.levels import LEVELS, OPTIONAL, Names
from calibration.kernels.local import SAME, VIEW
from calibration.kernels.model import KernelModel
from calibration.kernels.point import LEAST
from calibration.kernels.priors import PRIORS
from calibration.stored import save_arrays
from hwspecs.errors import InputError
from jaxperf.core.parameter_files import damaged, load_arrays, paths

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


# Versions of the law of a family, where it is not the first: what its demands, blocks and habits count.
LAWS: Mapping[str, int] = MappingProxyType(
    {"mla_prefill": 7, "attention_prefill": 8, "attention_decode": 5, "embedding": 2}
    | dict.fromkeys(("gemm", "bmm_matrix"), 8)  # batches are read from single products until some are measured
    | dict.fromkeys(("attention_mixed", "mla_decode", "gemm_vector", "bmm", "convolution"), 3)
    | dict.fromkeys(("norm", "softmax", "elementwise", "quantize", "rope"), 3)
    | dict.fromkeys(("moe", "mla_pre", "mla_post"), 4)
)


class OtherLaw(Exception):
    """A family was fitted by another version of its law (`LAWS`)."""


class OlderAdaptation(Exception):
    """What was learned of a device was stored before rows had a view of the law (`calibration.kernels.local`)."""


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
        for place, leaf in _arrays(fitted).items()
    }
    described = {name: _described(fitted) for name, fitted in parameters.families.items()}
    save_arrays(path, tensors, {**parameters.card, "families": described}, SCHEMA)


def load_parameters(path: str | Path | None = None, refitted: Collection[str] = ()) -> Parameters:
    """The parameters at PATH (.safetensors and .json beside each other), or the shipped ones; without those of the
    `refitted` families that are of another version of their law.

    **Raises:** `InputError` for a file that is missing, damaged, of another kind or schema, saying what to do.
    """
    tensors, card = load_arrays(path, SHIPPED, SCHEMA, REMEDY, part="families")
    try:
        _check_card(card)
        families = {
            name: _restored(name, each, tensors)
            for name, each in card.pop("families").items()
            if name not in refitted or _of_this_law(name, each.get("fitted", each))
        }
    except OlderAdaptation as older:
        raise InputError(
            f"Parameters '{paths(path or SHIPPED)[1]}' were adapted to {older} by an earlier jaxperf, whose adaptation "
            "saw less of a row; adapt those that they were made from again with jaxperf calibrate --adapt."
        ) from None
    except OtherLaw as other:
        raise InputError(
            f"Parameters '{paths(path or SHIPPED)[1]}' have {other} as another jaxperf counts what such a kernel asks "
            f"of a device: {REMEDY}."
        ) from None
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


def _arrays(fitted: FittedFamily) -> dict[str, np.ndarray]:
    """All arrays of a family by their places."""
    found = _leaves(fitted.model)
    for device, local in fitted.local.items():
        parts = {"covariance": local.covariance, "places": local.places, "residual": local.residual}
        found |= {
            f"{device}/{name}{place}": leaf for name, part in parts.items() for place, leaf in _leaves(part).items()
        }
    return found


def _leaves(tree: Any) -> dict[str, np.ndarray]:
    """Arrays by their place in a tree."""
    found, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(place): np.asarray(leaf) for place, leaf in found}


def _described(fitted: FittedFamily) -> dict[str, Any]:
    """What is no array of a family; that of one that was adapted contains the family's own."""
    local = {device: {"names": _listed(each.names), "width": list(each.width)} for device, each in fitted.local.items()}
    return {"fitted": _described_fit(fitted), "local": local} if local else _described_fit(fitted)


def _described_fit(fitted: FittedFamily) -> dict[str, Any]:
    spread = fitted.spread
    return {
        "law": LAWS.get(fitted.family, 1),
        "features": list(fitted.features),
        "habits": fitted.model.law.habits.shape[1],
        "widths": [len(bias) for _, bias in fitted.model.correction.layers],
        "names": _listed(fitted.names),
        "cells": {name: list(width) for name, width in spread.cells.items()},
        "measured": list(spread.measured),
        "formats": {name: list(width) for name, width in spread.formats.items()},
        "transfer": list(spread.transfer),
    }


def _listed(names: Names) -> dict[str, list[str]]:
    return {level: list(known) for level, known in names.known.items()}


def _named(described: Mapping[str, Sequence[str]]) -> Names:
    return Names(
        {level: tuple(described.get(level, ()) if level in OPTIONAL else described[level]) for level in LEVELS}
    )


def _restored(family: str, described: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> FittedFamily:
    if "local" not in described:
        return _restored_fit(family, described, tensors)
    fitted = _restored_fit(family, described["fitted"], tensors)
    local = {
        device: _restored_local(f"{family}/{device}", each, len(fitted.features) + VIEW, tensors)
        for device, each in described["local"].items()
    }
    return dataclasses.replace(fitted, local=local)


def _restored_local(
    place: str, described: Mapping[str, Any], features: int, tensors: Mapping[str, np.ndarray]
) -> Local:
    """Raises as `_stored` does, and `OlderAdaptation`."""
    rows, number = len(tensors[f"{place}/residual"]), jnp.result_type(float)
    residual = _stored(f"{place}/residual", (rows,), tensors)
    if tensors[f"{place}/places.features"].shape == (rows, features - VIEW):
        raise OlderAdaptation(place.rpartition("/")[2])
    tensors = _with_layers(place, tensors)
    like = Places(np.zeros((rows, features), number), np.zeros((rows, len(SAME)), np.int32))
    places = _filled(f"{place}/places", like, tensors)
    stacks = len(tensors[f"{place}/covariance.layers"])
    covariance = _filled(f"{place}/covariance", prior(features, 1.0, stacks), tensors)
    width = _widths({"adapted": described["width"]})["adapted"]
    return Local(_named(described["names"]), places, residual, covariance, width)


def _with_layers(place: str, tensors: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Files of jaxperf before rows knew their layer: each is one of its own, layers do not differ, stacks are alike. Of
    those before rows scattered by their features: they do not."""
    if f"{place}/covariance.slope" not in tensors:
        many = len(tensors.get(f"{place}/covariance.layers", ()))
        features = len(tensors[f"{place}/covariance.lengths"])
        tensors = {**tensors, f"{place}/covariance.slope": np.zeros(features if many else 0)}
    if f"{place}/covariance.layers" in tensors:
        return tensors
    alone, none = -1 - np.arange(len(tensors[f"{place}/residual"])), prior(1, 1.0)
    found = {f"{place}/places.names": np.c_[tensors[f"{place}/places.names"], alone]}
    found |= {f"{place}/covariance.{name}": np.asarray(getattr(none, name)) for name in ("layers", "scatter")}
    for name in ("constant", "smooth"):
        found[f"{place}/covariance.{name}"] = np.r_[tensors[f"{place}/covariance.{name}"], math.log(LEAST)]
    return {**tensors, **found}


def _of_this_law(family: str, described: Mapping[str, Any]) -> bool:
    return bool(described.get("law", 1) == LAWS.get(family, 1))


def _restored_fit(family: str, described: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> FittedFamily:
    if not _of_this_law(family, described):
        raise OtherLaw(family)
    names = _named(described["names"])
    settings = Settings(widths=tuple(described["widths"]))
    inputs = np.zeros((1, len(described["features"])))

    def fresh() -> KernelModel:
        law = new_law(dict.fromkeys(PRIORS, 0.0), counts(names), described["habits"])
        return KernelModel(law, new_correction(inputs, counts(names), settings))

    # Files of jaxperf before its law had a throttle: the voltage stays; before it had a host: that takes no time;
    # before it told memories apart: they are alike; before DRAM and L2 overlapped: their times add up; before pipelines
    # beside the matrix units: those take no time; before hosts started a kernel late: they start it at once.
    nothing = math.log(LEAST)
    missing = {"throttle": 1.0, "host": nothing, "special": nothing, "on_chip_sharpness": 0.0}
    missing |= {"gddr": 0.0, "inline_ecc": 0.0, "ahead": nothing}
    tensors = {f"{family}/.law.{name}": np.array(value) for name, value in missing.items()} | dict(tensors)
    model = _filled(f"{family}/", jax.eval_shape(fresh), tensors)  # its shapes only: nothing is computed
    widths = _widths({name: described[name] for name in ("measured", "transfer")})
    formats = _widths(described.get("formats", {}))  # none in files of jaxperf before it had widths by format
    spread = Spread(_widths(described["cells"]), widths["measured"], formats, widths["transfer"])
    return FittedFamily(family, tuple(described["features"]), names, model, spread)


def _filled(start: str, tree: Any, tensors: Mapping[str, np.ndarray]) -> Any:
    """A tree of the same shapes, with the arrays stored at its places. Raises as `_stored` does."""
    places, structure = jax.tree_util.tree_flatten_with_path(tree)
    named = [(f"{start}{jax.tree_util.keystr(place)}", leaf) for place, leaf in places]
    # NumPy converts them, and they are put on the device as they are: `jnp.asarray` compiles either for every shape.
    found = [jax.device_put(np.asarray(_stored(name, leaf.shape, tensors), leaf.dtype)) for name, leaf in named]
    return jax.tree_util.tree_unflatten(structure, found)


def _stored(name: str, shape: tuple[int, ...], tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    """An array by its place. Raises `KeyError` where it is missing, `ValueError` for another shape or no numbers."""
    value = tensors[name]
    if value.shape != shape:
        raise ValueError(f"{name} has shape {value.shape}, not {shape}")
    if not np.isfinite(value).all():
        raise ValueError(f"{name} holds values that are no finite numbers")
    return value


def _widths(table: Mapping[str, Sequence[float]]) -> dict[str, Width]:
    """Half-widths by name. Raises `ValueError` or `TypeError` for what is none."""
    found = {name: (float(half), float(most)) for name, (half, most) in table.items()}
    for name, width in found.items():
        if not all(0.0 <= each < math.inf for each in width):
            raise ValueError(f"the half-widths of '{name}' are {width}")
    return found
