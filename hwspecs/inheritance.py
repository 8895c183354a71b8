"""What a device file has from its `base`: another device file, or a slice of a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hwspecs.errors import InputError, did_you_mean
from hwspecs.files import SHIPPED, Layer, read_toml
from hwspecs.plain import spelled_out
from hwspecs.slices import slice_of, slice_tables


def read_device(path: Path, layers: Sequence[Layer], seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read a device file and fill what it leaves out from its `base`.

    A base of the same name means the file that this one overrides. Whole values are inherited or replaced, never
    parts of a value: a new quantity under an old source would be wrong; a user's file may state plain ones
    (`hwspecs.plain`), and leave out the name, which then is the file's. A file that states `memory_capacity` does not
    inherit `usable_memory`, which a driver reported of the base's memory and which models are placed by. The `base`
    that it keeps is the nearest shipped one.
    """
    raw = read_toml(path)
    if "base" not in raw:
        return raw
    raw.setdefault("name", path.stem)
    base = raw.pop("base")
    if not isinstance(base, str):
        raise InputError(f"{path}: base is {base!r}, but must be the name of a device in quotes.")
    below = _below(path, layers) if base == raw.get("name") else tuple(layers)
    known = {name: found for layer in below for name, found in layer.items()}
    inherited = _inherited(path, base, known, below, seen)
    if raw.get("name") != base:
        inherited.pop("aliases", None)  # they would mean two devices
        inherited["display_name"] = raw.get("name")
    if "memory_capacity" in raw:
        inherited.pop("usable_memory", None)
    if not path.is_relative_to(SHIPPED):
        raw = spelled_out(raw, inherited | {"name": base}, path.name)
    shipped = base in known and known[base].is_relative_to(SHIPPED)
    return _merge(inherited, raw) | {"base": base if shipped else inherited.get("base", base)}


def _inherited(
    path: Path, base: str, known: Mapping[str, Path], below: Sequence[Layer], seen: tuple[str, ...]
) -> dict[str, Any]:
    """What the file `path` has from its base: a device of those `known`, or a slice of one."""
    named = slice_of(base) if base not in known else None
    file = known.get(named.device if named else base)
    if file is not None and (str(file) in seen or file == path):
        raise InputError(f"{path}: base leads back to {base!r} in a circle; let one of the files stand alone.")
    found = None if file is None else read_device(file, below, (*seen, str(path)))
    if named is not None and found is not None:
        found = slice_tables(found, named, str(file))
    if found is None:
        hint = did_you_mean(base, known)
        raise InputError(f"{path}: base is {base!r}, which is not a known device.{hint}")
    return found


def _below(path: Path, layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The layers under the one that holds `path`; all of them for a file outside every layer."""
    for index, layer in enumerate(layers):
        if path in layer.values():
            return tuple(layers[:index])
    return tuple(layers)


def _merge(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in change.items():
        old = merged.get(key)
        is_value = isinstance(value, dict) and ("quantity" in value or "confidence" in value)
        merged[key] = (
            _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) and not is_value else value
        )
    return merged
