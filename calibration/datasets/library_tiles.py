"""Which tile an engine's kernel of 8-bit floats has: tables over rows and columns in the engines' public sources.

* vLLM on Hopper: `scaled_mm_sm90_fp8_dispatch.cuh`; up to 64 rows the operands are exchanged, so that few rows are
  columns of the instruction, and a step has 256 bytes. On Ada: `scaled_mm_c2x_sm89_fp8_dispatch.cuh`.
* SGLang: `sm90_fp8_dispatch_shape` and `sm89_fp8_dispatch_shape` in sgl-kernel's `fp8_gemm_kernel.cu`. On Hopper its
  kernels with a name, as collected since 0.5.14, have the exchange as well (`fp8_gemm_sm90_dispatch.cuh`, its pull
  request 25532).
* TensorRT-LLM's product in blocks on Ada has one tile (`gemm_dispatch_sm89` in its `fp8_blockscale_gemm_kernel.cuh`).
"""

from __future__ import annotations

import numpy as np

from calibration.datasets.text import Text

ANY = float("inf")
Table = tuple[tuple[float, float, float, float], ...]  # up to so many rows and columns: rows and columns of a tile

VLLM_HOPPER: Table = (
    (16.0, ANY, 16.0, 64.0),
    (64.0, 1280.0, 16.0, 64.0),
    (64.0, ANY, 64.0, 64.0),
    (128.0, ANY, 64.0, 128.0),
    (ANY, ANY, 128.0, 128.0),
)
VLLM_ADA: Table = (
    (16.0, 8192.0, 16.0, 64.0),
    (16.0, 16384.0, 16.0, 128.0),
    (32.0, 8192.0, 32.0, 64.0),
    (32.0, 16384.0, 32.0, 128.0),
    (32.0, ANY, 32.0, 64.0),
    (64.0, 8192.0, 64.0, 64.0),
    (64.0, 16384.0, 64.0, 128.0),
    (64.0, ANY, 64.0, 64.0),
    (128.0, 8192.0, 64.0, 128.0),
    (128.0, 16384.0, 128.0, 128.0),
    (128.0, ANY, 128.0, 64.0),
    (256.0, 4096.0, 64.0, 128.0),
    (256.0, ANY, 128.0, 128.0),
    (ANY, 4096.0, 128.0, 128.0),
    (ANY, 8192.0, 256.0, 128.0),
    (ANY, ANY, 128.0, 128.0),
)
SGLANG_HOPPER: Table = ((256.0, ANY, 64.0, 64.0), (ANY, ANY, 128.0, 128.0))
SGLANG_ADA: Table = (
    (1.0, 8192.0, 16.0, 64.0),
    (1.0, ANY, 32.0, 64.0),
    (16.0, 8192.0, 16.0, 64.0),
    (16.0, 16384.0, 32.0, 64.0),
    (16.0, ANY, 16.0, 64.0),
    (64.0, 16384.0, 32.0, 64.0),
    (64.0, ANY, 16.0, 64.0),
    (128.0, 16384.0, 64.0, 64.0),
    (128.0, ANY, 32.0, 64.0),
    (256.0, 8192.0, 128.0, 64.0),
    (256.0, 16384.0, 64.0, 128.0),
    (256.0, ANY, 128.0, 64.0),
    (ANY, ANY, 128.0, 128.0),
)
SWAPPED_HOPPER: Table = (
    (16.0, ANY, 16.0, 64.0),
    (64.0, 1280.0, 16.0, 64.0),
    (32.0, ANY, 32.0, 64.0),
    (64.0, ANY, 64.0, 64.0),
    (128.0, 4096.0, 64.0, 64.0),
    (128.0, ANY, 64.0, 128.0),
    (ANY, ANY, 128.0, 128.0),
)
TRTLLM_BLOCKS_ADA: Table = ((ANY, ANY, 32.0, 128.0),)
TABLES: tuple[Table, ...] = (
    VLLM_HOPPER,
    VLLM_ADA,
    SGLANG_HOPPER,
    SGLANG_ADA,
    SWAPPED_HOPPER,
    TRTLLM_BLOCKS_ADA,
)
HOPPER, ADA = ("hopper", "hopper-h20"), ("ada", "ada-geforce")
BY_SGL_KERNEL = ("sglang_sgl_kernel_fp8_scaled_mm",)


EXCHANGED = tuple(1.0 + TABLES.index(each) for each in (VLLM_HOPPER, SWAPPED_HOPPER))


def tile_table(framework: Text, kernel: Text, architecture: Text, blocks: np.ndarray) -> np.ndarray:
    """The number of each row's table in `TABLES`, from one; 0 where none is known of its engine and device [R].

    **Arguments:** names of rows of 8-bit floats; `blocks` [R]: whether their scales are of blocks.
    """
    hopper, ada = architecture.among(HOPPER), architecture.among(ADA)
    vllm = framework.among(("vllm",)) & ~blocks
    sglang = framework.among(("sglang",)) & ~kernel.among(("",)) & ~blocks  # unnamed ones are of other tables
    swapped = kernel.among(BY_SGL_KERNEL)
    found = np.zeros(len(blocks))
    for table, at in (
        (VLLM_HOPPER, vllm & hopper),
        (VLLM_ADA, vllm & ada),
        (SGLANG_HOPPER, sglang & ~swapped & hopper),
        (SWAPPED_HOPPER, sglang & swapped & hopper),
        (SGLANG_ADA, sglang & ada),
        (TRTLLM_BLOCKS_ADA, framework.among(("trtllm",)) & blocks & ada),
    ):
        found[at] = 1.0 + TABLES.index(table)
    return found
