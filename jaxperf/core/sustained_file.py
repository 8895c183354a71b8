"""The fitted table of sustained rates on disk, and what it says of one device.

A device with rows of a family has its own numbers. Another of the same kind has the family's, under its own power
limit (`power_time`), with the interval of generations left out. One of a kind that nobody measured, and a
family without a fit, keep the assumed efficiencies. Which of these it was is the tier.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hwspecs.changed import changed_from, origin_of
from hwspecs.errors import InputError
from jaxperf.core.device import device_from_spec, stand_in_of
from jaxperf.core.efficiency import FAMILIES, LEVELS, assumed_shares
from jaxperf.core.formats import COMPUTE_FORMATS
from jaxperf.core.parameter_files import file_of
from jaxperf.core.relative_energy import design_clock, relative_energy, spendable_power
from jaxperf.core.sustained import CLASSES, CalibratedDevice, Rates, Sustained, format_class

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec

SCHEMA = 1
STANDING = ("standing_power", "standing_share")  # of `power`: what `spendable_power` reads
SHIPPED = "sustained.json"
ENDING = ".sustained.json"  # of the table beside parameters that jaxperf calibrate wrote
ORIGIN, SHIPPED_ORIGIN = "origin", "shipped"  # how a table of one's own marks what it took over from the shipped one
TIERS = ("measured", "adapted", "transfer", "assumed")
STREAMED = "elementwise"  # the family on vector units
KIND = "gpu"  # what the families were measured on, and so where they are transferred to
OPERANDS = {
    "32-bit": (("fp32",), 4.0),
    "16-bit": (("bf16", "fp16"), 2.0),
    "8-bit": (("fp8", "int8"), 1.0),
    "4-bit": (("fp4", "int4"), 0.5),
}
Tiers = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class SustainedTable:
    """The table of one file: `families` and `power` as stored, where it is from, and the card of `others`, parameters
    that lie beside it and that it was not made from; "" where it was."""

    families: Mapping[str, Mapping[str, Any]]
    power: Mapping[str, float]
    card: Mapping[str, Any]
    path: str
    others: str = ""


@dataclass(frozen=True)
class Calibration:
    """What the table says of one device, `spec`: its arrays, the tier of every family and format class, the classes of
    each family that a table of one's own took over from the shipped one, and the facts that a user `changed`, so that
    what was measured on the shipped device of that name, or that it was made from, is not of this one."""

    spec: DeviceSpec
    calibrated: CalibratedDevice
    tiers: Tiers
    table: SustainedTable
    as_shipped: Mapping[str, frozenset[str]]
    changed: tuple[str, ...] = ()


def load_sustained_table(path: str | Path | None = None) -> SustainedTable:
    """The table at `path` (itself, or the base name of the parameters it lies beside), or the shipped one.

    **Raises:** `InputError` for a file that is missing, damaged or of another schema, saying what to do.
    """
    file = place_of(path)
    remedy = (
        "make it again with jaxperf calibrate, which writes it beside its parameters, or with "
        f"python -m calibration.sustained DATA... --params PARAMS -o {file}"
    )
    try:
        card = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"Cannot read sustained rates '{file}': {error.strerror}; {remedy}, or leave --params out."
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"Sustained rates '{file}' are damaged ({error}); {remedy}.") from None
    schema = card.get("schema") if isinstance(card, dict) else None
    if schema != SCHEMA:
        newer = isinstance(schema, int) and schema > SCHEMA
        remedy = "a newer jaxperf reads it" if newer else remedy
        raise InputError(
            f"Sustained rates '{file}' have schema {schema}; this version reads schema {SCHEMA}: {remedy}."
        )
    try:
        _check(card)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"Sustained rates '{file}' are damaged ({error}); {remedy}.") from None
    shipped = SHIPPED_ORIGIN if path is None else str(file)
    rest = {name: value for name, value in card.items() if name not in ("families", "power")}
    others = "" if path is None else _others(file, rest.get("parameters_sha256"))
    return SustainedTable(card["families"], card["power"], rest, shipped, others)


def _others(file: Path, made_from: str | None) -> str:
    """The card of the parameters beside a table of one's own, if their checksum is not the one it was `made_from`.

    The shipped table's parameters are shipped with it: a test compares them, so that no command has to.
    """
    text = str(file)
    beside = file_of(text[: -len(ENDING)], ".json")
    if made_from is None or not text.lower().endswith(ENDING) or not beside.is_file():
        return ""
    try:
        found = json.loads(beside.read_text(encoding="utf-8"))["sha256"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""  # no parameters; who reads them is told
    return "" if found == made_from else str(beside)


def checksum(record: Mapping[str, Any]) -> str:
    """SHA-256 of what a table says, in whatever order and spacing it is written."""
    said = {name: record[name] for name in ("families", "power")}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def place_of(path: str | Path | None) -> Path:
    """The file of a table, by itself or the base name of the parameters it lies beside; `None` for the shipped one.

    **Raises:** `InputError` for what is no path.
    """
    if not isinstance(path, str | os.PathLike | None):
        raise InputError(f"The parameters are {path!r}; give the path of a file, or None for the shipped.")
    if path is None:
        return Path(str(resources.files("calibration") / "fitted" / SHIPPED))
    return Path(path) if Path(path).name == SHIPPED else file_of(path, ENDING)


def _check(card: Mapping[str, Any]) -> None:
    """Raises `ValueError` or what reading a wrong structure raises. Older tables state no checksum."""
    if card.get("sha256", stated := checksum(card)) != stated:
        raise ValueError("its numbers do not have the checksum that it states: a byte was changed")
    later = {"reference_power", "reference_budget", *STANDING} & set(card["power"])  # which older tables lack
    for name in ("usable_share", "reference_clock", "reference_energy", "unstated_energy", *sorted(later)):
        if not card["power"][name] > 0.0:
            raise ValueError(f"power.{name} is {card['power'][name]}")
    for family, each in card["families"].items():
        if family not in FAMILIES:
            raise ValueError(f"unknown family {family!r}")
        for form, entry in each["classes"].items():
            if form not in CLASSES:
                raise ValueError(f"{family}: unknown format class {form!r}")
            for device, row in {"": entry, **entry["devices"]}.items():
                where = f"{family}.{form}.{device or 'family'}"
                if not 0.0 <= row.get("exposed", 1.0) <= 1.0:
                    raise ValueError(f"{where}: exposed is {row['exposed']}, no share")
                if not (0.0 < row["compute"] <= 1.0 and 0.0 < row["memory"] <= 1.0 and row["floor"] > 0.0):
                    raise ValueError(f"{where}: a share is not in (0, 1] or a floor not above 0")
                if not 0.0 <= row["half_width"][0] <= row["half_width"][1]:
                    raise ValueError(f"{where}: half-widths {row['half_width']} are not in order")
                if device and row["tier"] not in TIERS:
                    raise ValueError(f"{where}: unknown tier {row['tier']!r}")


def calibration_of(spec: DeviceSpec, table: SustainedTable) -> Calibration:
    """The rates of one device at every level, and where each comes from.

    A device made from a shipped one starts from what that sustains: as measured where no fact is changed that its
    kernels were measured with, else with the interval of devices never measured.
    """
    assumed, origin = assumed_shares(), origin_of(spec)
    changed = () if origin is None else changed_from(origin, spec)
    rates, tiers, as_shipped = {}, {}, {}
    for family in FAMILIES:
        columns = [_column(spec, origin, changed, table, family, form, assumed[family]) for form in CLASSES]
        leaves = np.array([column.values for column in columns])  # [classes, leaves, levels]
        rates[family] = Rates(*np.moveaxis(leaves, (0, 1, 2), (2, 0, 1)))
        named = dict(zip(CLASSES, columns, strict=True))
        tiers[family] = {form: column.tier for form, column in named.items()}
        as_shipped[family] = frozenset(form for form, column in named.items() if column.as_shipped)
    columns = [CLASSES.index(class_on(spec, name)) for name in COMPUTE_FORMATS]
    calibrated = CalibratedDevice(device_from_spec(spec), Sustained(rates, columns))
    return Calibration(spec, calibrated, tiers, table, as_shipped, changed)


def class_on(spec: DeviceSpec, compute: str) -> str:
    """The class of the format that a device multiplies a format of `COMPUTE_FORMATS` in."""
    stand_in = stand_in_of(spec, compute)
    return format_class(stand_in if stand_in in COMPUTE_FORMATS else compute)


class _Column(NamedTuple):
    """`values`: (compute, memory, floor, exposed, power) at the levels of `RATE_LEVELS`; the tier; whether a table of
    one's own took them over."""

    values: list[list[float]]
    tier: str
    as_shipped: bool


