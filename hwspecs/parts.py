"""What devices are made of, each kind in a folder of its own: links, architectures, processes, memories."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hwspecs.errors import InputError, did_you_mean
from hwspecs.files import SHIPPED, read_toml, scan

if TYPE_CHECKING:
    from hwspecs.schema import ArchitectureSpec, LinkSpec, MemorySpec, ProcessSpec, Spec

_Part = TypeVar("_Part", bound="Spec")


def load_link(name: str) -> LinkSpec:
    """The specification of a link, such as nvlink4."""
    from hwspecs.schema import LinkSpec

    return _load_part("links", name, LinkSpec)


def load_architecture(name: str) -> ArchitectureSpec:
    """The specification of an architecture, such as hopper."""
    from hwspecs.schema import ArchitectureSpec

    return _load_part("architectures", name, ArchitectureSpec)


def load_process(name: str) -> ProcessSpec:
    """The specification of a manufacturing process, such as tsmc-4n."""
    from hwspecs.schema import ProcessSpec

    return _load_part("processes", name, ProcessSpec)


def load_memory(name: str) -> MemorySpec:
    """The specification of a kind of memory, such as hbm3."""
    from hwspecs.schema import MemorySpec

    return _load_part("memories", name, MemorySpec)


@functools.cache  # shipped files stay as they are, and a ranking asks for them device by device
def _load_part(folder: str, name: str, spec: type[_Part]) -> _Part:
    from hwspecs.schema import parse_spec

    path = part_path(folder, name)
    return parse_spec(spec, read_toml(path), str(path))


def part_path(folder: str, name: str) -> Path:
    """The file of a part. Raises `InputError` with the nearest names for one that has none."""
    paths = part_paths(folder)
    if name not in paths:
        raise InputError(f"{name!r} is not in {folder}.{did_you_mean(name, paths)} Known: {', '.join(paths)}.")
    return paths[name]


@functools.cache
def part_paths(folder: str) -> Mapping[str, Path]:
    """The files of a folder, by name."""
    return scan(SHIPPED / folder)
