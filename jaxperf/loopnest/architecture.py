"""The hardware: storage levels from the innermost to the backing store, around arrays of multiply-accumulate units."""

from __future__ import annotations

import math

import equinox as eqx
from jaxtyping import Array, Float

from jaxperf.core.numerics import as_float


class Level(eqx.Module):
    """One storage level; every instance is alike. Counts are of the level's own words.

    `instances`: in the whole machine [1]; `fan_x`, `fan_y`: children of one instance along the mesh's directions [1];
    `size`: capacity of an instance [word], of which a tile may take one part in `buffering` [1]; `block`: words of one
    access [word]; `cluster`: instances that share an access [1]; bandwidths of an instance, "shared" being that of
    reads and writes together [word/cycle]; energies of one access of a block [J]; `hop_energy` of a word from one child
    of an instance to the next, 0 where wires cost nothing [J]; `leakage` of an instance [J/cycle]; `area` of an
    instance [m2], NaN where it is not known.
    """

    instances: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    fan_x: Float[Array, "*batch"] = eqx.field(converter=as_float, default=math.inf)
    fan_y: Float[Array, "*batch"] = eqx.field(converter=as_float, default=math.inf)
    size: Float[Array, "*batch"] = eqx.field(converter=as_float, default=math.inf)
    buffering: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    block: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    cluster: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    read_bandwidth: Float[Array, "*batch"] = eqx.field(converter=as_float, default=math.inf)
    write_bandwidth: Float[Array, "*batch"] = eqx.field(converter=as_float, default=math.inf)
    shared_bandwidth: Float[Array, "*batch"] = eqx.field(converter=as_float, default=math.inf)
    read_energy: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    write_energy: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    update_energy: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    hop_energy: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    leakage: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    area: Float[Array, "*batch"] = eqx.field(converter=as_float, default=math.nan)


class Architecture(eqx.Module):
    """`levels`: innermost first; `macs`: multiply-accumulate units [1]; `mac_energy` of one operation [J];
    `mac_area` of one unit [m2], NaN where it is not known."""

    levels: tuple[Level, ...]
    macs: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    mac_energy: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    mac_area: Float[Array, "*batch"] = eqx.field(converter=as_float, default=math.nan)