def _column(
    spec: DeviceSpec,
    origin: DeviceSpec | None,
    changed: Sequence[str],
    table: SustainedTable,
    family: str,
    form: str,
    assumed: Mapping[str, Mapping[str, float]],
) -> _Column:
    """What the table says of one device in one family and format class."""
    launch = spec.launch_latency.si
    classes = table.families.get(family, {}).get("classes", {})
    entry = next((classes[name] for name in nearest(form) if name in classes), None)
    row = None if entry is None else _row(entry["devices"], spec, origin, changed, table)
    if entry is None or (row is None and spec.kind != KIND):
        shares = [[*(assumed[resource][level] for level in LEVELS), 1.0] for resource in ("compute", "memory")]
        return _Column([*shares, [launch] * 4, [0.0] * 4, [0.0] * 4], "assumed", False)
    own = row is not None and row.own and form in classes
    values = entry if row is None else row.values
    tier = values["tier"] if own else "transfer"
    width = (values if own else entry)["half_width"][1]
    energy = relative_energy(spec, table.power, on_matrix_units=family != STREAMED and form != "32-bit")
    energy *= values.get("energy", entry["energy"])  # a row's own where its entry is of another fit
    drawn = power_time(spec, origin, energy, form, table.power)
    slower, faster = float(np.exp(-width)), float(np.exp(width))
    share = lambda value: [value * slower, value, min(value * faster, 1.0), 1.0]  # noqa: E731
    floor = values["floor"]
    floors = [floor / slower, floor, floor / faster, launch]
    exposed = values.get("exposed", entry.get("exposed", 1.0))  # older tables: all of it, a sum of squares
    powers = [drawn / slower, drawn, drawn / faster, 0.0]
    columns = [share(values["compute"]), share(values["memory"]), floors, [*[exposed] * 3, 0.0], powers]
    return _Column(columns, tier, values.get(ORIGIN) == SHIPPED_ORIGIN)


