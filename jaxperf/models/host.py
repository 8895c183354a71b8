"""The host's share of a step: launching kernels and running the engine's loop."""

from __future__ import annotations

import tomllib
from importlib import resources

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.numerics import Scalar, as_float

LAUNCH_MODES = ("graph", "eager")


class Host(eqx.Module):
    """`launch_interval`: host time per kernel launch [s], 0 where a captured graph is replayed;
    `step_overhead`: scheduling, sampling and bookkeeping per step that the device waits for [s]."""

    launch_interval: Float[Array, "*batch"] = eqx.field(converter=as_float)
    step_overhead: Float[Array, "*batch"] = eqx.field(converter=as_float)


def step_time(host: Host, device_time: Scalar, launches: Scalar) -> Scalar:
    """t = max(device, launches x interval) + overhead: launching runs ahead of the device until it cannot [s]."""
    launching = launches * host.launch_interval
    return jnp.maximum(device_time, launching) + host.step_overhead


def assumed_host(mode: str = "graph", level: str = "nominal") -> Host:
    """The shipped assumptions for `mode`, "graph" (captured and replayed) or "eager", at a level (low, nominal, high).

    As with the efficiencies, "low" is the slow end and "high" the fast one.
    """
    if not isinstance(mode, str) or mode not in LAUNCH_MODES:
        hint = did_you_mean(mode, LAUNCH_MODES)
        raise InputError(f"Unknown launch mode {mode!r}; allowed: {', '.join(LAUNCH_MODES)}.{hint}")
    table = tomllib.loads(resources.files("jaxperf.models").joinpath("assumed_host.toml").read_text())[mode]
    return Host(table["launch_interval"][level], table["step_overhead"][level])
