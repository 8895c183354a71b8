"""One accelerator as a structure of arrays; stack the leaves and the leading axis is a fleet."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

import hwspecs
from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.formats import COMPUTE_FORMATS, FORMATS, STAND_INS
from jaxperf.core.numerics import as_float

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec


# Idle accelerators report about a tenth of their TDP; specifications do not state it, so this is an assumption.
ASSUMED_IDLE_SHARE = 0.1
NUMBERS = (int, float, np.number, np.ndarray, jax.Array)
NO_ENERGIES = (0.0,) * len(COMPUTE_FORMATS)


class Device(eqx.Module):
    """The numbers of one device that the models use, in SI base units; names and sources stay in `hwspecs`.

    `peak_flops`: dense peak per entry of `COMPUTE_FORMATS` [FLOP/s]; where the hardware lacks a format it holds the
    peak of its stand-in (`STAND_INS`) and `native` is 0. `link_*`: scale-up link, per direction and device [byte/s],
    latency per step [s]; `node_size`: devices in one scale-up domain; `mesh`: 1 where the domain is fully connected
    point to point, so that a group of n uses n - 1 of its links; `torus_dimensions`: 0 where it is not a torus.
    `network_*`: scale-out, per direction and device.

    `energy_per_flop`: per entry of `COMPUTE_FORMATS`, that of the stand-in where the hardware lacks the format
    [J/FLOP]; `energy_per_byte` of device memory [J/byte]; `idle_power`: drawn when nothing runs [W]. Where
    `energy_facts` is 0 these are not known, are 0 and must not be used: `training.energy` then takes the TDP.
    """

    peak_flops: Float[Array, "*batch formats"] = eqx.field(converter=as_float)
    native: Float[Array, "*batch formats"] = eqx.field(converter=as_float)
    vector_flops: Float[Array, "*batch"] = eqx.field(converter=as_float)
    memory_bandwidth: Float[Array, "*batch"] = eqx.field(converter=as_float)
    memory_capacity: Float[Array, "*batch"] = eqx.field(converter=as_float)
    num_cores: Float[Array, "*batch"] = eqx.field(converter=as_float)
    l2_capacity: Float[Array, "*batch"] = eqx.field(converter=as_float)
    launch_latency: Float[Array, "*batch"] = eqx.field(converter=as_float)
    tdp: Float[Array, "*batch"] = eqx.field(converter=as_float)
    link_bandwidth: Float[Array, "*batch"] = eqx.field(converter=as_float)
    link_latency: Float[Array, "*batch"] = eqx.field(converter=as_float)
    node_size: Float[Array, "*batch"] = eqx.field(converter=as_float)
    mesh: Float[Array, "*batch"] = eqx.field(converter=as_float)
    torus_dimensions: Float[Array, "*batch"] = eqx.field(converter=as_float)
    network_bandwidth: Float[Array, "*batch"] = eqx.field(converter=as_float)
    network_latency: Float[Array, "*batch"] = eqx.field(converter=as_float)
    energy_per_flop: Float[Array, "*batch formats"] = eqx.field(converter=as_float, default=NO_ENERGIES)
    energy_per_byte: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    idle_power: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    energy_facts: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)

    def replace(self, **changes: Any) -> Device:
        """A copy with some leaves changed: `h100.replace(memory_bandwidth=4e12)`; numbers may be traced.

        **Raises:** `InputError` for an unknown leaf, or for what is not a number of at least zero.
        """
        for name, value in changes.items():
            _check_leaf(name, value)
        return dataclasses.replace(self, **changes)


def _check_leaf(name: str, value: Any) -> None:
    leaves = tuple(Device.__dataclass_fields__)
    if name not in leaves:
        raise InputError(f"A device has no '{name}'; allowed: {', '.join(leaves)}.{did_you_mean(name, leaves)}")
    entries = jax.tree.leaves(value, is_leaf=lambda entry: entry is None)
    for entry in entries or [value]:
        if isinstance(entry, Tracer):  # has no number yet
            continue
        number = isinstance(entry, NUMBERS) and jnp.issubdtype(jnp.result_type(entry), jnp.number)
        if not number or not np.all(np.asarray(entry) >= 0):
            raise InputError(f"'{name}' of a device is {entry!r}; it must be a number of at least 0, in SI base units.")


def device_from_spec(spec: DeviceSpec) -> Device:
    """The arrays of one `hwspecs` entry."""
    peaks = {name: value.si for name, value in spec.peak_flops.items()}
    peaks.setdefault("fp32", spec.vector_flops.si)
    peak, native = zip(*(_peak_or_stand_in(peaks, name) for name in COMPUTE_FORMATS), strict=True)
    node = spec.node
    return Device(
        peak_flops=peak,
        native=native,
        vector_flops=spec.vector_flops.si,
        memory_bandwidth=spec.memory_bandwidth.si,
        memory_capacity=(spec.usable_memory or spec.memory_capacity).si,
        num_cores=spec.num_cores.si,
        l2_capacity=spec.l2_capacity.si,
        launch_latency=spec.launch_latency.si,
        tdp=spec.tdp.si,
        link_bandwidth=node.link_bandwidth.si,
        link_latency=node.link_latency.si,
        node_size=node.size.si,
        mesh=1.0 if node.topology == "mesh" else 0.0,
        torus_dimensions=node.torus_dimensions or 0.0,
        network_bandwidth=node.network_bandwidth.si,
        network_latency=node.network_latency.si,
        **_energies(spec),
    )


def _energies(spec: DeviceSpec) -> dict[str, Any]:
    """The energy leaves; none, so that `energy_facts` stays 0, where the process or the memory is not known."""
    facts = hwspecs.energy_of(spec)
    if facts is None:
        return {}
    known = {name: value.si for name, value in facts.per_flop.items()}
    native = {"fp32", *spec.peak_flops}
    used = [next((each for each in (name, *STAND_INS[name]) if each in native), name) for name in COMPUTE_FORMATS]
    if any(name in native and name not in known for name in used):
        return {}
    return {
        "energy_per_flop": [known.get(name, 0.0) for name in used],
        "energy_per_byte": facts.per_byte.si,
        "idle_power": ASSUMED_IDLE_SHARE * spec.tdp.si,
        "energy_facts": 1.0,
    }


def _peak_or_stand_in(peaks: dict[str, float], name: str) -> tuple[float, float]:
    """(peak [FLOP/s], 1.0 native | 0.0 stand-in); a format nothing can stand in for has peak 0, time infinite."""
    if name in peaks:
        return peaks[name], 1.0
    for stand_in in STAND_INS[name]:
        if stand_in in peaks:
            return peaks[stand_in], 0.0
    return 0.0, 0.0


def stand_in_of(spec: DeviceSpec, compute: str) -> str | None:
    """The format a device multiplies in because it lacks `compute`; None where it has it."""
    native = {"fp32", *spec.peak_flops}
    if compute in native:
        return None
    return next((name for name in STAND_INS[compute] if name in native), "nothing")


def unscaled(spec: DeviceSpec, weights: str) -> bool:
    """Whether a device multiplies the elements of an MX format, but does not take the scales of blocks with them."""
    facts = FORMATS[weights]
    return facts.microscaled and not spec.microscaling and stand_in_of(spec, facts.compute) is None


def load_device(name: str, directories: Sequence[str | Path] = ()) -> Device:
    """The device of that name, alias or TOML file; raises `hwspecs.InputError` with the nearest names."""
    return device_from_spec(hwspecs.load(name, directories))


def load_devices(*names: str, directories: Sequence[str | Path] = ()) -> tuple[Device, ...]:
    """Several devices in the order of their names."""
    return tuple(load_device(name, directories) for name in names)
