"""The scalars of the step that are fitted, and how they are shared: each is a sum of levels, shrunk towards 0.

    u = mean + deviation_all + deviation_stack + deviation_generation + ...        value = transform(u)

A row of software or of a generation that nobody measured has none of their deviations, so it gets what all have in
common (Gelman and Hill 2007, chapter 12). Releases of a software are steps of a walk: a row has those of every release
up to its own but the oldest, so that one that is newer than the measured ones, or not stated, is like the newest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from calibration.composition.batches_links import lineage
from calibration.training.points import Known
from calibration.training.stacks import NEWEST, release_of
from hwspecs.changed import changed_facts
from jaxperf.training.efficiencies import TrainingEfficiencies, assumed_training_efficiencies


@dataclass(frozen=True)
class Scalar:
    """One field of `TrainingEfficiencies`: `deviations` [log or logit] of its levels; a `bounded` one is a share
    between 0 and 1 (logistic), another one any positive number (exponential)."""

    deviations: Mapping[str, float]
    bounded: bool = False


SCALARS: Mapping[str, Scalar] = {
    "gemm": Scalar({"all": 0.15, "class": 0.1, "device": 0.1, "stack": 0.1}),
    "grouped_gemm": Scalar({"all": 0.3, "class": 0.2, "generation": 0.2}),
    "attention": Scalar({"all": 0.3, "generation": 0.2, "stack generation": 0.3}),
    "scan": Scalar({"all": 0.5, "generation": 0.3}),
    "stream": Scalar({"all": 0.3, "execution": 0.3, "stack": 0.2}),
    "wave_loss": Scalar({"all": 0.5}),
    "link_local": Scalar({"all": 0.3, "stack": 0.2}),
    "link_network": Scalar({"all": 0.3, "stack": 0.5}),
    "overlap_tensor": Scalar({"all": 1.0, "stack": 0.7}, bounded=True),
    "overlap_data": Scalar({"all": 1.0, "stack": 1.0}, bounded=True),
    "overlap_expert": Scalar({"all": 1.0, "release": 0.3}, bounded=True),
    "expert_overhead": Scalar({"all": 1.0, "generation": 0.3, "release": 0.3}),
    "layer_overhead": Scalar({"all": 1.0, "execution": 0.7, "stack": 0.5}),
    "host_layer": Scalar({"all": 1.0, "execution": 0.7, "stack": 0.5}),
    "stage_overhead": Scalar({"all": 1.0}),
    "step_overhead": Scalar({"all": 1.0, "stack": 0.7}),
    "rank_spread": Scalar({"all": 0.5, "stack": 0.5}),
}
RELEASE = "release"
MEASURED = "device class"  # which peaks have been measured; no scalar deviates by it
CHANGED = "changed"  # in the place of the name of a device
NONE = ""  # name of a step that a row does not have
TIED = {"plain_gemm": "gemm", "attention_backward": "attention"}  # moved by the deviations of another field
WIDE = {"8-bit": "16-bit", "4-bit": "16-bit"}  # class of the products that stay wide beside those of a narrow one


@dataclass(frozen=True)
class Design:
    """Where each row finds its levels: `names` of the T fitted numbers with their prior deviation [T]; `places[field]`
    [levels, rows] into the numbers, T (which holds 0) where a level was not fitted."""

    names: tuple[str, ...]
    deviation: np.ndarray
    places: Mapping[str, np.ndarray]


def levels_of(known: Known) -> dict[str, list[str]]:
    """The value of every level for each run."""
    generation = [lineage(known.specs[run.device]) for run in known.runs]
    # A user's device in place of the shipped one of its name has none of what was measured on that.
    own = {name: CHANGED if changed_facts(spec) else name for name, spec in known.specs.items()}
    device = [own[run.device] for run in known.runs]
    stack = [each.name for each in known.stacks]
    return {
        "all": [""] * len(stack),
        "class": list(known.classes),
        "generation": generation,
        "device": device,
        MEASURED: [f"{name} in {kind}" for name, kind in zip(device, known.classes, strict=True)],
        "execution": ["compiled" if each.compiled else "eager" for each in known.stacks],
        "stack": stack,
        "stack generation": [f"{software} on {kind}" for software, kind in zip(stack, generation, strict=True)],
        RELEASE: [release_of(run, each) for run, each in zip(known.runs, known.stacks, strict=True)],
    }


def design_of(known: Known, names: Sequence[str] | None = None) -> Design:
    """The design of runs: with a number for every level they have, or with the fitted `names`."""
    levels = levels_of(known)
    steps = _steps_of(levels[RELEASE], names)
    plain = {**levels, "class": [WIDE.get(each, each) for each in levels["class"]]}
    keys = {field: _keys(field, levels, steps) for field in SCALARS}
    keys |= {
        field: _keys(moved_by, plain if field == "plain_gemm" else levels, steps) for field, moved_by in TIED.items()
    }
    every = dict.fromkeys(name for columns in keys.values() for column in columns for name in column if name != NONE)
    fitted = tuple(every) if names is None else tuple(names)
    index = {name: place for place, name in enumerate(fitted)}
    places = {
        field: np.array([[index.get(name, len(fitted)) for name in column] for column in columns])
        for field, columns in keys.items()
    }
    return Design(fitted, np.array([_deviation(name) for name in fitted]), places)


def _steps_of(releases: Sequence[str], names: Sequence[str] | None) -> list[str]:
    """The releases that are steps of the walk: those of the fitted `names`, else all that runs state but the oldest."""
    if names is None:
        return sorted(set(releases) - {NONE, NEWEST})[1:]
    fitted = (name.split("/", 2) for name in names)
    return sorted({value for _, level, value in fitted if level == RELEASE})


def _keys(field: str, levels: Mapping[str, Sequence[str]], steps: Sequence[str]) -> list[list[str]]:
    """The names of the numbers that move a field, by level, or step of the walk, and row."""
    plain = [level for level in SCALARS[field].deviations if level != RELEASE]
    walked = steps if RELEASE in SCALARS[field].deviations else ()
    return [[_name(field, level, value) for value in levels[level]] for level in plain] + [
        [_name(field, RELEASE, step) if value >= step else NONE for value in levels[RELEASE]] for step in walked
    ]


def _name(field: str, level: str, value: str) -> str:
    return f"{field}/{level}/{value}"


def _deviation(name: str) -> float:
    field, level, _ = name.split("/", 2)
    return SCALARS[field].deviations[level]


def assumed_starts() -> dict[str, float]:
    """Where every field starts that has no measurement of its own: the assumed efficiencies [1] or [s]."""
    assumed = assumed_training_efficiencies()
    return {field: float(getattr(assumed, field)) for field in TrainingEfficiencies.__dataclass_fields__}


@jax.jit
def efficiencies_of(
    fitted: Float[Array, " T"], places: Mapping[str, Array | np.ndarray], starts: Mapping[str, Array]
) -> TrainingEfficiencies:
    """The efficiencies of all rows, leaves [rows].

    **Arguments:** `fitted`: deviations [log or logit]; `starts`: where every field starts, scalars or [rows].
    """
    padded = jnp.append(fitted, jnp.zeros((), fitted.dtype))
    rows = places["gemm"].shape[1:]
    leaves = {}
    for field in TrainingEfficiencies.__dataclass_fields__:
        start = jnp.broadcast_to(starts[field], rows)
        scalar = SCALARS.get(TIED.get(field, field))
        leaves[field] = start if scalar is None else _moved(start, padded[places[field]].sum(0), scalar)
    return TrainingEfficiencies(**leaves)


def _moved(start: Array, deviation: Array, scalar: Scalar) -> Array:
    if scalar.bounded:
        return jax.nn.sigmoid(jnp.log(start / (1.0 - start)) + deviation)
    return start * jnp.exp(deviation)
