"""The operations that are measured, in the order in which their points take turns."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from calibration.microbench.attention import DECODE, DECODE_CUDNN, PREFILL, PREFILL_CUDNN
from calibration.microbench.elementwise import ADD, GELU
from calibration.microbench.gemm import BMM, GEMM, GEMM_FP8
from calibration.microbench.moe import MOE
from calibration.microbench.operation import Operation
from calibration.microbench.quantize import QUANTIZE
from calibration.microbench.rows import EMBEDDING, LAYERNORM, RMSNORM, SOFTMAX

# Collectives are not here: they depend on the devices there are (`collectives.collectives`).
OPERATIONS = (GEMM, BMM, PREFILL, DECODE, RMSNORM, LAYERNORM, SOFTMAX, ADD, GELU, EMBEDDING, MOE, QUANTIZE)
# XLA multiplies fp32 matrices on the TF32 units of a GPU, whatever precision is asked for: they are not rows of fp32.
_HALF = tuple(dataclasses.replace(each, dtypes=("bf16", "fp16")) for each in (GEMM, BMM, MOE))
_OTHERS = {each.name: each for each in (*_HALF, PREFILL_CUDNN, DECODE_CUDNN)}
OF_GPUS = (*(_OTHERS.get(each.name, each) for each in OPERATIONS), GEMM_FP8)


def operations(platform: str) -> tuple[Operation, ...]:
    """The operations of a kind of device, "cpu" or "gpu": GPUs have fused attention and products of 8-bit floats."""
    return OF_GPUS if platform == "gpu" else OPERATIONS


def families(operations: Sequence[Operation] = OPERATIONS) -> tuple[str, ...]:
    """The families of the operations, each once, in their order."""
    return tuple(dict.fromkeys(operation.family for operation in operations))
