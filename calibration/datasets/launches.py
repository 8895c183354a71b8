"""Whose kernels were timed with a host that launches each: the products of some tables that replay a graph for others,
and the products and streams of tables that time every call of PyTorch."""

from __future__ import annotations

import numpy as np

from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text, as_text

# aiconfigurator's collector for vLLM replays a graph, but not for products in 8-bit blocks since it names their kernels
# (`use_cuda_graph=gemm_type != "fp8_block"` in its collect_gemm.py).
# On Intel's GPUs no product takes less than 21 us (fp8) or 34 us (bf16): none is replayed.
WITHOUT_GRAPHS = ("xe2",)
FRAMEWORK, FORMAT, KERNELS = "vllm", "fp8_block", "BlockScaledMMKernel"


def eager(table: KernelTable, architecture: Text) -> np.ndarray:
    """1 for each row that a host launched while it was timed, else 0 [R].

    **Arguments:** `architecture` [R]: `DeviceSpec.architecture` of the rows' devices.
    """
    kernel = as_text(table.kernel)
    named = np.array([name.endswith(KERNELS) for name in kernel.values.tolist()], bool)[kernel.codes]
    by_host = (named & as_text(table.dtype).among((FORMAT,))) | architecture.among(WITHOUT_GRAPHS)
    return np.asarray(by_host & as_text(table.framework).among((FRAMEWORK,)), float)


# NeuSight and LLMCompass time calls of PyTorch between two events of the host; others ask the profiler what the device
# took, as those do that are read from its files (`PROFILED`). The name may go on with how it was built
# (`composition.kernel_times.framework_on`).
CALLED, PROFILED = "torch", "torch_profiler"


def called(table: KernelTable) -> np.ndarray:
    """1 for each row whose time is that of a call by the host, else 0 [R]."""
    framework = as_text(table.framework)
    names = [name.startswith(CALLED) and name != PROFILED for name in framework.values.tolist()]
    named = np.array(names, bool)[framework.codes]
    return np.asarray(named, float)
