"""What a table of collectives leaves open, as the parameters know it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from calibration.collectives.names import DEVICE_PARTS, KIND_PARTS
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import repeated

Release = tuple[str, ...]  # operation, device, number format (of both "": any), framework, version


def with_known_kernels(table: KernelTable, cells: Sequence[str]) -> tuple[KernelTable, np.ndarray]:
    """The table [R] with a kernel for the rows that name a release and no kernel of it, and which rows have one so [R].

    It is the only one that was measured of that release for their operation: in their format and on their device or,
    where that has none, on any, then in any format. A row of a release with several stays as it is.

    **Arguments:** `cells`: names of the level "cell setting" that were learned of.
    """
    none = repeated("", len(table))
    columns = (table.text.get("op", none), table.device, table.dtype, table.framework, table.version)
    own = np.asarray(table.kernel).astype(object)
    silent = (own == "") & np.asarray(table.framework != "") & np.asarray(table.version != "")
    if not silent.any():
        return table, silent
    known = measured_kernels(cells)
    places = np.flatnonzero(silent)
    asked = zip(*(np.asarray(column)[places].tolist() for column in columns), strict=True)
    own[places] = [_only(known, *release) for release in asked]
    return dataclasses.replace(table, kernel=own), silent & (own != "")


def measured_kernels(cells: Sequence[str]) -> Mapping[Release, frozenset[str]]:
    """The kernels of every release, on each device and in each format and on or in any."""
    found: dict[Release, set[str]] = {}
    for name in cells:
        parts = name.split("/")
        operation, device = parts[0], parts[KIND_PARTS]
        kernel, dtype, framework, version = parts[KIND_PARTS + DEVICE_PARTS :][:4]
        for where, form in itertools.product((device, ""), (dtype, "")):
            found.setdefault((operation, where, form, framework, version), set()).add(kernel)
    return {release: frozenset(kernels) for release, kernels in found.items()}


def _only(
    known: Mapping[Release, frozenset[str]], operation: str, device: str, dtype: str, framework: str, version: str
) -> str:
    places = itertools.product((dtype, ""), (device, ""))
    found = (known.get((operation, where, form, framework, version)) for form, where in places)
    kernels = next(filter(None, found), frozenset())
    return next(iter(kernels)) if len(kernels) == 1 else ""
