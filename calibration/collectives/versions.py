"""Which version of NCCL's cost model a row was run by: its trees and its rings with LL changed after 2.20."""

from __future__ import annotations

import re

import numpy as np

from jaxperf.network.nccl_constants import NEW, OLD, VERSIONS

LAST_OLD = (2, 20)
NCCL = ("nccl", "")  # frameworks whose version is that of NCCL itself
# Vidur's rows state its commit. They are of before its publication in 2024, by the PyTorch of CUDA 12.1 that
# Sarathi-Serve's README names: 2.1 to 2.3, which bring NCCL 2.18 to 2.20.
WITH_OLD = ("vidur",)
_NUMBERS = re.compile(r"(\d{1,9})\.(\d{1,9})")


def model_versions(framework: np.ndarray, version: np.ndarray) -> np.ndarray:
    """Place in `VERSIONS` of rows of a framework and its version; the newer one where neither tells [R]."""
    each = zip(framework.tolist(), version.tolist(), strict=True)
    return np.array([VERSIONS.index(OLD if _is_old(name.lower(), stated) else NEW) for name, stated in each], int)


def _is_old(framework: str, version: str) -> bool:
    found = _NUMBERS.match(version)
    by_number = framework in NCCL and found is not None and tuple(map(int, found.groups())) <= LAST_OLD
    return framework in WITH_OLD or by_number
