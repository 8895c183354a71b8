"""Which latent caches are converted as a whole before attention reads them, and not while it does."""

from __future__ import annotations

import numpy as np

from calibration.datasets.schema import KernelTable
from calibration.datasets.text import as_text

# SGLang's absorbed latent attention by kernels that take no 8-bit latents: forward_decode of its
# flashattention_backend.py and flashinfer_mla_backend.py casts the layer's buffer to the format of the queries.
FRAMEWORKS = ("sglang",)
KERNELS = ("flash_attention", "fa3", "flashinfer")


def converted(table: KernelTable, rows: np.ndarray) -> np.ndarray:
    """1 for each of some rows whose kernel converts a narrow cache as a whole, else 0 [as `rows`]."""
    framework, kernel = as_text(table.framework)[rows], as_text(table.kernel)[rows].translated(str.lower)
    return (framework.among(FRAMEWORKS) & kernel.among(KERNELS)).astype(float)
