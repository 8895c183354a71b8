"""Predict every row of a table of training runs: step time, interval, memory, bubble, and where they come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from calibration.datasets.training import Run, TrainingTable
from calibration.kernels.parameters import Parameters
from calibration.training.evaluate import explored_rows
from calibration.training.fit import rows_of, steps_of
from calibration.training.parameters import TrainingParameters
from calibration.training.points import Known, Point, known_runs
from calibration.training.scalars import CHANGED, MEASURED, Design, assumed_starts, design_of, levels_of
from calibration.training.shares import starts_of
from calibration.training.stacks import stack_note
from hwspecs.changed import changed_facts
from jaxperf.core.numerics import as_float
from jaxperf.training.efficiencies import TrainingEfficiencies
from jaxperf.training.host import host_note, with_host
from jaxperf.training.layout import RECOMPUTE
from jaxperf.training.layout_checks import TrainingReason, reason_sentences
from jaxperf.training.memory import stage_memory
from jaxperf.training.results import interval_ends

TIME = "predicted_step_time_s"
SENT = ("tensor", "context", "expert", "pipeline", "data", "offload")  # kinds of communication
EXPOSED = tuple(f"exposed_{kind}_s" for kind in SENT)
# Of the fullest stage; what is on the host is not of its device.
MEMORY = ("weights", "gradients", "optimizer", "activations", "temporary", "reserved", "host")
BYTES = tuple(f"{kind}_bytes" for kind in MEMORY)
SHARES = ("mfu", "hfu", "memory_bytes", "bubble_fraction", "communication_s", "exposed_communication_s")
NUMBERS = (TIME, "lower", "upper", *SHARES, *EXPOSED, *BYTES)
ADDED = (*NUMBERS, "feasible", "tier", "reason")  # columns, in their order
GIGA = 1e9
BEYOND_PEAK = "the fit has products above the stated peak, so the rest of the step too long"
PRODUCTS = ("gemm", "plain_gemm")  # shares of the peak that deviations of a class, a device and a software move
# Memory over the capacity by which a layout counts as infeasible: no measured run whose recomputation is stated needs
# more than 1.31 of it, and no other one, were all recomputed, more than 1.60 (it does not state how it splits weights).
OVER, OVER_RECOMPUTED = 1.35, 1.65


def predict_training(
    table: TrainingTable, parameters: TrainingParameters, kernels: Parameters, directories: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """The columns to add to a table, [rows of the file].

    A layout whose memory is over the capacity has a time and a reason; it counts as infeasible from `OVER` on, or
    where the table states no recomputation from `OVER_RECOMPUTED` on with all of it: software recomputes until it fits.
    No time is below that of the useful work at the stated peak.

    **Returns:** `NUMBERS` in their units, NaN where a row has no prediction; `feasible`; `tier` ("known", "unseen",
    "exploratory" or ""); `reason`: why there is no prediction, or what was assumed and what stands against it.
    """
    source, distinct = _distinct(table)
    known = known_runs(distinct, directories)
    columns: dict[str, np.ndarray] = {name: np.full(table.rows, np.nan) for name in NUMBERS}
    feasible = np.full(table.rows, False)
    tiers, reasons = (np.full(table.rows, "", dtype=object) for _ in range(2))
    for row, reason in known.reasons.items():
        reasons[row] = reason
    if known.runs:
        rows = [run.row for run in known.runs]
        found = _found(known, parameters, kernels, directories)
        tiers[rows] = tiers_of(known, parameters)
        width = np.array([parameters.widths[tier] for tier in tiers[rows]])
        bits = found.pop("bits").astype(int)
        runs = (bits & ~int(TrainingReason.MEMORY)) == 0
        time = np.where(runs, found[TIME], np.nan)
        shortest, longest = (
            np.asarray(each) for each in interval_ends(as_float(found["mfu"]), as_float(np.exp(width)))
        )
        found |= {"lower": shortest * time, "upper": longest * time}
        for name in NUMBERS:
            columns[name][rows] = np.where(runs, found[name], np.nan)
        feasible[rows] = runs & ~_too_large(known, found["memory_bytes"], found["recomputed_memory"])
        notes = (device_notes(known, parameters), peak_notes(found["product_share"]), host_notes(known, parameters))
        beside = ["; ".join(filter(None, each)) for each in zip(*notes, strict=True)]
        reasons[rows] = [_reason(known, place, bits[place], found, beside[place]) for place in range(len(rows))]
    found = {**columns, "feasible": feasible, "tier": tiers, "reason": reasons}
    return {name: column[source] for name, column in found.items()}


def _distinct(table: TrainingTable) -> tuple[np.ndarray, TrainingTable]:
    """The row from which each row has its answer, the first that is alike but for its label, and the table of those."""
    source, first = np.arange(table.rows), dict[str, Run]()
    for run in table.runs:
        alike = first.setdefault(repr(dataclasses.replace(run, row=0, measured=0.0)), run)
        source[run.row] = alike.row
    return source, dataclasses.replace(table, runs=tuple(first.values()))


def _found(
    known: Known, parameters: TrainingParameters, kernels: Parameters, directories: Sequence[str]
) -> dict[str, np.ndarray]:
    """The step's numbers of every known run, and the bits of its `TrainingReason`."""
    design, starts = design_and_starts(known, parameters, kernels, directories)
    rows = rows_of(known, design, starts)
    step = steps_of(jnp.asarray(parameters.values), rows)
    recomputed = _recomputed_memory(rows.points, rows.starts["imbalance"], rows.starts["reserved_memory"])
    leaves = {
        TIME: step.unchecked_time,
        "mfu": step.mfu,
        "hfu": step.hfu,
        "memory_bytes": step.memory.total,
        "recomputed_memory": recomputed[: rows.count],
        "bubble_fraction": step.bubble_fraction,
        "communication_s": step.communication.total,
        "exposed_communication_s": step.exposed.total,
        **{name: getattr(step.exposed, kind) for name, kind in zip(EXPOSED, SENT, strict=True)},
        **{name: getattr(step.memory, kind) for name, kind in zip(BYTES, MEMORY, strict=True)},
        "bits": step.reason,
        "product_share": product_shares(parameters, design, starts),
    }
    return {name: np.asarray(leaf) for name, leaf in leaves.items()}


