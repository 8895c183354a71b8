"""Which devices a user means: names, aliases, TOML files and folders, or `all(memory >= 64 GB, kind = gpu)`."""

from __future__ import annotations

import glob
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hwspecs
from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.config import show

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec

# Field of a condition -> (value of a spec, unit it is written in).
FIELDS: dict[str, tuple[Callable[[DeviceSpec], float], str]] = {
    "memory": (lambda spec: spec.memory_capacity.si, "byte"),
    "memory_bandwidth": (lambda spec: spec.memory_bandwidth.si, "byte/s"),
    "tdp": (lambda spec: spec.tdp.si, "W"),
    "num_cores": (lambda spec: spec.num_cores.si, "1"),
    "link_bandwidth": (lambda spec: spec.node.link_bandwidth.si, "byte/s"),
    "released": (lambda spec: float(spec.released[:4]), "1"),
}
# Field of a condition on a word -> that word of a spec; compared without case.
WORDS: dict[str, Callable[[DeviceSpec], str]] = {
    "kind": lambda spec: spec.kind,
    "vendor": lambda spec: spec.vendor,
    "architecture": lambda spec: spec.architecture,
}
COMPARISONS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_CONDITION = re.compile(r"^\s*([a-z0-9_]+)\s*(>=|<=|>|<|=)\s*(.+?)\s*$")


def select_device(wanted: str, directories: Sequence[str | Path] = ()) -> DeviceSpec:
    """The one device meant. Raises `InputError` as `select_devices` does, and where several are meant."""
    found = list(select_devices([wanted], directories).values())
    if len(found) > 1:
        raise InputError(f"'{wanted}' means {len(found)} devices; name one of them, such as {found[0].name}.")
    return found[0]


def select_axis_devices(
    axes: Mapping[str, Any], directories: Sequence[str | Path] = ()
) -> tuple[dict[str, DeviceSpec], dict[str, Any]]:
    """The devices of a sweep's axes, and the axes with their canonical names.

    A device axis may stand alone or in a zip axis, where each entry must mean one device; without one, all devices
    are swept.
    **Raises:** `InputError` as `select_devices` does.
    """
    key, entries = _device_axis(axes)
    if key != "device":
        specs = [select_device(entry, directories) for entry in entries]
        zipped = {**axes[key], "device": [spec.name for spec in specs]}
        return {spec.name: spec for spec in specs}, {**axes, key: zipped}
    found = select_devices(entries, directories)
    named = {"device": list(found)}
    return found, {**axes, **named} if "device" in axes else {**named, **axes}


def select_devices(wanted: str | Iterable[str], directories: Sequence[str | Path] = ()) -> dict[str, DeviceSpec]:
    """Name -> spec of every device meant, in the order asked for.

    **Arguments:** `wanted`: "all", "all(FIELD >= QUANTITY, WORD = TEXT, ...)", a comma-separated list, or a list of
    those; an entry may be a name, an alias, a TOML file or a glob of them. `directories`: folders of the user's own
    devices.
    **Raises:** `InputError` for an unknown name (with the nearest ones), a bad condition, or an empty selection.
    """
    if not isinstance(wanted, Iterable):
        raise InputError(f"The devices are {wanted!r}; name some (see `jaxperf devices`) or say all.")
    entries = _split(wanted) if isinstance(wanted, str) else [str(entry).strip() for entry in wanted]
    if not entries or not all(entries):
        raise InputError("No device is given; name some (see `jaxperf devices`) or say all.")
    found: dict[str, DeviceSpec] = {}
    for entry in entries:
        for spec in _specs_of(entry, directories):
            found[spec.name] = spec
    return found


def axis_places(axes: Mapping[str, Any], directories: Sequence[str | Path] = ()) -> tuple[str | Path, ...]:
    """`places_of` the devices of a sweep's axes."""
    return places_of(_device_axis(axes)[1], directories)


