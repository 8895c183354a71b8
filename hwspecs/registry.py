"""Find devices by name or alias, in the shipped data and in the user's own directories."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hwspecs.errors import InconsistentPeaks, InputError, nearest
from hwspecs.files import SHIPPED, Layer, layer_of, read_header, read_toml, scan
from hwspecs.inheritance import read_device
from hwspecs.parts import load_architecture, part_path, part_paths
from hwspecs.slices import Slice, profile_of, slice_of, slice_spec
from hwspecs.spelling import Spelling, spelling_of

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec

Directory = str | os.PathLike[str]
LONGEST_SHOWN = 60  # characters of a name that nobody knows


@dataclass(frozen=True)
class Resolution:
    """What a string that names hardware means.

    `name` is the device, or None where the string is known but has no specification; then `reason` says what it is.
    """

    text: str
    name: str | None
    reason: str


@dataclass(frozen=True)
class Registry:
    """An immutable set of device files: the shipped ones, then the user's directories, the later ones winning."""

    layers: tuple[Layer, ...]

    @functools.cached_property
    def paths(self) -> Mapping[str, Path]:
        """The file of each device, by name."""
        return MappingProxyType({name: path for layer in self.layers for name, path in layer.items()})

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all devices, sorted."""
        return tuple(sorted(self.paths))

    @functools.cached_property
    def aliases(self) -> Mapping[str, str]:
        """The device that each exact alias means; every name is an alias of itself.

        **Raises:** `InputError` where two files claim the same alias, or an alias that `load` would spell the same.
        """
        owners: dict[str, str] = {}
        spellings: dict[Spelling, str] = {}
        for name, path in self.paths.items():
            for alias in (name, *self._own_aliases(name, path)):
                spelling = spelling_of(alias)
                other = owners.get(alias) or spellings.get(spelling)
                if other is not None and other != name:
                    raise InputError(
                        f"{path}: the alias {alias!r} already means {other} ({self.paths[other]}); remove it from one."
                    )
                owners[alias] = name
                spellings[spelling] = name
        return MappingProxyType(owners)

    @functools.cached_property
    def _spellings(self) -> Mapping[Spelling, str]:
        return MappingProxyType({spelling_of(alias): name for alias, name in self.aliases.items()})

    def load(self, name: str) -> DeviceSpec:
        """The specification of a device, by name, alias or path of a TOML file.

        **Raises:** `InputError` for an unknown name (with the nearest ones), a known string without a specification
        (with the reason), or a file that does not fit the schema (a sentence per problem).
        """
        _check_name(name)
        if name.lower().endswith(".toml"):
            return self._read(Path(os.path.expanduser(name)))
        if name not in self.paths:
            resolution = self.resolve(name)
            if not name.strip():
                raise InputError("The name of a device is empty; `jaxperf devices` lists all.")
            if resolution.name is None:
                raise InputError(f"{name!r} is known but has no specification: {resolution.reason}")
            name = resolution.name
        return self._read(self.paths[name], name) if name in self.paths else self._load_slice(name)

    def load_all(self) -> dict[str, DeviceSpec]:
        """Every specification, by name."""
        return {name: self._read(self.paths[name], name) for name in self.names}

    def find(self, text: str) -> str | None:
        """The device a string means, or None; like `resolve` without the reason and without errors."""
        text = text.strip()
        if text in self.aliases:
            return self.aliases[text]
        spelling = spelling_of(text)
        if spelling in self._spellings:
            return self._spellings[spelling]
        # A memory size may be left out of an alias, but it must then agree with the device.
        if spelling.memory is None:
            return None
        name = self._spellings.get(Spelling(spelling.core, None))
        return name if name is not None and self._has_memory(name, spelling.memory) else None

    def resolve(self, text: str) -> Resolution:
        """What a string that names hardware means.

        **Returns:** a device, or "known, not specified" with the reason; an empty string means that none is stated.
        **Raises:** `InputError` with the nearest names for a string that is not known. Similar strings never match.
        """
        if not text.strip():
            return Resolution(text, None, "no device is stated.")
        reason = _unspecified().get(text.strip())
        name = None if reason is not None else self.find(text)
        if name is not None:
            return Resolution(text, name, f"this is {name}.")
        if reason is None:
            spelled = {spelling_of(known): why for known, why in _unspecified().items()}
            reason = spelled.get(spelling_of(text))
        if reason is None and (part := self._slice(text)) is not None:
            return self._resolve_slice(text, *part)
        if reason is not None:
            return Resolution(text, None, reason)
        shown = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
        raise InputError(
            f"{shown!r} is not a known device.{self.did_you_mean(text)} `jaxperf devices` lists the {len(self.names)} "
            "known."
        )

    def did_you_mean(self, text: str) -> str:
        """As `errors.did_you_mean`, of devices by their own names, whichever of their aliases is near."""
        near = dict.fromkeys(self.aliases[each] for each in nearest(text, self.aliases, count=len(self.aliases)))
        return f" Did you mean {' or '.join([*near][:3])}?" if near else ""

    def _slice(self, text: str) -> tuple[Slice, DeviceSpec] | None:
        """The slice that a string names, such as "A100-SXM4-40GB MIG 3g.20gb", and of what; None for another string."""
        named = slice_of(text)
        whole = self.find(named.device) if named else None
        return (named, self._read(self.paths[whole], whole)) if named and whole else None

    def _resolve_slice(self, text: str, named: Slice, whole: DeviceSpec) -> Resolution:
        if profile_of(whole, named) is None:
            return Resolution(text, None, named.sentence(whole.name))
        return Resolution(text, named.name(whole.name), f"this is a slice (MIG) of {whole.name}.")

    def _load_slice(self, name: str) -> DeviceSpec:
        """The specification of a slice by its name, as `resolve` gives it."""
        found = self._slice(name)
        profile = None if found is None else profile_of(found[1], found[0])
        if found is None or profile is None:
            raise InputError(f"{name!r} is not a known device.")
        return slice_spec(found[1], found[0], profile)

    def _own_aliases(self, name: str, path: Path) -> Iterable[str]:
        header = read_header(path)
        if header.get("base") == name:
            header = read_device(path, self.layers)
        aliases = header.get("aliases", ())
        return tuple(a for a in aliases if isinstance(a, str)) if isinstance(aliases, list | tuple) else ()

    def _has_memory(self, name: str, memory: int) -> bool:
        """Whether a size in GB, as vendors and drivers print it, is the memory of a device."""
        stated = self._read(self.paths[name], name).memory_capacity.si
        return memory in (round(stated / 1e9), round(stated / 2**30))

    def _read(self, path: Path, name: str | None = None) -> DeviceSpec:
        from hwspecs.schema import DeviceSpec, parse_spec

        raw = read_device(path, self.layers)
        stated = raw.get("name")
        if name is not None and stated is not None and stated != name:
            raise InputError(f"{path}: name is {stated!r}, but must be the file's name, {name!r}.")
        spec = parse_spec(DeviceSpec, raw, str(path))
        for field, folder in (("process", "processes"), ("memory_type", "memories")):
            named = getattr(spec, field)
            try:
                if named is not None:
                    part_path(folder, named)
            except InputError as error:
                raise InputError(f"{path}: {field}: {error} Leave it out where it is none of them.") from None
        if SHIPPED not in path.parents:
            _warn_of_peaks(spec, path)
        return spec


def _warn_of_peaks(spec: DeviceSpec, path: Path) -> None:
    """Warns of peaks of a user's device that do not follow from its cores and clock and have no note."""
    from hwspecs.checks import FROM, deviations_sentence, unexplained

    if spec.architecture not in part_paths("architectures"):
        return
    raw = read_toml(path)
    peaks = raw.get("peak_flops", ())
    base = load(raw["base"]) if raw.get("base") in _shipped().names else None
    same = {field for field in FROM if base is not None and _number(base, field) == _number(spec, field)}
    stated = {*raw, *(f"peak_flops.{name}" for name in peaks)} - same
    found = unexplained(spec, load_architecture(spec.architecture), stated)
    if found:
        warnings.warn(deviations_sentence(spec, found, str(path)), InconsistentPeaks, stacklevel=3)


