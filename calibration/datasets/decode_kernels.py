"""How the decode kernels of serving engines work through a cache, as far as engine, kernel and cache format tell it.

Files and functions are those of the engines' sources as recalled: none was re-read. What a source does not say (how
long a block takes to start, how fast it streams, how many a core holds) is a round figure with the measured tables in
sight: of the L40S, A100 and H100 alike where a kernel ran on several. It is in cycles and bytes, so that a device is
told by its clock, cores and shared memory alone; the law scales all of them (`Law.block`, `Law.compute`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibration.datasets.runnable import of_other_maker
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text

# Blocks that fill all cores ask for as much more than the memory gives: whoever writes a kernel for a device keeps as
# many bytes in flight as its latency takes (Little's law), so that a faster memory is not left idle. Of the kernels
# measured on devices that they were written for none asks for less.
HEADROOM = 1.35
SHARED = 100.0 * 1024.0  # shared memory of a core whose device states none [byte]


class Reading(NamedTuple):
    """How a kernel goes about a cache; what it says where nothing is known is that of most kernels.

    `packed`: query heads of one key head that a block takes together; `tile`: keys that it holds at once, at 128
    elements a head, and at others where `shrinking` is 0 (1: fewer the more elements); `most_resident`: blocks that a
    core holds at most. A sequence is divided until every core has `wanted` blocks, into `most_parts` at most, of
    `least_keys` at least; `whole`: 1 where it never is. `start`: of a block, over that of FlashAttention-2; `rate`:
    bytes that a block takes in a cycle; `element`: bytes of one as it streams [byte]. Small kernels beside it:
    `combining` partial outputs, and `serial` more for each of them; `beside`: always.

    1 where a kernel does so: `swapping`: packs heads by a copy of the queries and of the output, and neither packs nor
    divides with a window or one query head a key head; `by_vectors`: multiplies on vector units where a key head has
    few query heads; `masked`: one block a query head, where a key head has one of them or very many; `falls_back`: does
    the same where else too few cores were busy, and `masked_start`: the start of such a block, which takes as much
    longer for each key; `aliased`: the table was taken with keys and values on the same pages; `launched`: starts all
    of `most_parts` however few the keys, as long as a graph holds the step; `padding`: pads the values of heads of 192
    elements, which have 128, and cuts the output, by small kernels; `by_tokens`: a kernel before it writes new keys and
    values to the cache by a block for each token. `headroom`: what blocks that fill all cores ask for
    at least, over what the memory gives; 0 where a compiler wrote the kernel and not for a device. `shared`: shared
    memory of the device's cores [byte].
    """

    writing: float = 0.0
    by_tokens: float = 0.0
    packed: float = 16.0
    tile: float = 64.0
    shrinking: float = 0.0
    most_resident: float = 2.0
    wanted: float = 2.0
    most_parts: float = 128.0
    least_keys: float = 128.0
    whole: float = 0.0
    start: float = 1.0
    rate: float = 8.0
    element: float = 2.0
    combining: float = 1.0
    serial: float = 0.0
    beside: float = 0.0
    swapping: float = 0.0
    by_vectors: float = 0.0
    masked: float = 0.0
    falls_back: float = 0.0
    masked_start: float = 0.85
    aliased: float = 0.0
    launched: float = 0.0
    padding: float = 0.0
    by_tokens: float = 0.0
    headroom: float = HEADROOM
    shared: float = SHARED


ORDINARY = Reading()
FLASH = ("flash_attn", "flash_attention", "fa3", "_fa2", "_fa4")
HOPPER = ("hopper", "blackwell", "rubin")  # whose copies by TMA and warps of their own for them shorten a block's start
NARROW = ("fp8",)
# 8-bit keys become 16-bit ones before they are multiplied: a longer start of FlashInfer's and TensorRT-LLM's blocks.
CONVERTING = 1.35

# flash_api.cpp (mha_varlen_fwd): `seqlenq_ngroups_swapped` wants more query heads than key heads and no window, and
# only then `set_params_splitkv` is called, with `num_splits_heuristic` for two blocks a core; kernels.h: 64 rows, and
# 256, 128 or 64 keys a tile (`run_mha_fwd_splitkv_dispatch`). Its combining kernel adds the parts up in turn.
FLASH_2 = Reading(packed=64.0, tile=128.0, shrinking=1.0, rate=12.0, serial=0.14, swapping=1.0)
# FlashAttention 3 as SGLang builds it for Ampere and Ada: it packs heads without a copy (`pack_gqa`).
FLASH_3_BEFORE = Reading(packed=128.0, tile=128.0, shrinking=1.0, start=1.4, rate=3.5, serial=0.14)
# heuristics.h of FlashAttention 3: one block a core, divided for 0.8 of the cores, not at four tiles of keys or fewer;
# `prepare_varlen_num_blocks` runs before it, and its combining kernel starts before it ends (programmatic dependent
# launch). 8-bit values are transposed on the way (arXiv:2407.08608), so that they stream more slowly.
FLASH_3 = Reading(
    packed=128.0,
    most_resident=1.0,
    wanted=1.0,
    least_keys=512.0,
    start=0.65,
    rate=20.0,
    combining=0.5,
    beside=1.0,
)
MOST_PARTS_OF_GRAPHS = 32.0  # `flash_attn_max_num_splits_for_cuda_graph` of vLLM's configuration
# FlashAttention 4 on Hopper, for heads of 512: as its rows show, all parts that a graph may hold, however few the keys.
FLASH_4 = FLASH_3._replace(launched=1.0, most_parts=MOST_PARTS_OF_GRAPHS)
# scheduler.cuh: a grid of two blocks a core; tiles that fit shared memory, 16 to 128 packed rows.
FLASHINFER = Reading(packed=128.0, shrinking=1.0)
# decode_attention.py of SGLang (`_decode_grouped_att_m_fwd`): 16 heads, 8 parts (`triton_attention_num_kv_splits`) of
# at least 32 keys, launched whatever the batch; triton_unified_attention.py of vLLM: 16 of them.
TRITON = Reading(tile=32.0, wanted=1e6, most_parts=16.0, least_keys=32.0, start=0.5, rate=6.0, headroom=0.0)
SGLANG_PARTS = 8.0
# XQA: groups of up to 32 heads (`supportConfigHMMA`), the blocks of 8 rounds (`kTargetWaveFactor`) of at least 128
# keys (`kMinHistoryTokensPerBlock`), combined by the last block of a sequence (decoderXQAImplCommon.h). Others, and 16
# bits where four blocks do not fill the cores (`mayHavePerfGain`), take masked attention: a block a query head.
GROUPED = Reading(
    packed=32.0, most_resident=1.0, wanted=8.0, start=0.85, rate=22.0, combining=0.0, masked=1.0, falls_back=1.0
)
# The same for Hopper in 8 bits (mha_sm90.cu).
GROUPED_BY_TMA = GROUPED._replace(most_resident=2.0, start=0.65, rate=20.0, element=1.0, falls_back=0.0)
# Before Hopper it divides no sequence in 8 bits: told by the rows of the L40S alone, whose times are in proportion to
# the keys however few the blocks.
GROUPED_BEFORE = GROUPED._replace(whole=1.0)
# That version fell back in 8 bits as well. As its rows show, on A100 and L40S alike, it was measured with keys and
# values on the same pages: grouped queries read at 1.1 and 1.4 times the memory's bandwidth, from caches of several L2.
ALIASED = "1.0.0"

# As its rows of heads of 192 show, with FlashAttention 3 on Hopper and with Triton on Ada alike, and no other engine's.
PADDING = ("sglang",)
# `reshape_and_cache_flash` (cache_kernels.cu of vLLM, re-read on 2026-11-30), which aiconfigurator's collector times
# with the attention: `forward` writes the cache until 0.15, and as the rows show it is timed beside it since.
BY_TOKENS = ("vllm",)


def decode_reading(table: KernelTable, architecture: Text, shared: np.ndarray) -> dict[str, np.ndarray]:
    """The fields of `Reading` of every row [R].

    **Arguments:** `architecture` [R]: `DeviceSpec.architecture` of the rows' devices; `shared` [R]: shared memory of
    one of their cores [byte].
    """
    columns = (table.framework, table.version, table.kernel, table.cache, architecture)
    rows = zip(*(np.asarray(column).astype(str) for column in columns), strict=True)
    found = [reading(*row)._replace(shared=size) for row, size in zip(rows, np.asarray(shared).tolist(), strict=True)]
    return {name: np.array([getattr(each, name) for each in found], float) for name in Reading._fields}


def reading(framework: str, version: str, kernel: str, cache: str, architecture: str) -> Reading:
    """How one kernel goes about a cache."""
    by_tokens = float(framework in BY_TOKENS and not of_other_maker(architecture))
    found = _reading(framework, version, kernel, cache, architecture)
    return found._replace(padding=float(framework in PADDING), by_tokens=by_tokens)


def _reading(framework: str, version: str, kernel: str, cache: str, architecture: str) -> Reading:
    kernel, narrow, hopper = kernel.lower(), cache in NARROW, architecture.partition("-")[0] in HOPPER
    if of_other_maker(architecture):
        return ORDINARY
    if framework == "trtllm":
        return _tensorrt(version, narrow, hopper)
    if any(name in kernel for name in FLASH):
        return FLASH_4 if hopper and "_fa4" in kernel else _flash(framework, narrow, hopper)
    if "triton" in kernel:
        return TRITON._replace(most_parts=SGLANG_PARTS) if framework == "sglang" else TRITON
    if "flashinfer" in kernel:
        # `should_use_tensor_core` of SGLang: 8-bit caches, or four query heads a key head.
        own = FLASHINFER._replace(by_vectors=float(framework == "sglang" and not narrow))
        return _converting(own) if narrow else own
    return ORDINARY


def _flash(framework: str, narrow: bool, hopper: bool) -> Reading:
    if not hopper:
        return FLASH_2 if framework == "vllm" else FLASH_3_BEFORE
    own = FLASH_3._replace(most_parts=MOST_PARTS_OF_GRAPHS) if framework == "vllm" else FLASH_3
    return own._replace(element=1.5) if narrow else own


def _tensorrt(version: str, narrow: bool, hopper: bool) -> Reading:
    first = version == ALIASED
    if narrow and hopper:
        own = GROUPED_BY_TMA
    elif narrow:
        own = _converting(GROUPED_BEFORE._replace(falls_back=float(first)))
    else:
        own = GROUPED
    return own._replace(aliased=float(first))


def _converting(own: Reading) -> Reading:
    return own._replace(start=own.start * CONVERTING)
