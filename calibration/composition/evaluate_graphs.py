"""Errors of whole iterations with each device held out in turn, from kernels and from compositions that never saw it.

Three splits: "left out": no row of the device, neither kernels nor iterations; "ten operations": its kernels adapted to
ten of its operations, none of an iteration; "kernels measured": all its kernels, no iteration of it. Iterations over
several devices are predicted in the first alone, and nothing is fitted to any of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import hwspecs
from calibration.composition.graph_answers import Prediction, Width, predict_able
from calibration.composition.graphs import Batch, distinct_ops, fit_composition, samples_of
from calibration.composition.kernel_times import kernel_times
from calibration.composition.parallel import ONE_DEVICE
from calibration.composition.parallel_predict import predict_parallel
from calibration.composition.rows import PEERS, Row
from calibration.composition.ten_operations import ten_operations
from calibration.datasets.schema import Read
from calibration.kernels.adapt import adapt
from calibration.kernels.parameters import Parameters
from jaxperf.models.composition import Composition
from jaxperf.models.graph_steps import Laid

LEFT_OUT, TEN, MEASURED = "left out", "ten operations", "kernels measured"
SPLITS = (LEFT_OUT, TEN, MEASURED)
VARIANTS = ("plain", "fusion")
# The tier whose interval a split gives.
TIER_OF = {LEFT_OUT: "transfer", TEN: "adapted", MEASURED: "measured"}
QUANTILE = 0.9
LONGEST = 2048  # steps of a graph that compositions are fitted on
Kernels = Callable[[str], Parameters]
# Rows that are predicted and reported but teach nothing: the P4's labels are of a throttled device (its whole
# iterations are up to twice the sum of its isolated kernels).
SUSPECT_DEVICES = frozenset(("p4",))


@dataclass(frozen=True)
class Result:
    """One iteration predicted in a split."""

    split: str
    row: Row
    prediction: Prediction

    @property
    def residual(self) -> float:
        """log(predicted / measured)."""
        return float(np.log(self.prediction.time / self.row.label))


def batches_of(rows: Sequence[Row], laid: Mapping[tuple, Laid], kernels: Parameters) -> dict[str, Batch | None]:
    """The trusted rows of every variant with the times of their kernels; graphs of more than `LONGEST` steps are left
    out for the time that they take."""
    rows = [row for row in rows if trusted(row) and len(laid[row.configuration].steps.kernel) <= LONGEST]
    ops = distinct_ops([laid[row.configuration] for row in rows])
    devices = sorted({row.device for row in rows})
    samples = samples_of(rows, laid, kernel_times(ops, devices, kernels), ops, devices)
    groups = {variant: [sample for sample in samples if sample.row.variant == variant] for variant in VARIANTS}
    return {variant: Batch(group) if group else None for variant, group in groups.items()}


def fit_compositions(batches: Mapping[str, Batch | None], without: str = "") -> dict[str, Composition]:
    """The composition of every variant, from the iterations of all devices but one."""
    return {variant: fit_composition(batch, variant, without) for variant, batch in batches.items()}


def held_out(
    rows: Sequence[Row],
    laid: Mapping[tuple, Laid],
    measured: Parameters,
    without: Kernels,
    reads: Sequence[Read],
    progress: Callable[[str], None] = lambda _: None,
) -> list[Result]:
    """Every row in every split.

    **Arguments:** `measured`: kernels fitted on all devices; `without`: those fitted without one; `reads`: measured
    operations, for the ten.
    """
    found = []
    known = batches_of(rows, laid, measured)
    for device in sorted({row.device for row in rows}):
        own = [row for row in rows if row.device == device and row.layout == ONE_DEVICE]
        unseen = without(device)
        compositions = fit_compositions(batches_of(rows, laid, unseen), device)
        several = [row for row in rows if row.device == device and row.layout != ONE_DEVICE]
        answered = predict_parallel(several, compositions, unseen)
        found += [Result(LEFT_OUT, row, answer) for row, answer, _ in answered if answer is not None]
        few = ten_operations(reads, device, own, laid, unseen)
        kernels = {LEFT_OUT: unseen, MEASURED: measured} | ({TEN: adapt(unseen, [few])} if few is not None else {})
        for split, parameters in kernels.items():
            used = fit_compositions(known, device) if split == MEASURED else compositions
            answers = predict_able(own, laid, used, parameters)
            found += [Result(split, row, answer) for row, answer in zip(own, answers, strict=True)]
        progress(f"iterations without {device}")
    return found


def width_of(results: Sequence[Result], rho: float) -> Width:
    """The interval's parameters from the residuals of held-out devices.

    The spread of the composition is the median deviation of a device's residuals from their median where its kernels
    are measured; kappa the quantile of |residual| / sigma, all devices weighing alike.
    """
    inner = [result for result in results if result.split == MEASURED]
    left = []
    for device in {result.row.device for result in inner}:
        own = np.array([result.residual for result in inner if result.row.device == device])
        left += list(np.abs(own - np.median(own)))
    spread = Width(rho, max(1.4826 * float(np.median(left)) if left else 0.05, 0.01), {})
    kappa = {}
    for split, tier in TIER_OF.items():
        own = [result for result in results if result.split == split]
        if own:
            kappa[tier] = _quantile(own, spread)
    return dataclasses.replace(spread, kappa=kappa)


def _quantile(results: Sequence[Result], width: Width) -> float:
    scores = np.array([abs(result.residual) / result.prediction.sigma(width) for result in results])
    devices = [result.row.device for result in results]
    weight = np.array([1.0 / devices.count(device) for device in devices])
    order = np.argsort(scores)
    reached = np.cumsum(weight[order]) / weight.sum()
    # As in conformal prediction with n exchangeable scores, here n devices: a little more than the quantile itself.
    level = min(QUANTILE * (1.0 + 1.0 / len(set(devices))), 1.0)
    return float(scores[order][min(int(np.searchsorted(reached, level - 1e-9)), len(scores) - 1)])


def nested_half_widths(results: Sequence[Result], rho: float) -> list[float]:
    """Half-width of every result's interval, from the trusted rows of the other devices only."""
    widths = {
        device: width_of([result for result in results if result.row.device != device and trusted(result.row)], rho)
        for device in {result.row.device for result in results}
    }
    halves = []
    for result in results:
        width = widths[result.row.device]
        kappa = width.kappa.get(TIER_OF[result.split], max(width.kappa.values(), default=3.0))
        halves.append(kappa * result.prediction.sigma(width))
    return halves


