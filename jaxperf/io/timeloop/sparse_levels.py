"""Densities of a case's operands, and the sparse side of its levels and units, as Timeloop's files state them."""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from typing import Any

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.timeloop.actions import COMPUTE, COUNTED, GATED_COMPUTE, KINDS, SKIPPED_COMPUTE, VERBS
from jaxperf.io.timeloop.fields import amount, check_spelling, object_if_any
from jaxperf.io.timeloop.machine import PICO
from jaxperf.loopnest.sparse.density import Density
from jaxperf.loopnest.sparse.hardware import Energies, SparseLevel

DISTRIBUTIONS = {
    "fixed_structured": "fixed_structured",
    "fixed": "fixed_structured",
    "hypergeometric": "hypergeometric",
    "uniform": "hypergeometric",
    "banded": "banded",
}
DENSITY = ("distribution", "density", "band_width", "workload_tensor_size")
WIDTHS = {"word_bits": "Word bits", "metadata_bits": "Metadata word bits", "metadata_width": "Metadata storage width"}
DEPTH = "Metadata storage depth"


def read_densities(instance: Dictionary[str, Any], operands: tuple[str, ...], where: str) -> tuple[Density, ...]:
    """The density of every operand, one for those of which nothing is said. Raises `InputError` naming the operand."""
    given = object_if_any(instance, "densities", where)
    for name in given:
        if name not in operands:
            raise InputError(f"{where}: densities: {name} is no data space.{did_you_mean(str(name), operands)}")
    return tuple(_density(given.get(name, 1.0), f"{where}: density of {name}") for name in operands)


def _density(given: Any, where: str) -> Density:
    """A density: a number, or an object with `distribution`, `density` and what belongs to it."""
    data = given if isinstance(given, Dictionary) else {"density": given}
    name = str(data.get("distribution", "fixed_structured")).casefold().replace("-", "_")
    if name not in DISTRIBUTIONS:
        known = ", ".join(DISTRIBUTIONS)
        raise InputError(f"{where}: distribution {name} is not one of {known}.{did_you_mean(name, DISTRIBUTIONS)}")
    kind = DISTRIBUTIONS[name]
    if kind != "banded" and "density" not in data:
        raise InputError(f"{where}: density is missing.{did_you_mean('density', map(str, data))}")
    if kind == "banded" and "band_width" not in data:
        hint = did_you_mean("band_width", map(str, data))
        raise InputError(f"{where}: band_width is missing, the diagonals beside the main one that hold words.{hint}")
    check_spelling(data, DENSITY, where)
    share = amount(data["density"], where) if "density" in data else 1.0
    if share > 1.0:
        raise InputError(f"{where} is {share:g}; it must be a number from 0 to 1.")
    band = amount(data.get("band_width", 0), f"{where}: band_width")
    return Density(share, band, amount(data.get("workload_tensor_size", 0), f"{where}: workload_tensor_size"), kind)


def sparse_level(specs: Dictionary[str, Any], energies: Dictionary[str, Any], where: str) -> SparseLevel:
    """The sparse side of a storage level from its specs and the energies of its actions [pJ].

    Actions without an energy cost nothing, as in Timeloop; a level without a metadata width stores no metadata.
    """
    fields: dict[str, Any] = {
        field: amount(specs[key], f"{where}: {key}") for field, key in WIDTHS.items() if stated(specs, key)
    }
    if stated(specs, DEPTH):
        fields["metadata_size"] = amount(specs[DEPTH], f"{where}: {DEPTH}") * fields.get("metadata_width", 0.0)
    fields |= {kind: _energies(patterns, energies, where) for kind, patterns in KINDS.items()}
    fields |= {name.removesuffix("_count"): _energy((name,), energies, where) for name in COUNTED}
    return SparseLevel(**fields)


def unit_energies(energies: Dictionary[str, Any], where: str) -> dict[str, float]:
    """Energies of an operation that is gated, by default that of one that is made, or skipped, by default zero [J]."""
    gated = _energy((*GATED_COMPUTE, COMPUTE), energies, where)
    return {"gated_mac_energy": gated, "skipped_mac_energy": _energy(SKIPPED_COMPUTE, energies, where)}


def _energies(patterns: tuple[str, ...], energies: Dictionary[str, Any], where: str) -> Energies:
    names = {action: [p.format(verb) for p in patterns for verb in verbs] for action, verbs in VERBS.items()}
    return Energies(**{action: _energy(tuple(each), energies, where) for action, each in names.items()})


def _energy(names: tuple[str, ...], energies: Dictionary[str, Any], where: str) -> float:
    name = next((each for each in names if each in energies), None)
    return 0.0 if name is None else amount(energies[name], f"{where}: energy of {name}") * PICO


def stated(specs: Dictionary[str, Any], key: str) -> bool:
    """Whether specs hold a value; "-" is none."""
    return specs.get(key) not in (None, "-")
