"""Whose products were timed with a host that launches each kernel, where the rest of their table replays a graph."""

from __future__ import annotations

import numpy as np

from calibration.datasets.schema import KernelTable
from calibration.datasets.text import as_text

# aiconfigurator's collector for vLLM replays a graph, but not for products in 8-bit blocks since it names their kernels
# (`use_cuda_graph=gemm_type != "fp8_block"` in its collect_gemm.py).
FRAMEWORK, FORMAT, KERNELS = "vllm", "fp8_block", "BlockScaledMMKernel"


def eager(table: KernelTable) -> np.ndarray:
    """1 for each row that a host launched while it was timed, else 0 [R]."""
    kernel = as_text(table.kernel)
    named = np.array([name.endswith(KERNELS) for name in kernel.values.tolist()], bool)[kernel.codes]
    by_host = named & as_text(table.dtype).among((FORMAT,)) & as_text(table.framework).among((FRAMEWORK,))
    return np.asarray(by_host, float)