def trusted(row: Row) -> bool:
    """Whether a row's label is of one device and believed, so that parameters are fitted and intervals are judged on
    it."""
    return row.device not in SUSPECT_DEVICES and row.layout == ONE_DEVICE


def gated(row: Row) -> bool:
    """Whether a row counts in the pooled error: labels of training on AMD devices are suspect too."""
    return trusted(row) and not (row.mode == "train" and hwspecs.load(row.device).vendor.lower() == "amd")


def cells(results: Sequence[Result], rho: float) -> list[dict[str, object]]:
    """Rows of the error table: mean absolute percentage error of every split, device and mode, the peers' beside, and
    the coverage and the median half-width of the 90 % interval [%]. "pooled" is over the gated rows."""
    halves = nested_half_widths(results, rho)
    groups: dict[tuple[str, str, str], list[tuple[Result, float]]] = {}
    for result, half in zip(results, halves, strict=True):
        for mode, device in _groups(result.row):
            groups.setdefault((result.split, mode, device), []).append((result, half))
    return [_cell(split, mode, device, members) for (split, mode, device), members in sorted(groups.items())]


def _groups(row: Row) -> list[tuple[str, str]]:
    """Mode and device of the rows of the error table that a row counts in."""
    mode = row.mode if row.variant == "plain" else row.variant
    if row.layout != ONE_DEVICE:
        return [(mode, row.device), ("several devices", "pooled")]
    return [(mode, row.device), *([(mode, "pooled")] if gated(row) else [])]


def _cell(split: str, mode: str, device: str, members: list[tuple[Result, float]]) -> dict[str, object]:
    label = np.array([result.row.label for result, _ in members])
    time = np.array([result.prediction.time for result, _ in members])
    roofline = np.array([result.prediction.roofline for result, _ in members])
    half = np.array([half for _, half in members])
    peers = np.array([result.row.peers or (np.nan,) * len(PEERS) for result, _ in members], np.float64)
    inside = np.abs(np.log(time / label)) <= half
    return {
        "split": split,
        "mode": mode,
        "device": device,
        "rows": len(members),
        "error": _percent(time / label),
        "bias": float(100.0 * np.mean(time / label - 1.0)),
        "own_roofline": _percent(roofline / label),
        **{name.removeprefix("pred_"): _percent(peers[:, at] / label) for at, name in enumerate(PEERS)},
        "coverage90": float(100.0 * inside.mean()),
        "half_width": float(100.0 * np.median(np.expm1(half))),
    }


def _percent(ratio: np.ndarray) -> float:
    """Mean absolute percentage error over the rows that have a value; NaN where none has."""
    known = ratio[np.isfinite(ratio)]
    return float(100.0 * np.mean(np.abs(known - 1.0))) if len(known) else float("nan")
