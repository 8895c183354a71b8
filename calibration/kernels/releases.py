"""Releases of engines beside those that were measured: the same by another spelling, and the nearest.

A release shares most of its kernels with the one before and the one after: what was learned of these is nearer to it
than what all releases have in common.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection

import numpy as np

from calibration.datasets.groups import Groups
from calibration.datasets.names import shortest_release
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text
from calibration.kernels.family import FittedFamily

BY_FORMAT = ("gemm", "mla_pre", "mla_post")  # families in which the format tells the kernel, whatever a table calls it


def with_known_releases(table: KernelTable, groups: Groups, fitted: FittedFamily) -> KernelTable:
    """The table [R] with releases as the measured rows spell them: 0.24 is 0.24.0."""
    few, known = table.take(groups.first), fitted.known("stack")
    version = np.asarray(few.version).astype(object)
    for framework, asked in {*zip(few.framework.tolist(), version.tolist(), strict=True)}:
        releases = sorted({name.partition("/")[0] for name in between(known, f"{framework}/", "")})
        same = [each for each in releases if asked and shortest_release(each) == shortest_release(asked)]
        if same and asked not in releases:
            version[np.asarray(few.framework == framework) & (version == asked)] = same[0]
    return dataclasses.replace(table, version=Text(version, groups.which))


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
