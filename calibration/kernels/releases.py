"""Releases of engines beside those that were measured: the same by another spelling, and the nearest.

A release that was never measured on a device shares most of its kernels with the one before and the one after: what was
learned of these there is nearer to it than what all releases have in common.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection

import numpy as np

from calibration.datasets.groups import Groups
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text
from calibration.kernels.family import FittedFamily
from calibration.kernels.levels import spell_each

BY_FORMAT = ("gemm", "mla_pre", "mla_post")  # families in which the format tells the kernel, whatever a table calls it


def with_known_releases(table: KernelTable, groups: Groups, fitted: FittedFamily) -> KernelTable:
    """The table [R] with releases as the measured rows spell them: 0.24 is 0.24.0."""
    few, known = table.take(groups.first), fitted.known("stack")
    version = np.asarray(few.version).astype(object)
    for framework, asked in {*zip(few.framework.tolist(), version.tolist(), strict=True)}:
        releases = sorted({name.partition("/")[0] for name in between(known, f"{framework}/", "")})
        same = [each for each in releases if asked and _shortest(each) == _shortest(asked)]
        if same and asked not in releases:
            version[np.asarray(few.framework == framework) & (version == asked)] = same[0]
    return dataclasses.replace(table, version=Text(version, groups.which))


def nearest_measured(few: KernelTable, fitted: FittedFamily) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Names at every level by which rows of a release that was never measured on their device are known there [G], and
    which rows have such [G]: those of the nearest release of their framework, of two as near the newer, that was
    measured on it in their format and with their kernel. A row without a kernel takes the only one of that release, and
    so does a product, whose kernel the format tells. The stack stays its own where that was measured elsewhere.
    """
    spelled, known = spell_each(few), fitted.names.known
    own, near = np.isin(spelled["cell"].astype(str), known["cell"]), np.zeros(len(few), bool)
    version, kernel = (np.asarray(column).astype(object) for column in (few.version, few.kernel))
    for row in np.flatnonzero(~own & np.asarray(few.version != "") & np.asarray(few.framework != "")).tolist():
        start, end = f"{few.device[row]}/{few.framework[row]}/", f"/{spelled['format'][row]}"
        stands_in = stand_in(version[row], kernel[row], few.family, between(known["cell"], start, end))
        if stands_in is not None:
            version[row], kernel[row] = stands_in
            near[row] = True
    named = spell_each(dataclasses.replace(few, version=version, kernel=kernel))
    there = np.isin(spelled["stack"].astype(str), known["stack"])
    return {**named, "stack": np.where(there, spelled["stack"], named["stack"])}, near


def stand_in(version: str, kernel: str, family: str, measured: Collection[str]) -> tuple[str, str] | None:
    """The release and its kernel, of those `measured` ("release/kernel"), that stand in for one that was not; None
    where there are none, or several kernels."""
    kernels: dict[str, set[str]] = {}
    for name in measured:
        release, _, its = name.partition("/")
        kernels.setdefault(release, set()).add(its)
    if any(kernel in each for each in kernels.values()):
        kernels = {release: {kernel} for release, each in kernels.items() if kernel in each}
    elif not kernels or (kernel and family not in BY_FORMAT):
        return None
    nearest = min(kernels, key=lambda release: _apart(version, release))
    return (nearest, kernels[nearest].pop()) if len(kernels[nearest]) == 1 else None


def between(names: Collection[str], start: str, end: str) -> set[str]:
    """What stands between `start` and `end` in the names that have both, apart."""
    longest = len(start) + len(end)
    found = (name for name in names if len(name) >= longest and name.startswith(start) and name.endswith(end))
    return {name[len(start) : len(name) - len(end)] for name in found}


def _apart(version: str, release: str) -> tuple[list[int], list[int]]:
    """How far a release is from a version, number by number; of two as near the newer is less, and so it is of all
    where the version has no number ("nightly")."""
    asked, there = _numbers(version), _numbers(release)
    pairs = list(itertools.zip_longest(asked, there, fillvalue=0))
    return [abs(one - other) for one, other in pairs if asked], [one - other for one, other in pairs]


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,9}", version)]


def _shortest(version: str) -> str:
    """A version without the zeros at its end: the same release (PEP 440)."""
    return re.sub(r"(\.0)+$", "", version)
