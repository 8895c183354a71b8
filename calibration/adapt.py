"""Adapt a fitted family to a device with a few of its rows: the heads of the new device's cells, in closed form.

The prior is empirical Bayes: how the cells of the devices that were measured differ from the software's common heads.
With no row it is the transfer prediction; with many, the rows decide (`calibration.ridge`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from calibration.datasets import data_hash
from calibration.datasets.schema import Read
from calibration.fit import FittedFamily, counts
from calibration.inputs import Prepared, prepare
from calibration.intervals import Spread, Width, adapted_widths
from calibration.levels import DEVICE_LEVELS
from calibration.model import BOUND, Inputs, KernelModel
from calibration.parameters import Parameters
from calibration.regimes import regimes
from calibration.ridge import shared_ridge
from jaxperf.core.numerics import as_float

FAR = 0.5 * BOUND  # median residual above which a cell gets a factor of its own [log 1]


def adapt(parameters: Parameters, reads: Sequence[Read], directories: Sequence[str] = ()) -> Parameters:
    """All families that the tables have rows of, adapted to them; a family without parameters is left out."""
    families, adapted = dict(parameters.families), {**parameters.card.get("adapted", {})}
    for read in reads:
        for table in read.tables:
            known = table.take(np.flatnonzero((table.device != "") & (table.flag == 0)))
            for name, at in regimes(known):
                if name in families and table.latency is not None and len(at):
                    rows = prepare(known.take(at), directories)
                    families[name] = adapt_family(families[name], rows)
                    cells = {str(cell) for cell in np.unique(rows.spelled["cell"].astype(str))}
                    adapted[name] = sorted(cells.union(adapted.get(name, ())))
    files = [{"file": Path(read.path).name, "sha256": data_hash(read.path), "rows": read.rows} for read in reads]
    card = {**parameters.card, "adapted": adapted, "adapted_to": [*parameters.card.get("adapted_to", ()), *files]}
    return Parameters(families, card)


def adapt_family(fitted: FittedFamily, data: Prepared) -> FittedFamily:
    """The family with heads for every cell of `data`; a cell it had is replaced."""
    good = data.usable & np.isfinite(data.table.measured) & (data.table.measured > 0)
    data = data.take(np.flatnonzero(good))
    if not len(data.table):
        return fitted
    names = fitted.names.extended(data.spelled)
    model = widened(fitted.model, counts(names))
    x = data.inputs(names, fitted.features)
    model = scaled(model, x, data)
    wanted = np.log(data.table.measured) - np.asarray(jax.vmap(model.law)(x))
    target = _raw(wanted)
    basis, common = np.asarray(jax.vmap(model.correction.basis)(x), np.float64), _common(model, x)
    covariance = device_covariance(fitted)
    cells, devices = np.asarray(x.levels["cell"]), np.asarray(x.levels["device"])
    heads, added = np.array(model.correction.heads["cell"]), np.asarray(model.correction.heads["device"])
    widths = dict(fitted.spread.cells)
    for device in np.unique(devices):
        rows = np.flatnonzero(devices == device)
        own, first, which = np.unique(cells[rows], return_index=True, return_inverse=True)
        start = common[rows] + added[device]
        known = device < len(fitted.names.known["device"])
        mean = start if known else float(model.correction.share) * start
        moved, left = shared_ridge(basis[rows], target[rows] - np.sum(basis[rows] * mean, axis=1), which, covariance)
        heads[own] = moved + (mean - start)[first]
        missed = _bounded(target[rows] + left) - wanted[rows]
        widths |= adapted_widths(missed, data.spelled["cell"][rows], _without(fitted.spread, data.take(rows)))
    model = eqx.tree_at(lambda tree: tree.correction.heads["cell"], model, as_float(heads))
    model = eqx.tree_at(lambda tree: (tree.correction.lowest, tree.correction.highest), model, _widened_range(model, x))
    spread = dataclasses.replace(fitted.spread, cells=widths)
    return dataclasses.replace(fitted, names=names, model=model, spread=spread)


def _without(spread: Spread, data: Prepared) -> dict[str, Width]:
    """The half-widths of the cells of some rows, had they not been measured."""
    pairs = set(zip(data.spelled["cell"].astype(str), data.spelled["format"].astype(str), strict=True))
    return {cell: spread.formats.get(form, spread.transfer) for cell, form in sorted(pairs)}


def scaled(model: KernelModel, x: Inputs, data: Prepared) -> KernelModel:
    """The law of each cell times one factor, where the law alone is so far off that a bounded correction cannot follow.

    Such a cell is of a kind of device the law was not written for; the factor is the median ratio of its rows.
    """
    residual = np.log(data.table.measured) - np.asarray(jax.vmap(model.law)(x))
    cells, factors = np.asarray(x.levels["cell"]), np.array(model.law.factors)
    for cell in np.unique(cells):
        median = float(np.median(residual[cells == cell]))
        if abs(median) > FAR:
            factors[cell] += median
    return eqx.tree_at(lambda tree: tree.law.factors, model, as_float(factors))


def device_covariance(fitted: FittedFamily) -> np.ndarray:
    """Covariance [H, H] of what devices and cells add to the common heads, shrunk towards its diagonal."""
    heads = fitted.model.correction.heads
    devices = {name: np.asarray(heads["device"])[at] for at, name in enumerate(fitted.names.known["device"])}
    cells = np.asarray(heads["cell"])
    added = [cells[at] + devices.get(name.split("/", 1)[0], 0.0) for at, name in enumerate(fitted.names.known["cell"])]
    if len(added) < 2:
        return np.eye(cells.shape[1])
    second = np.mean([np.outer(each, each) for each in added], axis=0)
    return 0.5 * second + 0.5 * np.diag(np.diag(second)) + 1e-4 * np.eye(len(second))


def widened(model: KernelModel, names: dict[str, int]) -> KernelModel:
    """The model with zero rows for names appended to its levels; the last row stays the unknown's."""

    def more(leaf: jnp.ndarray, level: str) -> jnp.ndarray:
        extra = names[level] + 1 - len(leaf)
        return jnp.concatenate([leaf, jnp.zeros((extra, *leaf.shape[1:]), leaf.dtype)]) if extra else leaf

    laws = [{level: more(leaf, level) for level, leaf in each.items()} for each in _levels_of_law(model)]
    model = eqx.tree_at(_levels_of_law, model, laws)
    model = eqx.tree_at(lambda tree: tree.law.factors, model, more(model.law.factors, "cell"))
    heads = {level: more(leaf, level) for level, leaf in model.correction.heads.items()}
    return eqx.tree_at(lambda tree: tree.correction.heads, model, heads)


def _levels_of_law(model: KernelModel) -> list[dict[str, jnp.ndarray]]:
    return [model.law.offsets, model.law.habit_offsets]


def _widened_range(model: KernelModel, x: Inputs) -> tuple[jnp.ndarray, jnp.ndarray]:
    """The range of the features, the adapted rows in it."""
    correction, seen = model.correction, x.features
    return jnp.minimum(correction.lowest, seen.min(axis=0)), jnp.maximum(correction.highest, seen.max(axis=0))


def _common(model: KernelModel, x: Inputs) -> np.ndarray:
    """Heads of each row without its device's [R, H]."""
    heads = model.correction.heads
    levels = [level for level in heads if level not in DEVICE_LEVELS]
    return np.asarray(model.correction.shared[None, :] + sum(heads[level][x.levels[level]] for level in levels))


def _raw(correction: np.ndarray) -> np.ndarray:
    """The argument of the bounded correction: inverse of B tanh(c / B)."""
    return BOUND * np.arctanh(np.clip(correction / BOUND, -0.99, 0.99))


def _bounded(raw: np.ndarray) -> np.ndarray:
    return BOUND * np.tanh(raw / BOUND)
