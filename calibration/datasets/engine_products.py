"""What engines do around and inside a product of 8-bit floats, by the public sources of engines and collector.

Tables of aiconfigurator measure a layer: activations come in 16 bits, are quantized, and multiplied
(`collect_gemm.py` of collector/vllm, sglang, trtllm). Whose library multiplies is the engine's choice:

* vLLM and SGLang: CUTLASS (`cutlass_scaled_mm`, `fp8_scaled_mm`), and DeepGEMM or its like where scales are of blocks;
  neither divides a reduction. TensorRT-LLM: cuBLAS, which does, but not where scales are of blocks; its SmoothQuant
  plugin takes CUTLASS's int8 kernels, which do not.
* vLLM as it was collected until 0.14, with kernels unnamed: quantized by elementary operations of PyTorch
  (`QuantFP8.forward_native`), since its default is to leave them to a compiler that the collector does not run: to
  fp32, scaled, bounded, to 8 bits; of blocks besides magnitude, maximum, its fp32, its scale and bound, and a copy.
  As it was collected since, with kernels named, CUTLASS's layers have the operations compiled to one kernel
  (`CustomOp.maybe_compile`). What that kernel waits for is read off the rows (`calibration.kernels.quantizing`).
* TensorRT-LLM's scale of a whole tensor: a clearing of memory, the maximum, and the quantization by it
  (`quantize_e4m3_per_tensor`). Others', and that of blocks: one kernel.
"""

from __future__ import annotations

import numpy as np

from calibration.datasets.library_tiles import EXCHANGED, tile_table
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text, as_text

BY_BLOCKS = "fp8_block"
EIGHT_BITS = ("fp8", BY_BLOCKS)
COLLECTED = ("vllm", "sglang", "trtllm")
UNDIVIDED = ("vllm", "sglang")
SMOOTH = ("sq",)
ONCE, WHOLE_TENSOR, APART, APART_IN_BLOCKS = 1.0, 3.0, 4.0, 10.0  # kernels before the product [1]
# Bytes an element that those move: read in 16 bits, written in 8; once more for the maximum of a tensor; to fp32
# (2, 4), scaled (4, 4), bounded (4, 4), to 8 bits (4, 1), and of blocks besides its magnitude (2, 2), their maximum (2)
# and a copy (1, 1).
MOVED_ONCE, MOVED_SEARCHED, MOVED_APART = 3.0, 5.0, (35.0, 27.0)
SGLANG_INPUTS = 6.0  # of a layer that SGLang's collector takes in turn; others have one for all copies of the layer
UNNAMED, NATIVE = "vllm_default", ("0.14",)
COMPILED = ("CutlassFP8ScaledMMLinearKernel",)  # vLLM's name of such a layer
WEIGHTS_ALONE = ("xe2",)  # where vLLM multiplies activations in 16 bits (recalled: fp8_gemm_w8a16 of its XPU kernels)
# Whose matrix instructions are of four warps together (wgmma, tcgen05), so that no tile is small.
BY_WARP_GROUPS = ("hopper", "hopper-h20", "blackwell", "blackwell-ultra", "rubin")


def engine_products(table: KernelTable, architecture: Text) -> dict[str, np.ndarray]:
    """Each 1 where it is so, else 0 [R]: `quantized`: the left-hand side is first written in the weights' format;
    `composed`: by elementary operations, `compiled`: by what a compiler made of them; `unsplit`: the library leaves
    reductions whole, and then takes `small_tiles`, or `tall_tiles` alone (SGLang's products of H20 and H800 take as
    long for 4 rows as for 128), and has its loads `deep` in flight; `exchanged`: few rows are columns of its
    instruction; `row_a_warp`: many rows are quantized by a warp each. Besides, all [R]: `kernels`: how many run one
    after the other; `quantizing`: bytes an element that those before the product move; `inputs`: left-hand sides that
    the collector takes in turn; `tile_table`: number of the library's table of tiles (`library_tiles`).

    **Arguments:** `architecture` [R]: `DeviceSpec.architecture` of the rows' devices.
    """
    framework, kernel, version = (as_text(each) for each in (table.framework, table.kernel, table.version))
    narrow, blocks = (as_text(table.dtype).among(names) for names in (EIGHT_BITS, (BY_BLOCKS,)))
    narrow &= ~architecture.among(WEIGHTS_ALONE)
    layer = narrow & framework.among(COLLECTED) & ~kernel.among(("",))
    old = np.array([name.startswith(NATIVE) for name in version.values.tolist()], bool)[version.codes]
    unsplit = (narrow & framework.among(UNDIVIDED)) | (blocks & framework.among(COLLECTED))
    unsplit |= as_text(table.dtype).among(SMOOTH)
    composed = layer & kernel.among((UNNAMED,)) & old
    of_tensor = framework.among(("trtllm",)) & ~blocks
    before = np.where(composed, np.where(blocks, APART_IN_BLOCKS, APART), np.where(of_tensor, WHOLE_TENSOR, ONCE))
    moved = np.where(composed, np.where(blocks, *MOVED_APART), np.where(of_tensor, MOVED_SEARCHED, MOVED_ONCE))
    table_of = narrow * tile_table(framework, kernel, architecture, blocks)
    found = {
        "quantized": layer,
        "composed": composed,
        "compiled": layer & kernel.among(COMPILED),
        "unsplit": unsplit,
        "small_tiles": unsplit & ~architecture.among(BY_WARP_GROUPS),
        "tall_tiles": narrow & framework.among(("sglang",)) & kernel.among(("",)),
        "deep": unsplit & ~blocks,
        "kernels": 1.0 + layer * before,
        "quantizing": layer * moved,
        "row_a_warp": layer & framework.among(("sglang",)) & ~blocks,
        "inputs": np.where(framework.among(("sglang",)), SGLANG_INPUTS, 1.0),
        "tile_table": table_of,
        "exchanged": np.isin(table_of, EXCHANGED),
    }
    return {name: np.asarray(each, float) for name, each in found.items()}