class _Row(NamedTuple):
    """The numbers of a device, or of the one that it was made from; whether they were measured on its like."""

    values: Mapping[str, Any]
    own: bool


def _row(
    devices: Mapping[str, Any],
    spec: DeviceSpec,
    origin: DeviceSpec | None,
    changed: Sequence[str],
    table: SustainedTable,
) -> _Row | None:
    """What is known of a device: rows of one's own table by its name, else those of the device it was made from."""
    mine = devices.get(spec.name)
    if mine is not None and table.path != SHIPPED_ORIGIN and mine.get(ORIGIN) != SHIPPED_ORIGIN:
        return _Row(mine, True)
    found = mine if origin is None else devices.get(origin.name)
    return None if found is None else _Row(found, not changed)


def nearest(form: str) -> Sequence[str]:
    """The class itself, then those to borrow from, next wider first."""
    at = CLASSES.index(form)
    return [*CLASSES[at::-1], *CLASSES[at + 1 :]]


def power_time(
    spec: DeviceSpec, origin: DeviceSpec | None, energy: float, form: str, power: Mapping[str, float]
) -> float:
    """How long the power limit has a useful FLOP wait: energy x operand bytes x (clock / reference)^2 / P_usable [s].

    The clock is that of the device's design; where it was made from an `origin`, the one that it can pay under its
    limit, whatever its highest is (`design_clock`).

    **Arguments:** `energy`: of one FLOP per byte of its operands, at the reference clock on this device [J]; `form`:
    format class, or the next that the device has; `power`: the reference, what is drawn whatever a device does, and
    the usable share of the rest.
    """
    peaks = {"fp32", *spec.peak_flops}
    size = next(size for names, size in (OPERANDS[each] for each in nearest(form)) if set(names) & peaks)
    made = 1.0 if origin is None else design_clock(origin, spec)
    clock = made * (origin or spec).clock_rate.si / power["reference_clock"]
    return energy * size * clock**2 / (power["usable_share"] * spendable_power(spec, power))
