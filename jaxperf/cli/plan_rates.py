"""The efficiencies of a plan: those fitted to measured training runs, moved to the device and format that is asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hwspecs.errors import InputError

if TYPE_CHECKING:
    from calibration.training.points import Known
    from hwspecs.schema import DeviceSpec
    from jaxperf.training.search_plan import Rates, Request

SOFTWARE = "megatron-core"  # has every parallel axis that is searched, and most of the measured runs


def plan_rates(request: Request, spec: DeviceSpec, steps: Path | None, folders: Sequence[Path] = ()) -> Rates:
    """Rates of `SOFTWARE` on a device, from the fitted scalars at `steps` or the shipped ones.

    **Raises:** `InputError` for scalars that cannot be read, or a device that multiplies the format in no way.
    """
    import jax
    import jax.numpy as jnp

    from calibration.parameters import load_parameters
    from calibration.training.parameters import load_training
    from calibration.training.predict import tiers_of
    from calibration.training.scalars import assumed_starts, design_of, efficiencies_of
    from calibration.training.shares import starts_of
    from jaxperf.training.search_plan import Rates

    fitted, kernels = load_training(steps), load_parameters(None)
    known = known_plan(request, spec)
    design = design_of(known, list(fitted.deviations))
    starts = starts_of(known, kernels, {**assumed_starts(), **fitted.assumed}, [str(each) for each in folders])
    places = {name: jnp.asarray(place) for name, place in design.places.items()}
    rows = efficiencies_of(jnp.asarray(fitted.values), places, {name: jnp.asarray(at) for name, at in starts.items()})
    (tier,) = tiers_of(known, fitted)
    width = fitted.widths[tier]
    words = (
        f"fitted to measured steps, {tier} tier: {SOFTWARE} on {spec.name}, 90 % within a factor {math.exp(width):.2f}"
    )
    return Rates(jax.tree.map(lambda leaf: leaf[0], rows), words, width=width)


def known_plan(request: Request, spec: DeviceSpec) -> Known:
    """What is asked as one run of `SOFTWARE`, of which no layout is known yet."""
    from calibration.datasets.training import Run
    from calibration.training.points import Known, Point
    from calibration.training.stacks import BY_NAME
    from jaxperf.core.device import device_from_spec
    from jaxperf.core.formats import COMPUTE_FORMATS, FORMATS, format_name
    from jaxperf.core.sustained import format_class

    layout, device = request.layout(1), device_from_spec(spec)
    compute = FORMATS[format_name(request.dtype)].compute
    if float(device.peak_flops[COMPUTE_FORMATS.index(compute)]) <= 0.0:
        raise InputError(
            f"--dtype: {spec.name} multiplies neither {request.dtype} nor a format that can stand in for it."
        )
    run = Run(
        row=0,
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
    point = Point(request.model, layout, device)
    return Known((run,), (point,), (BY_NAME[SOFTWARE],), (format_class(compute),), ("",), {spec.name: spec}, {})
