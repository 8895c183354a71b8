"""The machine of a case of Timeloop: the specs of its levels and Accelergy's energy reference table (ERT)."""

from __future__ import annotations

import math
from collections.abc import Mapping as Dictionary
from typing import Any, NamedTuple

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.timeloop.actions import COMPUTE, ENERGIES, OF_LEVELS, OF_UNITS
from jaxperf.io.timeloop.fields import amount, check_said_otherwise, check_spelling, count, object_of

PICO = 1e-12
TABLE = "ert_pJ_per_action"  # what JSON calls the energies of all levels
WORD_BITS = "Word bits"
# Field of `Level` -> its key among a level's specs.
COUNTS = {"instances": "Instances", "block": "Block size", "cluster": "Cluster size", "buffering": "Multiple buffering"}
LIMITS = {
    "size": "Size",
    "read_bandwidth": "Read bandwidth",
    "write_bandwidth": "Write bandwidth",
    "shared_bandwidth": "Shared bandwidth",
}
# Fields that other tools have, and how it is said here.
LEAKAGE = {"leakage": "what a level leaks is the energy of its action leak [pJ a cycle and instance]"}
LEAKS = {**LEAKAGE, "leak": LEAKAGE["leakage"]}


class Machine(NamedTuple):
    """`unit`: name of the level that computes; `units`: the fields of `Architecture` that describe it; `levels`:
    fields of each storage `Level` by name."""

    unit: str
    units: dict[str, float]
    levels: dict[str, dict[str, float]]


def read_machine(data: Dictionary[str, Any], source: str, table: str = TABLE) -> Machine:
    """The machine of `levels` (their specs) and the energies of their actions.

    **Arguments:** `table`: what the file calls the energies. **Raises:** `InputError` naming file and field.
    """
    levels = object_of(data, "levels", source)
    energies = object_of(data, table, source)
    specs = {name: object_of(object_of(levels, name, source), "specs", f"{source}: {name}") for name in levels}
    actions = {name: object_of(energies, name, f"{source}: {table}") for name in levels}
    computing = [name for name in levels if COMPUTE in actions[name]]
    if len(computing) != 1:
        found = len(computing)
        raise InputError(f"{source}: {table} has the action {COMPUTE} at {found} levels; it must be one.")
    unit = computing[0]
    check_spelling(specs[unit], (COUNTS["instances"],), f"{source}: {unit}")
    check_spelling(actions[unit], OF_UNITS, f"{source}: {unit}: {table}")
    units = {
        "macs": count(specs[unit].get("Instances", 1), f"{source}: {unit}: Instances"),
        "mac_energy": amount(actions[unit][COMPUTE], f"{source}: {unit}: {COMPUTE}") * PICO,
    }
    stores = [name for name in levels if name != unit]
    storage = {name: level_fields(specs[name], actions[name], f"{source}: {name}", table) for name in stores}
    return Machine(unit, units, storage)


def level_fields(
    specs: Dictionary[str, Any], energies: Dictionary[str, Any], where: str, table: str = TABLE
) -> dict[str, float]:
    """Fields of a `Level` from the specs of a storage level and the energies of its actions [pJ]."""
    check_spelling(specs, (*COUNTS.values(), *LIMITS.values(), WORD_BITS), where)
    check_said_otherwise(specs, LEAKS, where)
    check_spelling(energies, OF_LEVELS, f"{where}: {table}")
    check_said_otherwise(energies, LEAKAGE, f"{where}: {table}")
    fields = {field: count(specs.get(key, 1), f"{where}: {key}") for field, key in COUNTS.items()}
    fields |= {field: _limit(specs.get(key, "-"), f"{where}: {key}") for field, key in LIMITS.items()}
    # An update without an entry of its own is a write; what does not say that it leaks or has wires does not.
    actions = {"update": energies.get("write"), "leak": 0.0, "hop": 0.0, **energies}
    for field, key in ENERGIES.items():
        if key not in actions:
            raise InputError(f"{where}: {table} has no energy of {key}.{did_you_mean(key, energies)}")
        fields[field] = amount(actions[key], f"{where}: energy of {key}") * PICO
    return fields


def _limit(value: Any, where: str) -> float:
    return math.inf if value in ("-", None) else amount(value, where)
