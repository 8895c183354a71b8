"""Which norm a row is of: a table says where in a layer it stands, the model's config what it computes.

A LayerNorm is one kernel everywhere; an RMSNorm that a library composes of elementary operations moves nine times the
bytes. Rows of both under one name would teach a time that neither has.
"""

from __future__ import annotations

import functools
import os

import numpy as np

from calibration.datasets.groups import grouped
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text, as_text
from hwspecs.errors import InputError
from jaxperf.io.huggingface import load_model

# Whose eager model code makes an RMSNorm of elementary operations (LlamaRMSNorm.forward in transformers).
COMPOSING = ("hf_torch",)
RMS_NORM = "rms_norm"
LAYER_NORM = "layer_norm"
# Threads that share a row, and elements that each loads at a time: four warps and four in PyTorch's LayerNorm
# (vectorized_layer_norm_kernel, in aten/src/ATen/native/cuda/layer_norm_kernel.cu); a block of up to 1,024 in vLLM's
# RMSNorm (csrc/layernorm_kernels.cu), which loads one at a time in Vidur's copy of 2024. Since 2025 it loads 16 bytes;
# but the rows of the one device that measured it (RTX 4090) take as long.
OF_TORCH, OF_VLLM = (128.0, 4.0), (1024.0, 1.0)
VLLM_KERNELS = ("vidur", "vllm")


def with_kind(table: KernelTable) -> KernelTable:
    """A table of norms whose `op` says "input_layernorm/rms_norm" where `model` names a model that is known."""
    if not {"op", "model"} <= set(table.text):
        return table
    op, model = (as_text(table.text[name]) for name in ("op", "model"))
    pairs = grouped([op, model])
    spelled = [
        f"{word}/{kind}" if (kind := kind_of(name)) else word
        for word, name in zip(op[pairs.first], model[pairs.first], strict=True)
    ]
    table.text["op"] = Text(np.array(spelled, object), pairs.which)
    return table


@functools.cache
def kind_of(model: str) -> str:
    """The norm of a shipped model, "layer_norm" or "rms_norm"; nothing for one that is not known.

    A table names models: what is a file's path instead is not opened.
    """
    if os.path.isfile(model) or os.path.isfile(os.path.join(model, "config.json")):
        return ""
    try:
        return "layer_norm" if load_model(model).norm_bias else RMS_NORM
    except InputError:
        return ""


def composed(table: KernelTable) -> np.ndarray:
    """1 for each row of a table of norms that is an RMSNorm of elementary operations, else 0 [R]."""
    if "op" not in table.text:
        return np.zeros(len(table))
    op, framework = as_text(table.text["op"]), as_text(table.framework)
    is_rms = np.char.endswith(op.values.astype(str), RMS_NORM)[op.codes]
    return (is_rms & framework.among(COMPOSING)).astype(float)


def blocks_of_norms(table: KernelTable) -> dict[str, np.ndarray]:
    """`row_threads` that share a row of each norm, and the `vector` of elements that each loads at a time [R] [1]."""
    of_vllm = as_text(table.framework).among(VLLM_KERNELS)
    if "op" in table.text:
        op = as_text(table.text["op"])
        of_vllm = of_vllm & ~np.char.endswith(op.values.astype(str), LAYER_NORM)[op.codes]
    threads, vector = (np.where(of_vllm, vllm, torch) for vllm, torch in zip(OF_VLLM, OF_TORCH, strict=True))
    return {"row_threads": threads, "vector": vector}
