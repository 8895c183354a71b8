"""Find and read specification files, which are TOML only."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hwspecs.errors import InputError

SHIPPED = Path(__file__).parent
Layer = Mapping[str, Path]  # device files of one directory, by device name; later layers override earlier ones


def scan(directory: Path) -> Layer:
    """List the `*.toml` files of a directory without reading them; the file name is the device name."""
    if not directory.is_dir():
        raise InputError(f"{directory} is not a directory; give a directory that holds device files (*.toml).")
    return MappingProxyType({path.stem: path for path in _device_files(directory)})


def layer_of(place: Path) -> Layer:
    """The device files of a directory, or one device file alone, under the name that it states."""
    if place.suffix.lower() != ".toml" or place.is_dir():
        return scan(place)
    return MappingProxyType({str(read_header(place).get("name", place.stem)): place})


def _device_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix.lower() == ".toml")


def read_toml(path: Path) -> dict[str, Any]:
    """Parse one TOML file.

    **Raises:** `InputError` where the file cannot be read, is not TOML, or has an integer of thousands of digits or
    brackets nested thousands deep.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        problem = str(error)
        raise InputError(f"{path}: this is not valid TOML: {problem[:1].lower()}{problem[1:]}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: this is not text in UTF-8.") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path}: this is not valid TOML: a number is too long or brackets nest too deep.") from None
    except OSError as error:
        raise InputError(f"{path}: the file cannot be read ({error.strerror}).") from None


def read_header(path: Path) -> dict[str, Any]:
    """The keys before the first table, such as name and aliases; ten times faster than the whole file."""
    try:
        head = path.read_text(encoding="utf-8-sig").partition("\n[")[0]
        return tomllib.loads(head)
    except (ValueError, RecursionError, OSError):
        return read_toml(path)  # raises the message, or copes with an unusual layout
