"""Whose kernels use a matrix instruction of an older generation."""

from __future__ import annotations

import numpy as np

from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text, as_text

BY_WARPS = "marlin"  # written for Ampere's mma, and not with Hopper's wgmma (vLLM's pull request 7174)
BY_WARP_GROUPS = ("hopper",)  # where instructions of four warps together are the faster ones


def by_warps(table: KernelTable, architecture: Text) -> dict[str, np.ndarray]:
    """`by_warps` [R]: 1 for each row whose kernel leaves the faster instructions of its device unused, else 0.

    **Arguments:** `architecture` [R]: `DeviceSpec.architecture` of the rows' devices.
    """
    kernel = as_text(table.kernel)
    named = np.array([BY_WARPS in name.lower() for name in kernel.values.tolist()], bool)[kernel.codes]
    return {"by_warps": (named & architecture.among(BY_WARP_GROUPS)).astype(float)}