def _device_axis(axes: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The axis that has the devices, "device" or the name of a zip axis, and its entries."""
    for key, value in axes.items():
        if key != "device" and isinstance(value, Mapping) and "device" in value:
            return key, _entries(value["device"])
    wanted = axes.get("device", "all")
    if isinstance(wanted, Mapping):
        raise InputError("axes.device is a mapping; give a name, a list of names, or all(memory >= 64 GB).")
    return "device", _entries(wanted)


def places_of(wanted: str | Iterable[str], directories: Sequence[str | Path] = ()) -> tuple[str | Path, ...]:
    """Where the devices meant are found again by their names: the directories, and the files given as devices.

    **Arguments:** as of `select_devices`.
    """
    entries = _split(wanted) if isinstance(wanted, str) else [str(entry).strip() for entry in wanted]
    return (*directories, *(path for entry in entries if not _is_condition(entry) for path in _files_of(entry)))


def _split(text: str) -> list[str]:
    """Entries of a comma-separated list; commas inside parentheses belong to a condition."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text)]


def _entries(value: Any) -> list[str]:
    """The entries of a device axis. Raises `InputError` for what is not a text."""
    if isinstance(value, str):
        return _split(value)
    entries = list(value) if isinstance(value, Iterable) else [value]
    for entry in entries:
        if not isinstance(entry, str):
            raise InputError(f"axes.device holds {show(entry)}; a device is given by its name or a TOML file.")
    return entries


def _specs_of(entry: str, directories: Sequence[str | Path]) -> list[DeviceSpec]:
    if _is_condition(entry):
        return _matching(entry, directories)
    return [hwspecs.load(name, directories) for name in _files_of(entry) or [entry]]


def _is_condition(entry: str) -> bool:
    return entry == "all" or entry.startswith("all(")


def _files_of(entry: str) -> list[str]:
    """The files that an entry is or matches; none for a name. Raises `InputError` where no file matches."""
    if any(sign in entry for sign in "*?["):
        paths = sorted(glob.glob(os.path.expanduser(entry)))
        if not paths:
            raise InputError(f"No file matches '{entry}'.")
        return paths
    return [entry] if entry.lower().endswith(".toml") else []


def _matching(entry: str, directories: Sequence[str | Path]) -> list[DeviceSpec]:
    specs = list(hwspecs.open_registry(directories).load_all().values())
    if entry == "all":
        return specs
    if not entry.endswith(")"):
        raise InputError(f"'{entry}' lacks its closing parenthesis; write all(memory >= 64 GB).")
    conditions = [_condition(part) for part in entry[len("all(") : -1].split(",")]
    kept = [spec for spec in specs if all(holds(spec) for holds in conditions)]
    if not kept:
        raise InputError(f"No device matches '{entry}'.")
    return kept


def _condition(text: str) -> Callable[[DeviceSpec], bool]:
    match = _CONDITION.match(text)
    if match is None:
        raise InputError(
            f"Cannot read the condition '{text.strip()}'; write FIELD >= QUANTITY, such as memory >= 64 GB."
        )
    field, sign, quantity = match.groups()
    if field in WORDS and sign == "=":
        return lambda spec: WORDS[field](spec).casefold() == quantity.casefold()
    if field not in FIELDS:
        allowed = (*FIELDS, *(f"{word} = ..." for word in WORDS))
        raise InputError(
            f"Devices cannot be chosen by '{field} {sign}'; allowed: {', '.join(allowed)}."
            + did_you_mean(field, (*FIELDS, *WORDS))
        )
    if sign == "=":
        raise InputError(f"'{text.strip()}' compares a quantity; write {field} >= or <= {quantity}.")
    read, unit = FIELDS[field]
    try:
        limit = hwspecs.parse_quantity(quantity, unit)
    except InputError as error:
        raise InputError(f"In the condition '{text.strip()}': {error}") from None
    compare = COMPARISONS[sign]
    return lambda spec: compare(read(spec), limit)
