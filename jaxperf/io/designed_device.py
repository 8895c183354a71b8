"""A design on disk: the device as a TOML file that every command reads, or its numbers as a table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hwspecs
from hwspecs.errors import InputError
from hwspecs.variant import variant_toml
from jaxperf.io.tables import WRITERS, check_output, json_text, write_rows
from jaxperf.io.whole_file import write_text

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec
    from jaxperf.serving.design.answer import Design

DEVICE_FILE = ".toml"
_NAME = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")


def check_design_file(path: Path | None, base: DeviceSpec) -> str:
    """The name of the device that is made: that of its file, else one from the base's.

    **Raises:** `InputError` for an ending that cannot be written, a place that cannot, or a name that no device of
    one's own can have.
    """
    check_output(path, (DEVICE_FILE, *WRITERS))
    if path is None or path.suffix.lower() != DEVICE_FILE:
        return f"{base.name}-design"
    return check_design_name(path.stem, base, "-o")


def check_design_name(name: str, base: DeviceSpec, where: str) -> str:
    """The name of a design. Raises `InputError` for one that no device of one's own can have."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"{where}: '{name}' would be the device's name; use a-z, 0-9, and - or . between them.")
    if name in (*hwspecs.names(), base.name):
        raise InputError(f"{where}: '{name}' is the name of a known device; give the design one of its own.")
    return name


def write_design(path: Path, base: DeviceSpec, found: Design, record: dict[str, Any]) -> None:
    """The device where `path` ends in .toml, else the rows of facts and measures; whole or not at all.

    **Raises:** `InputError` where it cannot be written.
    """
    if path.suffix.lower() != DEVICE_FILE:
        rest = {name: value for name, value in record.items() if name != "rows"}
        return write_rows(record["rows"], path, {"jaxperf": json_text(rest)})
    write_text(variant_toml(base, found.made.spec, found.changes), path)
