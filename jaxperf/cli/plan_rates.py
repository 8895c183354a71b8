"""The efficiencies of a plan: those fitted to measured training runs, moved to the device and format that is asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hwspecs.errors import InputError

if TYPE_CHECKING:
    from calibration.datasets.training import Run
    from calibration.kernels.parameters import Parameters
    from calibration.training.points import Known
    from hwspecs.schema import DeviceSpec
    from jaxperf.training.efficiencies import TrainingEfficiencies
    from jaxperf.training.search.plan import Rates, Request

SOFTWARE = "megatron-core"  # has every parallel axis that is searched, and most of the measured runs
SHIPPED, ASSUMED = "shipped", "assumed"  # what --steps says instead of a file


class FittedRates(NamedTuple):
    """Efficiencies of `tier`, the half-width of the logarithm of a step's 90 % interval, and what to know of them."""

    efficiencies: TrainingEfficiencies
    tier: str
    width: float
    note: str = ""


def check_steps(steps: str, params: Path | None = None) -> None:
    """Raises `InputError` for a file of scalars that cannot be read, before anything is compiled, and for parameters of
    kernels that nobody would read."""
    from calibration.training.parameters import load_training

    if steps == ASSUMED and params is not None:
        raise InputError(f"--params: what is assumed (--steps {ASSUMED}) reads no parameters; leave one of both out.")
    if steps not in (SHIPPED, ASSUMED):
        load_training(Path(steps))


def plan_rates(
    request: Request,
    spec: DeviceSpec,
    steps: str,
    folders: Sequence[str | Path] = (),
    kernels: Parameters | None = None,
) -> Rates:
    """Rates of `SOFTWARE` on a device, from the fitted scalars at `steps` or the `SHIPPED` ones, or those `ASSUMED`.

    **Arguments:** `kernels`: parameters of kernels that the fitted ones start from; None: the shipped.
    **Raises:** `InputError` for scalars that cannot be read, or a device that multiplies the format in no way.
    """
    if not multiplies(spec, request.dtype):
        raise InputError(
            f"--dtype: {spec.name} multiplies neither {request.dtype} nor a format that can stand in for it."
        )
    from calibration.training.points import format_notes
    from jaxperf.core.formats import format_name
    from jaxperf.training.host import host_note
    from jaxperf.training.search.plan import Rates, assumed_rates

    if steps == ASSUMED:
        assumed = assumed_rates(spec)
        notes = [f"{spec.name} has {note}" for note in format_notes(spec, format_name(request.dtype))]
        return replace(assumed, tier=_joined((assumed.tier, *notes)))
    (found,) = fitted_rates([(request, spec)], None if steps == SHIPPED else Path(steps), folders, kernels)
    within = f"90 % within a factor {math.exp(found.width):.2f}"
    words = f"fitted to measured steps, {found.tier} tier: {SOFTWARE} on {spec.name}, {within}"
    host = host_note(spec, found.efficiencies)
    return Rates(found.efficiencies, _joined((words, found.note)), width=found.width, host=host)


def multiplies(spec: DeviceSpec, dtype: str) -> bool:
    """Whether a device has a peak in a number format, or in one that stands in for it."""
    from jaxperf.core.device import device_from_spec
    from jaxperf.core.formats import COMPUTE_FORMATS, FORMATS, format_name

    compute = FORMATS[format_name(dtype)].compute
    return float(device_from_spec(spec).peak_flops[COMPUTE_FORMATS.index(compute)]) > 0.0


def fitted_rates(
    asked: Sequence[tuple[Request, DeviceSpec]],
    steps: Path | None,
    folders: Sequence[str | Path] = (),
    kernels: Parameters | None = None,
) -> list[FittedRates]:
    """What is fitted to `SOFTWARE` for each request on its device.

    **Arguments:** `steps`, `kernels`: fitted scalars and parameters of kernels; None: the shipped.
    **Raises:** `InputError` for scalars that cannot be read.
    """
    import jax
    import jax.numpy as jnp

    from calibration.kernels.parameters import load_parameters
    from calibration.training.parameters import load_training
    from calibration.training.predict import design_and_starts, device_notes, peak_notes, product_shares, tiers_of
    from calibration.training.scalars import efficiencies_of

    fitted, kernels = load_training(steps), load_parameters(None) if kernels is None else kernels
    known = known_plans(asked)
    design, starts = design_and_starts(known, fitted, kernels, [str(each) for each in folders])
    places = {name: jnp.asarray(place) for name, place in design.places.items()}
    beyond = peak_notes(product_shares(fitted, design, starts))
    rows = efficiencies_of(jnp.asarray(fitted.values), places, {name: jnp.asarray(at) for name, at in starts.items()})
    return [
        FittedRates(
            jax.tree.map(lambda leaf, place=place: leaf[place], rows), tier, fitted.widths[tier], _joined(notes)
        )
        for place, (tier, *notes) in enumerate(
            zip(tiers_of(known, fitted), device_notes(known, fitted), beyond, known.notes, strict=True)
        )
    ]


def _joined(notes: Sequence[str]) -> str:
    return "; ".join(note for note in notes if note)


def known_plans(asked: Sequence[tuple[Request, DeviceSpec]]) -> Known:
    """What is asked as runs of `SOFTWARE`, of which no layouts are known yet."""
    from calibration.training.points import Known, Point, format_notes, multiplied_class
    from calibration.training.stacks import BY_NAME
    from jaxperf.core.device import device_from_spec
    from jaxperf.core.formats import format_name

    named = [(format_name(request.dtype), spec) for request, spec in asked]

    return Known(
        runs=tuple(_run_of(request, spec, row) for row, (request, spec) in enumerate(asked)),
        points=tuple(Point(request.model, request.layout(1), device_from_spec(spec)) for request, spec in asked),
        stacks=(BY_NAME[SOFTWARE],) * len(asked),
        classes=tuple(multiplied_class(spec, dtype) for dtype, spec in named),
        notes=tuple("; ".join(format_notes(spec, dtype)) for dtype, spec in named),
        specs={spec.name: spec for _, spec in asked},
        reasons={},
    )


def _run_of(request: Request, spec: DeviceSpec, row: int) -> Run:
    from calibration.datasets.training import Run
    from jaxperf.core.formats import format_name

    return Run(
        row=row,
        source=SOFTWARE,
        model=request.name,
        family="",
        device=spec.name,
        devices=1,
        sequence=request.sequence,
        global_batch=request.global_batch,
        dtype=format_name(request.dtype),
        task="pretrain",
        recompute="",
        shape={},
        layout={},
        notes="",
        measured=math.nan,
        group="",
        model_key="",
        repeat=False,
        native=False,
    )
