"""What an operation draws on a device, over what it draws on the reference device, and what is there to be drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import hwspecs
from hwspecs.changed import origin_of

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec

HALF_PRECISION = ("bf16", "fp16")  # the formats whose dense peak a power limit is put beside
MOST_STANDING = 0.5  # of a power limit: a device that is idle draws less than one that works
# Power of the rate in the power, of one device under a lower limit than it was made for: its clock and with it the
# voltage fall, and an operation then takes less energy (C V^2). 1 where the voltage stays, 1/3 with V in proportion to
# the clock; between devices on vector units it is the same 0.6 (`calibration.kernels.priors`).
UNDER_A_CAP = 0.6


def relative_energy(spec: DeviceSpec, reference: Mapping[str, float], on_matrix_units: bool) -> float:
    """Energy of an operation at one clock, over that of the reference device [1].

    On vector units that of a multiplier in the device's process. On matrix units the geometric mean of two witnesses:
    what foundries state of whole circuits in that process (`hwspecs.ProcessSpec`; where none does, a multiplier) knows
    nothing of how the units get their operands, which takes most of the energy and less with every generation; what the
    maker's flagship may draw at its peak (`budgeted_energy`) does, but supposes that it can hold that peak. A chip
    without a flagship has the former alone.

    **Arguments:** `reference`: the same facts of the reference device, as `sustained.json` has them; one that a table
    lacks is not asked for.
    """
    process = _of_process(spec, reference, on_matrix_units)
    budget = budgeted_energy(spec, reference["reference_clock"]) if on_matrix_units else None
    if budget is None or "reference_budget" not in reference:
        return process
    return (process * budget / reference["reference_budget"]) ** 0.5


def spendable_power(spec: DeviceSpec, facts: Mapping[str, float]) -> float:
    """What the power limit leaves to operations [W]: a device draws a part of it at its clock whatever it does, by
    leakage, clocks and memory. Under a lower limit than that of the shipped device that it was made from, it counts for
    what it would do at the energies of the whole limit.

    **Arguments:** `facts`: `standing_power`, that part by the area of a device's dies [W/m^2], and `standing_share`, of
    the limit where no area is known [1]; 0 in a table that lacks them.
    """
    whole = (origin_of(spec) or spec).tdp.si
    left = _beside_standing(spec, spec.tdp.si, facts)
    if spec.tdp.si >= whole:
        return left
    uncapped = _beside_standing(spec, whole, facts)
    return uncapped * (left / uncapped) ** UNDER_A_CAP


def _beside_standing(spec: DeviceSpec, limit: float, facts: Mapping[str, float]) -> float:
    area = spec.die_area
    unknown = facts.get("standing_share", 0.0) * limit
    standing = unknown if area is None else facts.get("standing_power", 0.0) * area.si
    return limit - min(standing, MOST_STANDING * limit)


def _of_process(spec: DeviceSpec, reference: Mapping[str, float], on_matrix_units: bool) -> float:
    facts = hwspecs.energy_of(spec)
    if facts is None:
        return reference["unstated_energy"]
    whole, multiplier = facts.process.relative_power, facts.per_flop.get("bf16")
    if on_matrix_units and whole is not None and "reference_power" in reference:
        return whole.si / reference["reference_power"]
    return reference["unstated_energy"] if multiplier is None else multiplier.si / reference["reference_energy"]


def budgeted_energy(spec: DeviceSpec, clock: float) -> float | None:
    """Power limit over dense 16-bit peak of the flagship of a device's chip, at another `clock` [J/FLOP]; None where
    there is no flagship. Energy goes with the square of the clock: C V^2, and the voltage follows the clock."""
    flagship = hwspecs.flagship_of(spec)
    if flagship is None:
        return None
    peak = max(flagship.peak_flops[name].si for name in HALF_PRECISION if name in flagship.peak_flops)
    return flagship.tdp.si / peak * (clock / flagship.clock_rate.si) ** 2
