"""What the kernels do that aiconfigurator times as quantization (`collect_computescale.py` of its collectors).

`scale_matrix` writes a matrix in 8 bits with a scale that is given: vLLM's kernel has a block for each row
(csrc/quantization/w8a8/fp8/common.cu), TensorRT-LLM's one for each 2,048 elements (scaleMatrixPerTensorVec in
cpp/tensorrt_llm/common/cudaFp8Utils.cu), and the collector for SGLang divides, bounds, narrows and copies by elementary
operations of PyTorch. `compute_scale` is what TensorRT-LLM takes longer where it first has to find the scale: a second
kernel, which reads the matrix and writes one number.
"""

from __future__ import annotations

import numpy as np

from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text, as_text, repeated

BY_ROWS, COMPOSED, PROGRAMMATIC = "vllm", "sglang", "trtllm"
SCALE_ALONE, SCALE_GIVEN = "compute_scale", "scale_matrix"
# Whose instructions let a kernel start while the one before it ends (griddepcontrol, compute capability 9.0).
DEPENDENT_LAUNCH = (
    "hopper",
    "hopper-h20",
    "blackwell",
    "blackwell-ultra",
    "blackwell-gb202",
    "blackwell-gb202-geforce",
    "rubin",
)


def quantizers(table: KernelTable, architecture: Text) -> dict[str, np.ndarray]:
    """Each 1 where it is so, else 0 [R]: `by_rows`: a block for each row; `composed`: by elementary operations;
    `scale_alone`: the search for a scale; `chained`: started while the kernel before it ends.

    **Arguments:** `architecture` [R]: `DeviceSpec.architecture` of the rows' devices.
    """
    framework = as_text(table.framework)
    op = as_text(table.text["op"]) if "op" in table.text else repeated("", len(table))
    found = {
        "by_rows": framework.among((BY_ROWS,)),
        "composed": framework.among((COMPOSED,)),
        "scale_alone": op.among((SCALE_ALONE,)),
        "chained": framework.among((PROGRAMMATIC,)) & op.among((SCALE_GIVEN,)) & architecture.among(DEPENDENT_LAUNCH),
    }
    return {name: np.asarray(each, float) for name, each in found.items()}
