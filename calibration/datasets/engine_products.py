"""What engines do around and inside a product of 8-bit floats, by the public sources of engines and collector.

Tables of aiconfigurator measure a layer: activations come in 16 bits, are quantized, and multiplied
(`collect_gemm.py` of collector/vllm, sglang, trtllm). Whose library multiplies is the engine's choice:

* vLLM and SGLang: CUTLASS (`cutlass_scaled_mm`, `fp8_scaled_mm`), and DeepGEMM or its like where scales are of blocks;
  neither divides a reduction. TensorRT-LLM: cuBLAS, which does, but not where scales are of blocks.
* vLLM as it was collected until 0.14, with kernels unnamed: quantized by elementary operations of PyTorch
  (`QuantFP8.forward_native`), since its default is to leave them to a compiler that the collector does not run.
"""

from __future__ import annotations

import numpy as np

from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text, as_text

BY_BLOCKS = "fp8_block"
EIGHT_BITS = ("fp8", BY_BLOCKS)
COLLECTED = ("vllm", "sglang", "trtllm")
UNDIVIDED = ("vllm", "sglang")
UNNAMED, NATIVE = "vllm_default", ("0.14",)
# Whose matrix instructions are of four warps together (wgmma, tcgen05), so that no tile is small.
BY_WARP_GROUPS = ("hopper", "hopper-h20", "blackwell", "blackwell-ultra")


def engine_products(table: KernelTable, architecture: Text) -> dict[str, np.ndarray]:
    """Each 1 where it is so, else 0 [R]: `quantized`: the left-hand side is first written in the weights' format;
    `composed`: by elementary operations; `unsplit`: the library leaves reductions whole, and then takes `small_tiles`.

    **Arguments:** `architecture` [R]: `DeviceSpec.architecture` of the rows' devices.
    """
    framework, kernel, version = (as_text(each) for each in (table.framework, table.kernel, table.version))
    narrow, blocks = (as_text(table.dtype).among(names) for names in (EIGHT_BITS, (BY_BLOCKS,)))
    layer = narrow & framework.among(COLLECTED) & ~kernel.among(("",))
    old = np.array([name.startswith(NATIVE) for name in version.values.tolist()], bool)[version.codes]
    unsplit = (narrow & framework.among(UNDIVIDED)) | (blocks & framework.among(COLLECTED))
    found = {
        "quantized": layer,
        "composed": layer & kernel.among((UNNAMED,)) & old,
        "unsplit": unsplit,
        "small_tiles": unsplit & ~architecture.among(BY_WARP_GROUPS),
    }
    return {name: np.asarray(each, float) for name, each in found.items()}
