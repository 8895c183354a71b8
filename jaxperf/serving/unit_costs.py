"""What a million output tokens take of the devices that make them: energy, and dollars where prices are given.

    energy  = sum of TDP over the devices / (output tokens a second)
    dollars = sum of prices a second over the devices / (output tokens a second) + energy x price of electricity

The devices are taken to draw their power limit (TDP) all the time, as in `energy_per_token` of an estimate: an upper
bound, for power was metered on one kind of device (docs/power.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec

MILLION = 1e6
SECONDS_PER_HOUR = 3600.0
KILOWATT_HOUR = 3.6e6  # J
ENERGY, DOLLARS = "kwh_per_million_tokens", "dollars_per_million_tokens"
ENERGY_NOTE = "energy: uncalibrated: the power limit (TDP) all the time, an upper bound of what is drawn."
CAPPED_ENERGY_NOTE = (
    "energy: uncalibrated: the limit of --power-cap all the time, or what is drawn where no clock is low enough for it."
)


@dataclass(frozen=True)
class Prices:
    """`devices`: name -> dollars per device-hour; `electricity`: dollars per kWh beside them, None where it is in them
    or nobody asks."""

    devices: Mapping[str, float] = field(default_factory=dict)
    electricity: float | None = None


def unit_costs(
    tokens_per_second: float, placed: Sequence[tuple[DeviceSpec, float]], prices: Prices
) -> dict[str, float]:
    """Of a million output tokens: `ENERGY` [kWh], and `DOLLARS` where any price is given [$].

    NaN where no token is made, and dollars too where a device has no price among those given.

    **Arguments:** `tokens_per_second`: output tokens of all devices together [1/s]; `placed`: devices and how many.
    """
    seconds = MILLION / tokens_per_second if tokens_per_second > 0.0 else math.nan
    energy = seconds * sum(spec.tdp.si * count for spec, count in placed) / KILOWATT_HOUR
    if not prices.devices and prices.electricity is None:
        return {ENERGY: energy}
    rent = sum(prices.devices.get(spec.name, math.nan) * count for spec, count in placed) if prices.devices else 0.0
    return {ENERGY: energy, DOLLARS: seconds * rent / SECONDS_PER_HOUR + energy * (prices.electricity or 0.0)}
