"""Ways: what a kernel does that its shape does not say, as far as the names of its software tell it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import hwspecs
from calibration.datasets.caches import latent_reading
from calibration.datasets.decode_kernels import SHARED, decode_reading
from calibration.datasets.engine_products import EIGHT_BITS, engine_products
from calibration.datasets.instructions import by_warps
from calibration.datasets.launches import called, eager
from calibration.datasets.mixed_kernels import mixed_reading
from calibration.datasets.norms import COMPOSING, VLLM_KERNELS, blocks_of_norms, composed
from calibration.datasets.prefills import prefill_blocks
from calibration.datasets.quantizers import quantizers
from calibration.datasets.routing import PARTITIONED, routing
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text, as_text
from calibration.kernels.regimes import VECTOR_FORMATS
from calibration.kernels.vector_products import set_of

GATES = ("act_fn", "mlp_act")  # the activation of a feed-forward layer, and its product with a second projection


def ways_of(table: KernelTable, directories: Sequence[str | Path] = ()) -> dict[str, np.ndarray]:
    """The ways of a family by name: 1 for each row whose kernel has it, else 0 [R]; none where none is known. Of decode
    attention: the fields of `Reading`.

    **Arguments:** `table`: rows of known devices; `directories`: of the user's own devices.
    """
    if table.family == "norm":
        return {"composed": composed(table), "eager": called(table)} | blocks_of_norms(table)
    if table.family == "softmax":
        return {"eager": called(table)}
    if table.family == "elementwise":
        return {"composed": _composed(table), "eager": called(table)}
    if table.family == "quantize":
        return quantizers(table, _architectures(table, directories))
    if table.family == "rope":
        return {"composed": _composed(table), "scalar": np.asarray(as_text(table.framework).among(VLLM_KERNELS), float)}
    if table.family in ("attention_prefill", "mla_prefill"):
        return prefill_blocks(table, _architectures(table, directories)) | {"shared": _shared(table, directories)}
    if table.family == "attention_decode":
        return decode_reading(table, _architectures(table, directories), _shared(table, directories))
    if table.family == "attention_mixed":
        return mixed_reading(table, _architectures(table, directories), _shared(table, directories))
    if table.family == "mla_decode":
        return latent_reading(table, _architectures(table, directories), _shared(table, directories))
    if table.family == "moe":
        architecture = _architectures(table, directories)
        return by_warps(table, architecture) | routing(table, architecture)
    if table.family in ("mla_pre", "mla_post"):
        return {"quantized": _narrow(table).astype(float)}
    if table.family in ("bmm", "convolution"):
        architecture = _architectures(table, directories)
        return {"batch_tiles": np.array([set_of(str(name)) for name in architecture.values])[architecture.codes]}
    if table.family == "gemm":
        architecture = _architectures(table, directories)
        # On vector units all were timed so, and the floor is that of a call.
        calls = called(table) * ~as_text(table.dtype).among(VECTOR_FORMATS)
        halves = {"partitioned": architecture.among(PARTITIONED).astype(float)}
        return engine_products(table, architecture) | halves | {"eager": np.maximum(eager(table, architecture), calls)}
    return {}


def _composed(table: KernelTable) -> np.ndarray:
    """1 for each rotary embedding or activation that a model's eager code makes of elementary operations, else 0."""
    apart = as_text(table.framework).among(COMPOSING)
    if table.family == "elementwise":
        apart = apart & (as_text(table.text["op"]).among(GATES) if "op" in table.text else False)
    return np.asarray(apart, float)


def _narrow(table: KernelTable) -> np.ndarray:
    # The products of absorbed latent attention quantize their left-hand side first in these formats, a block a row of
    # it (SGLang's per_tensor_quant_mla_fp8, TensorRT-LLM's fp8_batched_quantize_1x128_permute102).
    return as_text(table.dtype).among(EIGHT_BITS)


def _architectures(table: KernelTable, directories: Sequence[str | Path]) -> Text:
    device = as_text(np.asarray(table.device))  # none but those that occur
    return device.translated(lambda name: hwspecs.load(name, directories).architecture)


def _shared(table: KernelTable, directories: Sequence[str | Path]) -> np.ndarray:
    """Shared memory of a core of each row's device [byte]."""
    device = as_text(np.asarray(table.device))
    stated = [hwspecs.load(str(name), directories).shared_memory_per_core for name in device.values]
    return np.array([each.si if each else SHARED for each in stated], float)[device.codes]
