"""What rows of one device say of the residual of a fitted family there: a Gaussian process of the device's own.

It moves the family's prediction by its mean, and its standard deviation says how far each kernel lies from those rows.
Rows are near each other where the family's features are, and where its model says the same of them (`view`).
"""

from __future__ import annotations

import dataclasses
import functools
import zlib
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Column, as_text
from calibration.intervals import ratio_width
from calibration.kernels.beliefs import USUAL, Belief, belief
from calibration.kernels.blocks import in_blocks
from calibration.kernels.family import FittedFamily, Local
from calibration.kernels.fit import predicted_parts, sample_all
from calibration.kernels.gaussian_process import Covariance, Places, learned, prior
from calibration.kernels.held_out import shape_hash
from calibration.kernels.inputs import Prepared
from calibration.kernels.levels import NO_NAMES, Names
from calibration.kernels.model import LAW, LEAST_SCALE, Inputs, KernelModel
from calibration.kernels.neighbours import NEAREST, Neighbours
from calibration.kernels.priors import NAMED_BY_LIBRARY

# Names that make two rows of a device alike; see `_index`. A layer is the sizes that a model has, whatever is asked of
# it, and how its tokens are routed: what a library tunes, or fails to.
SAME = ("format", "framework", "kernel", "stack", "layer")
# Sizes that tell how much is asked of a layer.
ASKED = ("batch", "m", "rows", "tokens", "q_len", "prefix", "kv_len")
ASKED += ("prefill_q", "prefill_kv", "n_decode", "kv_decode")
LEARNED_ON = 256  # no more rows than these are learned on together: a step costs their cube
DRAWN = 8  # of more rows, how many sets of `NEAREST` are drawn from all
BESIDE = 56  # and how many are rows side by side
JUDGED = 2000  # rows that the width of intervals is taken from
VIEW = len(LAW) + 2  # what the model says of a row
TIME_SCALE, VIEW_SCALE = 2.0, 0.5  # usual spread of its time, and of shares of that and corrections [log 1]
FAR = 2.0  # a row farther from what the others say of it counts as one there [expected deviations]
FREEDOM = 3.0  # of many rows: degrees of freedom of the Student's t distribution that they scatter by


def moved(fitted: FittedFamily, spelled: Mapping[str, Column], device: str) -> np.ndarray:
    """Which rows of a device its `Local` speaks of [R]: of the cells that it has rows of.

    Where a library names its kernels, nobody knows the cell before the measurement: there also of cells never measured.
    """
    cells, here = np.asarray(spelled["cell"]).astype(str), np.asarray(spelled["device"]).astype(str) == device
    own = fitted.local[device].names.known["cell"]
    if fitted.family in NAMED_BY_LIBRARY:
        return here & ~np.isin(cells, np.setdiff1d(fitted.names.known["cell"], own))
    return here & np.isin(cells, own)


def predicted(local: Local, fitted: FittedFamily, data: Prepared) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and standard deviation of the residual of other rows of the device [R] [log 1], and which of them are far
    from its own (`Local.is_far`)."""
    places = placed(fitted, local.names, data)
    mean, deviation = local.process.predicted(places)
    return mean, deviation, local.is_far(places, deviation)


def stated(fitted: FittedFamily, data: Prepared) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of the predicted time [log s], and half-width of its 90 % interval [log 1], of every row [R]."""
    said = predicted_parts(fitted, data)
    seen = np.isin(np.asarray(data.spelled["cell"]).astype(str), fitted.names.known["cell"])
    log_time, width = said.log_time, fitted.spread.half_width(data.spelled, seen, said.excess)
    for device, local in fitted.local.items():
        rows = np.flatnonzero(moved(fitted, data.spelled, device))
        if len(rows):
            mean, deviation, _ = predicted(local, fitted, data.take(rows))
            log_time[rows] += mean
            width[rows] = local.width[1] * deviation
    return log_time, width


