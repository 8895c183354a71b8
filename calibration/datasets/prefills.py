"""How prefill kernels go about queries and cache: the size of their blocks, and the format of their products."""

from __future__ import annotations

import numpy as np

from calibration.datasets.libraries import FLASH_ATTENTION, libraries
from calibration.datasets.prefill_kernels import CLASSES, ORDINARY, TENSORRT_BEFORE, prefill_reading
from calibration.datasets.runnable import of_other_maker
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text, as_text

# Where kernels were written anew for instructions of four warps or of one thread (wgmma, tcgen05), and multiply queries
# cast to an 8-bit cache's format: SGLang's forward_extend (flashattention_backend.py, `q.to(self.kv_cache_dtype)`),
# TensorRT-LLM's FP8 context attention for an FP8 cache (attentionOp.cpp, `mFP8ContextFMHA`); both recalled. The
# measured times of such rows are those of rows in eight bits. For vLLM's FlashAttention aiconfigurator's
# collect_attn.py casts the queries.
CASTING_ON = ("hopper", "blackwell", "rubin")
CASTING = ("trtllm",)
CASTING_WITH, LIBRARY = ("sglang", "vllm"), FLASH_ATTENTION
EIGHT_BITS = ("fp8",)
HALF_BLOCKS = ("trtllm",)  # before Hopper, of latent attention as of other (`TENSORRT_BEFORE`)
# SGLang's latent prefill is measured on the latents themselves (forward_extend of its flashattention_backend.py, and of
# triton_backend.py by `_fwd_kernel` of extend_attention.py, 32 queries of a head a block): on the H100 the one does 607
# TFLOP/s so counted, and would do 180 otherwise, the other takes seven times as long as TensorRT-LLM's.
ABSORBING = ("sglang",)
TOGETHER, APART = ("flash_attention", "fa3"), ("triton",)


def prefill_blocks(table: KernelTable, architecture: Text) -> dict[str, np.ndarray]:
    """1 for each row whose kernel does so, else 0 [R]: `in_cache_format`: multiplies in the format of the cache, which
    is narrower than the queries'. Of latent attention the rows of a block as well, of other attention the fields of
    `PrefillReading`.

    **Arguments:** `architecture` [R]: `DeviceSpec.architecture` of the rows' devices.
    """
    framework, asked = as_text(table.framework), as_text(table.dtype).among(EIGHT_BITS)
    generation = architecture.translated(lambda name: name.partition("-")[0])
    rewritten = generation.among(CASTING_ON)
    narrow = as_text(table.cache).among(EIGHT_BITS) & ~asked
    casting = framework.among(CASTING) | (framework.among(CASTING_WITH) & libraries(table).among((LIBRARY,)))
    cast = np.asarray(narrow & rewritten & casting)
    found = {"in_cache_format": cast}
    if table.family == "mla_prefill":
        half, rows = ~rewritten & framework.among(HALF_BLOCKS), (TENSORRT_BEFORE.tiles[0].rows, ORDINARY.tiles[0].rows)
        found |= {f"rows_{place}": np.where(half, *rows) for place in range(CLASSES)}
        own = ~architecture.among(tuple(filter(of_other_maker, architecture.values.tolist())))
        latent = latent_prefills(table, narrow, rewritten)
        found |= {name: each & own for name, each in latent.items()} | {"strewn": ~rewritten}
    else:
        found |= prefill_reading(table, architecture, cast | np.asarray(asked))
    return {name: np.asarray(each, float) for name, each in found.items()}


def latent_prefills(table: KernelTable, narrow: np.ndarray, rewritten: np.ndarray) -> dict[str, np.ndarray]:
    """Whether a kernel reads the latents themselves (`absorbed`), each head apart (`apart`), once a narrow cache was
    written anew (`converted`); or whether its queries, keys and values are `quantized` before [R]."""
    engine, kernel = as_text(table.framework).among(ABSORBING), as_text(table.kernel).translated(str.lower)
    apart = engine & kernel.among(APART)
    together = engine & kernel.among(TOGETHER)
    return {
        "absorbed": together | apart,
        "apart": apart,
        "converted": together & narrow,
        "quantized": as_text(table.framework).among(CASTING) & narrow & rewritten,
    }
