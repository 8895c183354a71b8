"""The time of a whole program: its kernels on the device, and the host that launches them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hwspecs.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    from calibration.kernels.parameters import Parameters
    from jaxperf.models.composition import Composition
    from jaxperf.models.graph import Graph
    from jaxperf.report.operations import Price, Prices

MODES = ("graph", "eager")
# End of an interval -> (price of a kernel, level of the assumed host): a slow host belongs to the slow end.
ENDS = {"time": ("time", "nominal"), "lower": ("lower", "high"), "upper": ("upper", "low")}


def check_framework(framework: str, parameters: Parameters) -> None:
    """Raises `InputError` for a framework that neither the fitted kernels nor the fitted host are of; "" is none."""
    known = sorted({"torch"}.union(*(each.names.known["framework"] for each in parameters.families.values())))
    if framework and framework not in known:
        raise InputError(
            f"--framework: '{framework}' is no framework that kernels were measured of.{did_you_mean(framework, known)}"
            f" Known: {', '.join(known)}; leave it out for what they have in common."
        )


def kernels_for(launch: str, framework: str, params: Path | None) -> Parameters:
    """The fitted kernels: those given, those that the fitted host of PyTorch goes with, or the shipped ones."""
    if params is None and launch == "eager" and framework == "torch":
        from calibration.composition.graph_parameters import load_graphs

        return load_graphs().kernels
    from calibration.kernels.parameters import load_parameters

    return load_parameters(params)


def compose(graph: Graph, prices: Prices, launch: str, framework: str) -> dict[str, Any]:
    """Time of the program with its 90 % interval and what the host alone takes [s], and where the host's part is from.

    "graph": a compiled program or a captured graph, its kernels back to back. "eager": the host launches each kernel;
    for PyTorch as fitted on measured iterations, else with the assumed time of a launch. The program keeps the limit of
    power as a whole (`shared_limit`), its kernels need not: it may take less than their sum.
    """
    import jax.numpy as jnp

    from jaxperf.models.composition import iteration_time, shared_limit
    from jaxperf.models.graph_steps import lay_out

    laid = lay_out(graph)
    found: dict[str, Any] = {"launch": launch, "source": _source(launch, framework)}
    for end, (name, level) in ENDS.items():
        known, free = jnp.asarray([_times(prices[op.key], name) for op in laid.ops]).reshape(-1, 2).T
        composition = _composition(launch, framework, level)
        relieved = shared_limit(laid.steps, known, free, composition.draw)
        iteration = iteration_time(laid.steps, relieved, composition)
        found[end] = float(iteration.time)
        found |= {"host": float(iteration.host)} if end == "time" else {}
    return found


def _times(price: Price, name: str) -> tuple[float, float]:
    """A kernel's time at one end of its interval, and the same without the limit of power; 0 where it has none [s]."""
    if math.isnan(price.time):
        return 0.0, 0.0
    end = getattr(price, name)
    return end, end * price.unlimited / price.time if price.time else 0.0


def _source(launch: str, framework: str) -> str:
    if launch == "graph":
        return "kernels back to back, as a compiled program or a captured graph has them"
    if framework == "torch":
        return "host as fitted on measured iterations of PyTorch"
    return "host time of a launch assumed, not measured"


def _composition(launch: str, framework: str, level: str) -> Composition:
    """How kernels make up a program. What those between the products draw of the limit of power is as fitted, whoever
    launches them."""
    from calibration.composition.graph_parameters import load_compositions
    from jaxperf.models.composition import Composition
    from jaxperf.models.host import assumed_host

    fitted = load_compositions()
    if launch == "eager" and framework == "torch":
        return fitted["plain"]
    interval, variant = (0.0, "fusion") if launch == "graph" else (assumed_host(launch, level).launch_interval, "plain")
    return Composition(launch=interval, node=0.0, gap=0.0, overhead=0.0, draw=fitted[variant].draw)