def design_and_starts(
    known: Known, parameters: TrainingParameters, kernels: Parameters, directories: Sequence[str]
) -> tuple[Design, dict[str, np.ndarray]]:
    """Where runs find the fitted deviations, and what these are applied to.

    Where the peak was not measured, products start so low that deviations fitted elsewhere end at it. Where it was, a
    share above 1 stands, and `peak_notes` say so: kernels measured alone on these devices end at the peak, so it is
    the rest of their steps that the model has too long.
    """
    design = design_of(known, list(parameters.deviations))
    starts = starts_of(known, kernels, {**assumed_starts(), **parameters.assumed}, directories)
    elsewhere = np.array([pair not in parameters.measured for pair in levels_of(known)[MEASURED]], bool)
    fitted = np.append(parameters.values, 0.0)
    for field in PRODUCTS:
        most = np.where(elsewhere, np.exp(-fitted[design.places[field]].sum(0)), np.inf)
        starts[field] = np.minimum(starts[field], most)
    return design, starts


def product_shares(
    parameters: TrainingParameters, design: Design, starts: dict[str, np.ndarray]
) -> Float[np.ndarray, " runs"]:
    """The share of the stated peak that the fitted products of each run reach, the larger of both kinds [1]."""
    fitted = np.append(parameters.values, 0.0)
    return np.max([starts[field] * np.exp(fitted[design.places[field]].sum(0)) for field in PRODUCTS], axis=0)


def peak_notes(shares: Float[np.ndarray, " runs"]) -> list[str]:
    """A sentence for each run whose products are above the stated peak, which no kernel is: "" for the others."""
    return [f"{BEYOND_PEAK} ({share:.2f} of the peak)" if share > 1.0 else "" for share in shares.tolist()]


@jax.jit
def _recomputed_memory(points: Point, imbalance: Array, reserved: Array) -> Array:
    """Memory with all activations recomputed [rows] [byte]."""
    full = jnp.full_like(points.layout.recompute, RECOMPUTE.index("full"))
    layout = dataclasses.replace(points.layout, recompute=full)
    return jax.vmap(stage_memory, (0, 0, None, None))(points.model, layout, imbalance, reserved).total


def _too_large(known: Known, memory: np.ndarray, recomputed: np.ndarray) -> np.ndarray:
    """Which runs need more memory than a step can be expected to find [rows]."""
    capacity = np.array([float(point.device.memory_capacity) for point in known.points])
    stated = np.array([bool(run.recompute) for run in known.runs], bool)
    least = np.minimum(memory, recomputed)
    return np.where(stated, memory > OVER * capacity, least > OVER_RECOMPUTED * capacity)


def tiers_of(known: Known, parameters: TrainingParameters) -> list[str]:
    """How far each run is from what was measured."""
    levels = levels_of(known)
    seen = [
        "known" if stack in parameters.stacks and device in parameters.measured else "unseen"
        for stack, device in zip(levels["stack generation"], levels[MEASURED], strict=True)
    ]
    return ["exploratory" if is_new else tier for is_new, tier in zip(explored_rows(known), seen, strict=True)]


def device_notes(known: Known, parameters: TrainingParameters) -> list[str]:
    """A sentence for each run whose device was not measured so, "" for the others."""
    levels = levels_of(known)
    measured = {name.partition(" in ")[0] for name in parameters.measured}
    changed = {name: ", ".join(changed_facts(spec)) for name, spec in known.specs.items()}
    notes = []
    for run, own, kind, pair in zip(known.runs, levels["device"], known.classes, levels[MEASURED], strict=True):
        if own == CHANGED:
            notes.append(f"not the measured device of its name: other {changed[run.device]}")
        elif own not in measured:
            notes.append("the device was never measured in training")
        else:
            notes.append("" if pair in parameters.measured else f"the device was never measured in {kind} formats")
    return notes


def host_notes(known: Known, parameters: TrainingParameters) -> list[str]:
    """A sentence for each run that offloads: what of its host it is priced with; "" for the others."""
    assumed = TrainingEfficiencies(**{**assumed_starts(), **parameters.assumed})
    return [
        host_note(known.specs[run.device], with_host(assumed, known.specs[run.device]))
        if float(point.layout.offload_optimizer) > 0.0
        else ""
        for run, point in zip(known.runs, known.points, strict=True)
    ]


def _reason(known: Known, place: int, bits: int, found: dict[str, np.ndarray], beside: str) -> str:
    """Why a run has no time, or what was taken for granted and what stands against it."""
    told = reason_sentences(bits & ~int(TrainingReason.MEMORY))
    if bits & int(TrainingReason.MEMORY):
        needed = float(found["memory_bytes"][place]) / GIGA
        there = float(known.points[place].device.memory_capacity) / GIGA
        recomputed = f"{OVER_RECOMPUTED:g} times it on with everything recomputed"
        limit = f"{OVER:g} times it on" if known.runs[place].recompute else recomputed
        size = f"{there:,.0f}" if there >= 10.0 else f"{there:.2g}"
        told.append(f"memory over capacity (about {needed:,.0f} of {size} GB; infeasible from {limit})")
    software = stack_note(known.stacks[place])
    return "; ".join(text for text in (*told, beside, software, known.notes[place]) if text)
