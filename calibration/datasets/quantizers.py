"""What the kernels do that aiconfigurator times as quantization (`collect_computescale.py` of its collectors).

`scale_matrix` writes a matrix in 8 bits with a scale that is given: vLLM's kernel has a block for each row
(csrc/quantization/w8a8/fp8/common.cu), TensorRT-LLM's one for each 2,048 elements (scaleMatrixPerTensorVec in
cpp/tensorrt_llm/common/cudaFp8Utils.cu), and SGLang's collector divides, bounds, narrows and copies by elementary
operations of PyTorch. `compute_scale` is what TensorRT-LLM takes longer where it first has to find the scale: a second
kernel, which reads the matrix and writes one number.
"""

from __future__ import annotations

import numpy as np

from calibration.datasets.schema import KernelTable
from calibration.datasets.text import as_text

BY_ROWS, COMPOSED, PROGRAMMATIC = "vllm", "sglang", "trtllm"
SCALE_ALONE, SCALE_GIVEN = "compute_scale", "scale_matrix"
# Whose instructions let a kernel start while the one before it ends (griddepcontrol, compute capability 9.0).
DEPENDENT_LAUNCH = ("hopper", "hopper-h20", "blackwell", "blackwell-ultra", "blackwell-gb202", "blackwell-gb202-geforce")


def quantizers(table: KernelTable, architecture: np.ndarray) -> dict[str, np.ndarray]:
    framework = as_text(table.framework)
    op = as_text(table.text["op"]) if "op" in table.text else as_text(np.full(len(table), "", object))
    found = {
        "by_rows": framework.among((BY_ROWS,)),
        "composed": framework.among((COMPOSED,)),
        "scale_alone": op.among((SCALE_ALONE,)),
        "chained": op.among((SCALE_GIVEN,)) & framework.among((PROGRAMMATIC,)) & architecture.among(DEPENDENT_LAUNCH),
    }
    return {name: np.asarray(each, float) for name, each in found.items()}
