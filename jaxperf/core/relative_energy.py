"""What an operation draws on a device, over what it draws on the reference device, and what is there to be drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import hwspecs
from hwspecs.changed import origin_of

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec

HALF_PRECISION = ("bf16", "fp16")  # the formats whose dense peak a power limit is put beside
NARROWER = {"fp8": 0.5, "int8": 0.5, "fp4": 0.25, "int4": 0.25}  # bytes of an operand over those of these
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
    without a flagship has the former alone. What a device pays otherwise than its flagship: `as_a_cut`.

    **Arguments:** `reference`: the same facts of the reference device, as `sustained.json` has them; one that a table
    lacks is not asked for.
    """
    process = _of_process(spec, reference, on_matrix_units)
    budget = budgeted_energy(spec, reference["reference_clock"]) if on_matrix_units else None
    if budget is None or "reference_budget" not in reference:
        return process
    cut = as_a_cut(origin_of(spec) or spec, reference)
    return cut * (process * budget / reference["reference_budget"]) ** 0.5


def as_a_cut(spec: DeviceSpec, facts: Mapping[str, float]) -> float:
    """Energy of an operation of a device under its power limit, over that of its chip's flagship under its own, both as
    of one clock, the highest of each, with whose square energies go [1].

    It is one chip, so that its clock and voltage follow what a core may draw (`UNDER_A_CAP`): with less of it than the
    flagship's, an operation takes less energy. A lower highest clock alone saves none, where the limit has the chip run
    slower than that anyway.

    **Arguments:** `facts`: see `spendable_power`.
    """
    flagship = hwspecs.flagship_of(spec)
    if flagship is None:
        return 1.0
    clock, cores = (getattr(spec, name).si / getattr(flagship, name).si for name in ("clock_rate", "num_cores"))
    standing = standing_draw(spec, facts)
    own, share = (left_to_operations(limit, limit, standing, np) for limit in (spec.tdp.si, flagship.tdp.si * cores))
    return float(own / share) ** (1.0 - UNDER_A_CAP) / clock**2


def spendable_power(spec: DeviceSpec, facts: Mapping[str, float]) -> float:
    """What the power limit leaves to operations [W]: a device draws a part of it at its clock whatever it does, by
    leakage, clocks and memory.

    **Arguments:** `facts`: `standing_power`, that part by the area of a device's dies [W/m^2], and `standing_share`, of
    the limit where no area is known [1]; 0 in a table that lacks them.
    """
    standing = standing_draw(spec, facts)
    return float(left_to_operations(spec.tdp.si, whole_limit(origin_of(spec) or spec, spec), standing, np))


class Standing(NamedTuple):
    """What a device draws whatever it does: `power` [W], and a `share` of the limit [1] where its area is unknown."""

    power: Any
    share: Any


def standing_draw(spec: DeviceSpec, facts: Mapping[str, float]) -> Standing:
    """See `spendable_power`."""
    if spec.die_area is None:
        return Standing(0.0, facts.get("standing_share", 0.0))
    return Standing(facts.get("standing_power", 0.0) * spec.die_area.si, 0.0)


def left_to_operations(limit: Any, whole: Any, standing: Standing, xp: Any) -> Any:
    """What a `limit` leaves [W]; under a lower one than the `whole` that a chip is designed for [W], it counts for what
    it would do at the energies of the whole.

    **Arguments:** numbers or arrays, and `xp`: numpy, or jax.numpy for traced ones.
    """
    uncapped, left = (
        each - xp.minimum(standing.power + standing.share * each, MOST_STANDING * each) for each in (whole, limit)
    )
    return xp.where(limit >= whole, left, uncapped * (left / uncapped) ** UNDER_A_CAP)


def memory_power(spec: DeviceSpec) -> float:
    """What the memory draws at its whole bandwidth, at most half of the power limit; 0 where its energy per byte is not
    known [W]."""
    facts = hwspecs.energy_of(spec)
    drawn = 0.0 if facts is None else facts.per_byte.si * spec.memory_bandwidth.si
    return min(drawn, MOST_STANDING * spec.tdp.si)


def whole_limit(origin: DeviceSpec, spec: DeviceSpec) -> float:
    """The power limit of a chip designed like `origin` with the cores, the clock and the memory bandwidth of `spec`
    [W]: the memory draws by its bandwidth, all else by the cores and the cube of the clock (C V^2 f, with the voltage
    in proportion to the clock)."""
    memory, rest = whole_parts(origin, spec)
    return memory + rest * design_clock(origin, spec) ** 3


def design_clock(origin: DeviceSpec, spec: DeviceSpec) -> float:
    """`paid_clock` of a device made from `origin` [1]."""
    return float(paid_clock(*_clocks(origin, spec), np))


def paid_clock(clock: Any, power: Any, xp: Any) -> Any:
    """The clock that a chip made from another is designed for, over that one's [1]: its own where it is lower, and
    where it is higher as far as its power limit pays for it, the cube root.

    **Arguments:** `clock` over the other's; `power`: its limit without its memory, over what as many cores draw there;
    `xp`: numpy, or jax.numpy for traced ones.
    """
    paid = xp.maximum(power, 1.0) ** (1.0 / 3.0)
    return xp.where(clock <= 1.0, clock, xp.minimum(clock, paid))


def _clocks(origin: DeviceSpec, spec: DeviceSpec) -> tuple[float, float]:
    memory, rest = whole_parts(origin, spec)
    return spec.clock_rate.si / origin.clock_rate.si, (spec.tdp.si - memory) / rest


def whole_parts(origin: DeviceSpec, spec: DeviceSpec) -> tuple[float, float]:
    """What memory of that bandwidth, and as many cores at the clock of `origin`, draw [W]."""
    memory, cores = memory_power(origin), spec.num_cores.si / origin.num_cores.si
    return memory * spec.memory_bandwidth.si / origin.memory_bandwidth.si, (origin.tdp.si - memory) * cores


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
    there is no flagship. Energy goes with the square of the clock: C V^2, and the voltage follows the clock.

    Where a core goes through more operands of a narrower format, the limit is for that one and not for 16 bits.
    """
    flagship = hwspecs.flagship_of(spec)
    if flagship is None:
        return None
    operations = hwspecs.load_architecture(flagship.architecture).operations_per_cycle
    half, peak = (
        max(rates[name].si for name in HALF_PRECISION if name in rates) for rates in (operations, flagship.peak_flops)
    )
    operands = max([half, *(share * operations[name].si for name, share in NARROWER.items() if name in operations)])
    return flagship.tdp.si * half / (peak * operands) * (clock / flagship.clock_rate.si) ** 2
