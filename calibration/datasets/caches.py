"""How kernels of latent attention go about a cache: how often they read it, in which format, how they divide it.

Files and functions are those of the engines' sources as recalled: none was re-read. What a source does not say (how
long a block takes to start, and waits for a tile) is a round figure with the measured tables in sight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibration.datasets.decode_kernels import HOPPER, NARROW, SHARED
from calibration.datasets.routing import PARTITIONED
from calibration.datasets.runnable import of_other_maker
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text


class LatentReading(NamedTuple):
    """How a kernel goes about a cache of latents; what it says where nothing is known is that of FlashMLA.

    1 where a kernel does so, else 0: `converted`: a narrow cache is written anew in 16 bits; `undivided`: two blocks
    read a whole sequence for 64 heads; `by_heads`: each 16 heads read it again. `parts`: blocks that share a sequence
    whatever its length; 0 where all cores share all sequences evenly. `start`: of a block, over that of one of
    FlashAttention-2 (`Law.block`); `wait`: for each tile of latents [cycle]. Small kernels: `beside`: always;
    `combining` partial outputs, and `serial` more for each of them. Of the device: `shared`: shared memory of a core
    [byte]; `partitioned`: 1 where each half of its L2 caches what the cores next to it read, else 0.
    """

    converted: float = 0.0
    undivided: float = 0.0
    by_heads: float = 0.0
    parts: float = 0.0
    start: float = 1.0
    wait: float = 0.0
    beside: float = 1.0
    combining: float = 0.0
    serial: float = 0.03
    shared: float = SHARED
    partitioned: float = 0.0


# get_mla_metadata.cu shares all tiles evenly, and mla_combine.cu is launched always (FlashMLA).
FLASH_MLA = LatentReading()
# FlashAttention 3 prepares its parts (`prepare_varlen_num_blocks`), and combines them where there are several.
FLASH_3 = LatentReading(beside=0.0, combining=0.5)
# A tile of 64 latents is not asked for before the last one is multiplied; told by A100 and L40S alike, as is the start.
PREFILLING = LatentReading(undivided=1.0, start=0.33, wait=5900.0, beside=0.0, serial=0.0)
# The decode kernels in Triton of SGLang and vLLM give a block 16 heads (`BLOCK_H`), launch all sequences' first 16
# heads before their next, and a block for each part whether it has keys or not; then a kernel that combines them
# (`_fwd_kernel_stage2`). Parts of SGLang: told by the L40S, whose times are those of 16 (its default is 8).
TRITON = LatentReading(by_heads=1.0, parts=4.0, start=0.9, wait=5000.0, beside=0.0, serial=0.0)
SGLANG_PARTS = 16.0
# SGLang's absorbed latent attention by kernels that take no 8-bit latents: forward_decode of its
# flashattention_backend.py and flashinfer_mla_backend.py casts the layer's buffer to the format of the queries.
CONVERTED_FOR = ("flash_attention", "fa3", "flashinfer")


def latent_reading(table: KernelTable, architecture: Text, shared: np.ndarray) -> dict[str, np.ndarray]:
    """The fields of `LatentReading` of every row [R].

    **Arguments:** `architecture` [R]: `DeviceSpec.architecture` of the rows' devices; `shared` [R]: shared memory of
    one of their cores [byte].
    """
    columns = (table.framework, table.version, table.kernel, table.cache, architecture)
    rows = zip(*(np.asarray(column).astype(str) for column in columns), strict=True)
    found = [reading(*row)._replace(shared=size) for row, size in zip(rows, np.asarray(shared).tolist(), strict=True)]
    ways = {name: np.array([getattr(each, name) for each in found], float) for name in LatentReading._fields}
    return ways | {"partitioned": architecture.among(PARTITIONED).astype(float)}


def reading(framework: str, version: str, kernel: str, cache: str, architecture: str) -> LatentReading:
    """How one kernel goes about a cache."""
    kernel, hopper = kernel.lower(), architecture.partition("-")[0] in HOPPER
    if of_other_maker(architecture):
        return FLASH_MLA
    if framework == "trtllm":
        # It decodes with FlashMLA on Hopper and kernels of its own on Blackwell; on other devices its prefill kernel
        # takes the latents for keys: in 16 bits whatever the cache (`mUseGenFlashMLA` and `mFP8GenerationMLA` in its
        # attentionOp.cpp; pull request 3863).
        return FLASH_MLA if hopper else PREFILLING
    if "triton" in kernel:
        return TRITON._replace(parts=SGLANG_PARTS) if framework == "sglang" else TRITON
    own = FLASH_3 if "flash_att" in kernel or "fa3" in kernel else FLASH_MLA
    converting = framework == "sglang" and any(name in kernel for name in CONVERTED_FOR) and cache in NARROW
    return own._replace(converted=float(converting), beside=own.beside + float(converting))
