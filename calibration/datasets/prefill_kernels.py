"""How the prefill kernels of serving engines go through queries and keys, as far as engine, kernel and device tell it.

Files and functions are those of the engines' sources as recalled: none was re-read. That a kernel divides its keys,
passes over what a window hides or pads a head was checked against the measured tables; cycles are round figures of
theirs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibration.datasets.decode_kernels import HOPPER
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text


class PrefillReading(NamedTuple):
    """How a kernel goes through queries and keys; what it says where nothing is known is that of most kernels.

    `rows`: queries of a block, `keys` of a tile, and `resident` blocks that a core holds at once, of heads of up to
    `head` elements; of larger ones `rows_beyond` and `keys_beyond`, and one block. `looked_at`: what a tile takes
    that a window hides from all of a block's queries, and `spilled`: one whose accumulators the registers do not hold,
    while all cores are busy [cycle]. `windowed`: starts of further kernels where there is a window.

    1 where a kernel does so, else 0: `packed`: the query heads of one key head share blocks; `fitting`: it takes blocks
    of 64 or 16 queries where there are no more; `dividing`: several blocks share the keys where there are fewer blocks
    than cores; `padded`: multiplies heads of the next power of two; `whole`: multiplies what a window hides as well;
    `serial`: asks for no tile before the last one is multiplied.
    """

    rows: float = 128.0
    keys: float = 128.0
    resident: float = 1.0
    head: float = 1024.0
    rows_beyond: float = 128.0
    keys_beyond: float = 128.0
    spilled: float = 0.0
    looked_at: float = 0.0
    serial: float = 0.0
    windowed: float = 0.0
    packed: float = 0.0
    fitting: float = 0.0
    dividing: float = 0.0
    padded: float = 0.0
    whole: float = 0.0


ORDINARY = PrefillReading()
FLASH = ("flash_attn", "flash_attention", "fa3", "_fa2", "_fa4")
# Paged keys take the kernel that could divide them (`run_mha_fwd_splitkv_dispatch`): 64 queries.
FLASH_2 = PrefillReading(rows=64.0, keys=256.0, head=64.0, rows_beyond=64.0)
# heuristics.h: several blocks a sequence below 0.8 of the cores, and heads packed wherever lengths vary. vLLM 0.14.0
# does not divide prefill.
FLASH_3 = PrefillReading(packed=1.0, dividing=1.0)
UNDIVIDED = ("0.14.0",)
# scheduler.cuh (`PrefillSplitQOKVIndptr`); utils.cuh (`FA2DetermineCtaTileQ`). SGLang's ragged prefill passes it no
# window.
FLASHINFER = PrefillReading(packed=1.0, dividing=1.0, fitting=1.0, head=192.0, rows_beyond=64.0)
# "fmha_v2_flash_attention_bf16_64_128_S_..._sm89": 64 queries off Hopper; heads of 192 become ones of 256 there.
TENSORRT = PrefillReading()
TENSORRT_BEFORE = PrefillReading(rows=64.0, padded=1.0)
# extend_attention.py of SGLang (`_get_block_sizes_for_extend_attention`), off Hopper for 100 KB of shared memory:
# `SKIP_TILE` leaves out a tile's products once its mask is computed, which takes as long on the L40S as on the H100;
# and a window takes two small kernels more on both. What its blocks of 128 queries spill is told by Hopper alone.
EXTEND = PrefillReading(padded=1.0, serial=1.0, looked_at=3700.0, windowed=2.0)
EXTEND_ON_HOPPER = EXTEND._replace(keys=64.0, head=256.0, rows_beyond=32.0, keys_beyond=64.0, spilled=25000.0)
EXTEND_BEFORE = EXTEND._replace(rows=64.0, head=128.0, rows_beyond=64.0, keys_beyond=64.0)
# triton_unified_attention.py of vLLM: 16 rows of packed heads, 32 keys.
UNIFIED = PrefillReading(rows=16.0, keys=32.0, resident=3.0, serial=1.0, packed=1.0, padded=1.0)


def prefill_reading(table: KernelTable, architecture: Text) -> dict[str, np.ndarray]:
    """The fields of `PrefillReading` of every row [R].

    **Arguments:** `architecture` [R]: `DeviceSpec.architecture` of the rows' devices.
    """
    columns = (table.framework, table.version, table.kernel, architecture)
    found = [reading(*row) for row in zip(*(np.asarray(column).astype(str) for column in columns), strict=True)]
    return {name: np.array([getattr(each, name) for each in found], float) for name in PrefillReading._fields}


def reading(framework: str, version: str, kernel: str, architecture: str) -> PrefillReading:
    """How one kernel goes through queries and keys."""
    kernel, hopper = kernel.lower(), architecture.partition("-")[0] in HOPPER
    if framework == "trtllm":
        return TENSORRT if hopper else TENSORRT_BEFORE
    if any(name in kernel for name in FLASH):
        if framework == "vllm" and not hopper:
            return FLASH_2
        return FLASH_3._replace(dividing=float(version not in UNDIVIDED))
    if "triton" in kernel:
        return (EXTEND_ON_HOPPER if hopper else EXTEND_BEFORE) if framework == "sglang" else UNIFIED
    if "flashinfer" in kernel:
        return FLASHINFER._replace(whole=float(framework == "sglang"))
    return ORDINARY