def _number(spec: DeviceSpec, field: str) -> object:
    value = getattr(spec, field)
    return getattr(value, "si", value)


@functools.cache
def _shipped() -> Registry:
    return Registry((scan(SHIPPED / "devices"),))


@functools.cache
def _unspecified() -> Mapping[str, str]:
    """Strings that name hardware without a specification, with what they are."""
    entries: list[dict[str, Any]] = read_toml(SHIPPED / "unspecified.toml")["entry"]
    return MappingProxyType({text: entry["what"] for entry in entries for text in entry["strings"]})


def open_registry(directories: Iterable[Directory] = ()) -> Registry:
    """The shipped devices and those of the user's directories.

    **Arguments:** `directories`: each holds one TOML file a device, named after it, or is itself such a file, of any
    name; later ones win. A file of a shipped name replaces that device; with `base = "other"` it states only what
    differs from the other device.
    """
    if isinstance(directories, str | os.PathLike):
        directories = (directories,)
    places = tuple(directories) if isinstance(directories, Iterable) else (directories,)
    if not all(isinstance(place, str | os.PathLike) for place in places):
        raise InputError(f"The folders of devices are {directories!r}; give a list of paths, empty for none.")
    user = tuple(layer_of(Path(os.path.expanduser(place))) for place in places)
    return Registry((*_shipped().layers, *user)) if user else _shipped()


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise InputError(f"A device is {name!r}; give its name, an alias or the path of a TOML file, as text.")


def load(name: str, directories: Iterable[Directory] = ()) -> DeviceSpec:
    """The specification of a device; see `Registry.load` and `open_registry`."""
    _check_name(name)
    registry = open_registry(directories)
    own = registry is not _shipped() or name.lower().endswith(".toml")
    return registry.load(name) if own else _load_shipped(name)


@functools.cache  # shipped files stay as they are, and a table of kernels asks for their devices again and again
def _load_shipped(name: str) -> DeviceSpec:
    return _shipped().load(name)


def names(directories: Iterable[Directory] = ()) -> tuple[str, ...]:
    """The names of all devices, sorted."""
    return open_registry(directories).names


def resolve(text: str, directories: Iterable[Directory] = ()) -> Resolution:
    """What a string that names hardware means; see `Registry.resolve`."""
    return open_registry(directories).resolve(text)