def learn(
    fitted: FittedFamily, data: Prepared, residual: np.ndarray, deviation: float, before: Local | None = None
) -> Local:
    """From rows of one device and their residuals [R]; `deviation`: what residuals are expected to be without them.

    Rows of `before` stay, but for those of the cells that `data` has.
    """
    names = (before.names if before else NO_NAMES).extended(data.spelled)
    places, stack = placed(fitted, names, data), SAME.index("stack")
    if before:
        old = np.flatnonzero(~np.isin(before.places.names[:, stack], places.names[:, stack]))
        places = jax.tree.map(lambda *parts: np.concatenate(parts), before.places[old], places)
        residual = np.r_[before.residual[old], residual]
    # Few rows, ten of a stack, do not tell how it scatters: of 200 rows of experts on Hopper medians rose by a point.
    few = len(residual) <= LEARNED_ON
    own = belief(fitted.family) if few else USUAL
    start = prior(places.features.shape[1], deviation**2, 0 if few else len(names.known["stack"]))
    start = dataclasses.replace(start, lengths=start.lengths - np.log(apart(fitted, own)))
    process = _robust(places, residual, start, own)
    # An interval counts all that was measured, also of neighbours: a row moved them towards itself.
    error, spread, _, shapes = _left_out(fitted, dataclasses.replace(process, residual=residual))
    return Local(names, places, process.residual, process.covariance, ratio_width(error / spread, shapes))


def _robust(places: Places, residual: np.ndarray, start: Covariance, own: Belief) -> Neighbours:
    """The process of some rows, where a residual far from what the other rows say of it counts as one nearer to that
    (Huber and Ronchetti 2009, section 7.8): a process of normal noise would follow each."""
    sets = learning_sets(start, places)
    many = len(sets) > 1
    process = _settled(Neighbours(start, places, residual), residual, own.settling, many)
    process = _learned(process, start, sets, own.surety)
    for _ in range(2):  # once more: the first time all may have been believed
        process = _settled(process, residual, max(own.settling, 1), many)
        process = _learned(process, start, sets, own.surety)
    return process


def _settled(process: Neighbours, residual: np.ndarray, times: int, many: bool) -> Neighbours:
    """With residuals nearer to what the other rows say of each (`_believed`), asked anew so many times."""
    each = np.arange(len(residual))
    for _ in range(times):
        error, spread = process.left_out(each, each)
        said = process.residual - error
        process = dataclasses.replace(process, residual=said + _believed(residual - said, spread, many))
    return process


def _believed(off: np.ndarray, spread: np.ndarray, many: bool) -> np.ndarray:
    """What counts of how far residuals are off what other rows say [R] [log 1]; `spread`: their expected deviation.

    Few rows are winsorized. Of many, which others can stand in for, one counts the less the farther it is off, by the
    weight of a Student's t distribution (Lange, Little and Taylor 1989): a library takes one of two ways by chance.
    """
    if not many:
        return np.clip(off, -FAR * spread, FAR * spread)
    return off * np.minimum((FREEDOM + 1.0) / (FREEDOM + (off / spread) ** 2), 1.0)


def _learned(process: Neighbours, start: Covariance, sets: Sequence[np.ndarray], surety: float) -> Neighbours:
    covariance = learned(start, process.places, process.residual, sets, surety)
    return dataclasses.replace(process, covariance=covariance)


def left_out(fitted: FittedFamily, device: str) -> np.ndarray:
    """Of the rows that a device was adapted to, measured over predicted [rows judged] [log 1], where each is predicted
    without the rows of its shape, and one that is `FAR` from the others counts as it does for them."""
    return _left_out(fitted, fitted.local[device].process)[0]


