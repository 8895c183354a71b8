"""How kernels of latent attention go about a cache: how often they read it, in which format, whether they divide it."""

from __future__ import annotations

import numpy as np

from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text, as_text

# SGLang's absorbed latent attention by kernels that take no 8-bit latents: forward_decode of its
# flashattention_backend.py and flashinfer_mla_backend.py casts the layer's buffer to the format of the queries.
CONVERTING = ("sglang",)
CONVERTED_FOR = ("flash_attention", "fa3", "flashinfer")
# TensorRT-LLM decodes with FlashMLA on Hopper and kernels of its own on Blackwell; on other devices its prefill kernel
# takes the latents for keys: in 16 bits whatever the cache, a block a sequence (`mUseGenFlashMLA` and
# `mFP8GenerationMLA` in its attentionOp.cpp; pull request 3863).
PREFILLING = ("trtllm",)
DECODING = ("hopper", "blackwell")
# The decode kernels in Triton of SGLang and vLLM give a block 16 heads (`BLOCK_H`), and launch all sequences' first 16
# heads before their next.
BY_HEADS = ("triton",)


def latent_reading(table: KernelTable, architecture: Text) -> dict[str, np.ndarray]:
    """1 for each row whose kernel does so, else 0 [R]: `converted`: a narrow cache is written anew in 16 bits;
    `undivided`: one block reads a whole sequence; `by_heads`: each 16 heads read it again.

    **Arguments:** `architecture` [R]: `DeviceSpec.architecture` of the rows' devices.
    """
    framework, kernel = as_text(table.framework), as_text(table.kernel).translated(str.lower)
    generation = architecture.translated(lambda name: name.partition("-")[0])
    found = {
        "converted": framework.among(CONVERTING) & kernel.among(CONVERTED_FOR),
        "undivided": framework.among(PREFILLING) & ~generation.among(DECODING),
        "by_heads": kernel.among(BY_HEADS),
    }
    return {name: each.astype(float) for name, each in found.items()}
