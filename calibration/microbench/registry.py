"""The operations that are measured, in the order in which their points take turns."""

from __future__ import annotations

from collections.abc import Sequence

from calibration.microbench.attention import DECODE, PREFILL
from calibration.microbench.elementwise import ADD, GELU
from calibration.microbench.gemm import BMM, GEMM
from calibration.microbench.moe import MOE
from calibration.microbench.operation import Operation
from calibration.microbench.quantize import QUANTIZE
from calibration.microbench.rows import EMBEDDING, LAYERNORM, RMSNORM, SOFTMAX

# Collectives are not here: they depend on the devices there are (`collectives.collectives`).
OPERATIONS = (GEMM, BMM, PREFILL, DECODE, RMSNORM, LAYERNORM, SOFTMAX, ADD, GELU, EMBEDDING, MOE, QUANTIZE)


def families(operations: Sequence[Operation] = OPERATIONS) -> tuple[str, ...]:
    """The families of the operations, each once, in their order."""
    return tuple(dict.fromkeys(operation.family for operation in operations))