def _left_out(fitted: FittedFamily, process: Neighbours) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of at most `JUDGED` rows, each without those of its shape: error, its expected deviation, which row it is, number
    of the shape."""
    judged = sample_all(len(process.residual), JUDGED, 0)
    shapes = _shapes(fitted, process.places)
    return *process.left_out(judged, shapes), judged, shapes[judged]


def learning_sets(start: Covariance, places: Places) -> list[np.ndarray]:
    """Sets of rows that the hyper-parameters are learned on: all, where they are few; else rows drawn from all, which
    tell what lies far apart, and rows side by side, which predictions are made from."""
    rows = len(places.names)
    if rows <= LEARNED_ON:
        return [np.arange(rows)]
    order = np.random.default_rng(0).permutation(rows)
    drawn, centers = np.resize(order, (DRAWN, NEAREST)), np.resize(order[::-1], BESIDE)
    near, there = Neighbours(start, places, np.zeros(rows)).nearest(places[centers])
    return [*drawn, *(own[real] for own, real in zip(near, there, strict=True))]


def placed(fitted: FittedFamily, names: Names, data: Prepared) -> Places:
    """Where rows lie: features in standard deviations of those that the family was fitted to, and its view of them."""
    columns = [data.names.index(name) for name in fitted.features]
    correction = fitted.model.correction
    scale = np.maximum(np.asarray(correction.scale), LEAST_SCALE)
    features = (data.features[:, columns] - np.asarray(correction.center)) / scale
    coordinates = np.concatenate([features, views(fitted, data)], axis=1)
    return Places(coordinates.astype(jnp.result_type(float)), _index(names, data))


def apart(fitted: FittedFamily, own: Belief) -> Float[np.ndarray, " F"]:
    """How much each coordinate of `placed` counts beside others, before any row of a device is known [1]."""
    return np.array([own.apart.get(name, 1.0) for name in (*fitted.features, "time", *LAW, "correction")])


def views(fitted: FittedFamily, data: Prepared) -> Float[np.ndarray, "R V"]:
    """What the family's model says of every row; zero of a row without demands, which has no prediction anyway."""
    x = data.inputs(fitted.names, fitted.features)
    found = in_blocks(functools.partial(_views, fitted.model), x, len(data.table))
    return np.where(np.isfinite(found), found, 0.0)


@eqx.filter_jit
def _views(model: KernelModel, x: Inputs) -> Float[Array, "R V"]:
    return jax.vmap(lambda row: view(model, row))(x)


def view(model: KernelModel, x: Inputs) -> Float[Array, " V"]:
    """What a model says of one kernel: its time by the law, how much of it goes with the arithmetic, the memory time
    and the floor, and the whole correction, whatever share of that is used. Each over the spread it usually has."""
    parts = lambda law: [getattr(law, name) for name in LAW]  # noqa: E731
    log_time, shares = jax.value_and_grad(lambda at: eqx.tree_at(parts, model.law, at)(x))(parts(model.law))
    correction = model.correction.whole(x)
    return jnp.stack([log_time / TIME_SCALE, *(each / VIEW_SCALE for each in (*shares, correction))])


def kernel_of(stack: str) -> str:
    """Framework and kernel of a stack, without its version and the three parts of its format."""
    framework, _, *kernel = stack.split("/")[:-3]
    return "/".join([framework, *kernel])


def _index(names: Names, data: Prepared) -> np.ndarray:
    """Index of the names of every row at the levels `SAME` [R, L]; a kernel, in whatever version and format, has the
    index of the first stack that it runs in."""
    known, stacks = names.known["stack"], as_text(data.spelled["stack"])
    first = {kernel_of(name): place for place, name in reversed(list(enumerate(known)))}
    kernels = np.array([first.get(kernel_of(name), len(known)) for name in stacks.values.tolist()], np.int32)
    index = {**names.index(data.spelled), "kernel": kernels[stacks.codes]}
    index["layer"] = _layers(index["stack"], data.table)
    return np.stack([index[level] for level in SAME], axis=1)


def _layers(stacks: np.ndarray, table: KernelTable) -> np.ndarray:
    """A number for the stack and the layer of each row, the same in every table (31 bits of a hash)."""
    sizes = {name: column for name, column in table.shape.items() if name not in ASKED}
    if "distribution" in table.text:
        routing = as_text(table.text["distribution"])
        each = np.array([zlib.crc32(str(name).encode()) for name in routing.values.tolist()], float)
        sizes["distribution"] = each[routing.codes]
    mixed = shape_hash(dataclasses.replace(table, shape={**sizes, "stack": stacks}))
    return (mixed >> np.uint64(33)).astype(np.int32)


def _shapes(fitted: FittedFamily, places: Places) -> np.ndarray:
    """A number for the shape of each row, whatever its software and format: what is predicted is other shapes."""
    sizes = [place for place, name in enumerate(fitted.features) if name.startswith("log2 ")]
    return np.unique(places.features[:, sizes], axis=0, return_inverse=True)[1].reshape(-1)
