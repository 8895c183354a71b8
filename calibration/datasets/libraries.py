"""Which library a kernel is of: engines share them, so one engine's table tells of another's kernel."""

from __future__ import annotations

import numpy as np

from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text, as_text, repeated

FLASH_ATTENTION = "flash-attention"
# By what the names of kernels contain. FlashAttention 2 to 4 are one library (vLLM's is a fork of it); kernels in
# Triton are each engine's own.
LIBRARIES = {"flashinfer": "flashinfer", "flash_att": FLASH_ATTENTION, "fa3": FLASH_ATTENTION}
COPIES = {"vidur": "vllm"}  # Vidur profiles a copy of vLLM's rotary embedding
FAMILIES: frozenset[str] = frozenset(("attention_prefill", "rope"))  # whose engines run kernels of libraries


def libraries(table: KernelTable) -> Text:
    """The library of each row's kernel, or its framework where no library is known [R]; empty for other families."""
    if table.family not in FAMILIES:
        return repeated("", len(table))
    named = np.asarray(as_text(table.kernel).translated(_library))
    engine = np.asarray(as_text(table.framework).translated(lambda name: COPIES.get(name, name)))
    return as_text(np.where(named == "", engine, named))


def _library(kernel: str) -> str:
    return next((library for part, library in LIBRARIES.items() if part in kernel.lower()), "")
