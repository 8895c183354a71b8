"""The parameters of `jaxperf graphs` on disk: PATH for the compositions and intervals, PATH_kernels for the kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from calibration.composition.evaluate_graphs import VARIANTS
from calibration.composition.graphs import PRIORS
from calibration.composition.predict_graphs import GraphParameters, Width
from calibration.kernels.parameters import Parameters, load_parameters, save_parameters
from calibration.stored import save_arrays
from hwspecs.errors import InputError
from jaxperf.core.parameter_files import base_of, load_arrays
from jaxperf.models.composition import Composition

SCHEMA = 2
SHIPPED = "graphs"
REMEDY = "make them with python -m calibration.composition.refit_graphs"


def save_graphs(parameters: GraphParameters, path: str | Path) -> None:
    """Write both pairs of files. Raises `InputError` where that fails."""
    arrays = {
        f"{variant}/{name}": np.asarray(getattr(composition, name), np.float32)
        for variant, composition in parameters.compositions.items()
        for name in PRIORS[variant]
    }
    width = parameters.width
    described = {"rho": width.rho, "composition": width.composition, "kappa": dict(width.kappa)}
    save_arrays(path, arrays, {**parameters.card, "width": described}, SCHEMA)
    save_parameters(parameters.kernels, _kernels(path))


def load_graphs(path: str | Path | None = None, kernels: str | Path | None = None) -> GraphParameters:
    """The parameters at PATH, or the shipped ones; `kernels`: other fitted kernels, such as those of a calibration.

    Families that the kernels of PATH lack are those of the shipped kernels.
    **Raises:** `InputError` for a file that is missing, damaged or of another schema.
    """
    compositions, width, card = _load(path)
    if kernels is not None:
        return GraphParameters(compositions, load_parameters(kernels), width, card)
    own = load_parameters(_kernels(path) if path is not None else _shipped_kernels())
    rest = load_parameters()
    return GraphParameters(compositions, Parameters({**rest.families, **own.families}, own.card), width, card)


def load_compositions(path: str | Path | None = None) -> dict[str, Composition]:
    """The compositions at PATH alone, or the shipped ones, by variant. Raises `InputError` as `load_graphs` does."""
    return _load(path)[0]


def _load(path: str | Path | None) -> tuple[dict[str, Composition], Width, dict[str, Any]]:
    arrays, card = load_arrays(path, SHIPPED, SCHEMA, REMEDY)
    try:
        compositions = {
            variant: Composition(**{name: jnp.asarray(arrays[f"{variant}/{name}"]) for name in PRIORS[variant]})
            for variant in VARIANTS
        }
        found = card.pop("width")
        return compositions, Width(float(found["rho"]), float(found["composition"]), dict(found["kappa"])), card
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"The graph parameters lack {error}; {REMEDY}.") from None


def _kernels(path: str | Path) -> Path:
    return Path(base_of(path) + "_kernels")


def _shipped_kernels() -> Path:
    from importlib import resources

    return Path(str(resources.files("calibration") / "fitted" / (SHIPPED + "_kernels")))
