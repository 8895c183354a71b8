"""How the prefill kernels of serving engines go through queries and keys, as far as engine, kernel and device tell it.

Tiles are those of the kernels' sources, named beside each; what is not named there was recalled. That a kernel divides
its keys, passes over what a window hides, pads a head or spills registers was checked against the measured tables;
cycles are round figures of theirs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibration.datasets.decode_kernels import BY_TOKENS, HOPPER, NARROW, PADDING
from calibration.datasets.runnable import of_other_maker
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text

CLASSES = 3  # of heads by their size, at most


class Tile(NamedTuple):
    """`rows`: queries of a block, `keys`: of a tile that it multiplies them by, of heads of up to `head` elements."""

    head: float
    rows: float
    keys: float


ANY = 1e6  # elements: more than any head has


class PrefillReading(NamedTuple):
    """How a kernel goes through queries and keys; what it says where nothing is known is that of most kernels.

    `tiles`: by size of the head, smallest first. `resident`: blocks that hide each other's waits on a core.
    `looked_at`: what a tile takes that a window hides from all of a block's queries, and `spilled`: one for which the
    registers are too few, while all cores are busy [cycle]. `itemsize`: of keys and values as a block waits for them
    [byte]. `windowed`: starts of further kernels where there is a window.

    `converting`: what turning an element of 8 bits into 16 takes a block, 0 where it does not, and `first`: what it
    takes more, of the first tile of blocks that are smaller than usual; `merging`: what a further kernel takes for each
    query and head whose keys several blocks share [cycle], `captured`: 1 where it runs for a single query whatever the
    keys. `planned`: query heads a key head for which blocks were planned, 0: as many as there are [1].

    1 where a kernel does so, else 0: `packed`: the query heads of one key head share blocks; `swapped`: where there is
    one query and no window alone; `fitting`: it takes blocks of 64 or 16 queries where there are no more; `short`: and
    tiles of 32 keys where there are up to 64; `dividing`: several blocks share the keys where there are fewer blocks
    than cores (2: than two a core); `padded`: multiplies heads of the next power of two; `whole`: multiplies what a
    window hides as well; `serial`: asks for no tile before the last one is multiplied; `in_registers`: holds the tiles'
    operands in registers as a whole, beside its accumulators; `transposed`: turns its tiles of values in shared memory
    before it multiplies; `twice`: adds each tile's products with values to a second sum. By kernels before it, which
    tables time as well: `writing`: new keys and values go to the cache, `by_tokens` by a block for each token,
    `rewriting`: and the queries anew, rotated or in another format.
    """

    tiles: tuple[Tile, ...] = (Tile(ANY, 128.0, 128.0),)
    resident: float = 1.0
    spilled: float = 0.0
    looked_at: float = 0.0
    serial: float = 0.0
    itemsize: float = 2.0
    windowed: float = 0.0
    packed: float = 0.0
    swapped: float = 0.0
    fitting: float = 0.0
    short: float = 0.0
    dividing: float = 0.0
    padded: float = 0.0
    whole: float = 0.0
    in_registers: float = 0.0
    padding: float = 0.0
    strewn: float = 0.0
    rising: float = 0.0
    transposed: float = 0.0
    writing: float = 0.0
    by_tokens: float = 0.0
    rewriting: float = 0.0
    converting: float = 0.0
    first: float = 0.0
    twice: float = 0.0
    merging: float = 0.0
    captured: float = 0.0
    planned: float = 0.0

    def columns(self) -> dict[str, float]:
        """The fields by name, those of the tiles as `head_0`, `rows_0`, `keys_0` and so on."""
        tiles = self.tiles + self.tiles[-1:] * (CLASSES - len(self.tiles))
        own = {f"{name}_{i}": getattr(tile, name) for i, tile in enumerate(tiles) for name in Tile._fields}
        return own | {name: value for name, value in self._asdict().items() if name != "tiles"}


ORDINARY = PrefillReading()
FLASH = ("flash_attn", "flash_attention", "fa3", "_fa2", "_fa4")
# flash_fwd_launch_template.h of FlashAttention 2: paged keys take the kernel that could divide them
# (`run_mha_fwd_splitkv_dispatch`); flash_api.cpp: `seqlenq_ngroups_swapped` (`decode_kernels.FLASH_2`).
FLASH_2 = PrefillReading(
    (Tile(64.0, 64.0, 256.0), Tile(128.0, 64.0, 128.0), Tile(ANY, 64.0, 64.0)), swapped=1.0, strewn=1.0
)
# heuristics.h of FlashAttention 3: several blocks a sequence below 0.8 of the cores, and heads packed wherever lengths
# vary. Its tiles (tile_size.h) are taken for those of most kernels: 128 or 192 queries, 80 to 224 keys. vLLM 0.14.0
# does not divide prefill. Values of 8 bits are transposed in shared memory (arXiv:2407.08608, section 3.3), and vLLM's
# fork adds up their products twice (its pull request 104, in vLLM since 27889).
FLASH_3 = PrefillReading(packed=1.0, dividing=1.0)
UNDIVIDED, TWICE_ON = ("0.14.0",), "hopper"
# What writes the cache beside vLLM's (`BY_TOKENS`): `set_kv_buffer` of SGLang, whose FlashAttention backend casts
# queries to an 8-bit cache's format; TensorRT-LLM's `applyBiasRopeUpdateKVCacheV2`, which rotates queries as well.
WRITING, ROTATING, CASTING = ("vllm", "sglang", "trtllm"), ("trtllm",), ("sglang",)
# scheduler.cuh (`PrefillSplitQOKVIndptr`: keys are divided until two blocks a core are busy, by 128 at least; then
# `VariableLengthMergeStates` runs, for a single query of a captured graph always); utils.cuh (`FA2DetermineCtaTileQ`);
# prefill.cuh: as many keys as leave room for two blocks in a core of Ada (`max_num_mma_kv_smem`). SGLang's ragged
# prefill passes it no window, and keys and values that were not cast. 680 cycles are those of the L40S.
FLASHINFER = PrefillReading((Tile(64.0, 128.0, 64.0), Tile(192.0, 128.0, 32.0), Tile(ANY, 64.0, 16.0)))._replace(
    packed=1.0, dividing=2.0, fitting=1.0, merging=680.0
)
# Each of a block's four warps turns all keys and values into the queries' format: an eighth of a cycle an element,
# whatever its rows. That blocks of 64 wait for their first tile as well, the L40S alone tells.
FLASHINFER_CONVERTING = FLASHINFER._replace(
    tiles=(Tile(192.0, 128.0, 64.0), Tile(ANY, 64.0, 32.0)), converting=0.125, first=0.6
)
# While it named kernels so, aiconfigurator's collect_attn.py left planning the heads of its stand-in for a model, two
# query heads a key head: of more it takes the first queries alone, of fewer there are blocks without any. (Later it
# states `hf_config_override`; that there are two, the rows tell: with as many both versions agree.)
PLANNED, PLANNED_GROUP = ("vllm_flashinfer",), 2.0
# setup.py of fmha_v2: `enumerate_hgmma_flash_warpspec_kernels` and `enumerate_qgmma_...`, two groups of 64 queries;
# `enumerate_hmma_flash_kernels_base`, tiled for all heads on GA100 but only for those of 256 on later cores, and for no
# more than 64 keys on none (fused_multihead_attention_v2.cpp, `setupLaunchParams`); `enumerate_qmma_flash_kernels`,
# never tiled, so that accumulators and operands of heads of 64 and of 256 exceed the 255 registers of a thread: 7,000
# cycles a tile for both, told by the rows of the L40S alone.
TENSORRT = PrefillReading((Tile(64.0, 128.0, 256.0), Tile(128.0, 128.0, 128.0), Tile(ANY, 128.0, 64.0)))
TENSORRT_NARROW = PrefillReading((Tile(128.0, 128.0, 256.0), Tile(ANY, 128.0, 128.0)))
TENSORRT_ON_GA100 = PrefillReading(
    (Tile(64.0, 128.0, 128.0), Tile(ANY, 64.0, 128.0)), short=1.0, padded=1.0, strewn=1.0
)
TENSORRT_BEFORE = PrefillReading((Tile(192.0, 64.0, 32.0), Tile(ANY, 64.0, 128.0)), short=1.0, padded=1.0, strewn=1.0)
TENSORRT_NARROW_BEFORE = PrefillReading((Tile(64.0, 128.0, 128.0), Tile(ANY, 64.0, 32.0)))._replace(
    padded=1.0, in_registers=1.0, spilled=7000.0, strewn=1.0
)
# extend_attention.py of SGLang (`_get_block_sizes_for_extend_attention`), off Hopper for 100 KB of shared memory:
# `SKIP_TILE` leaves out a tile's products once its mask is computed, which takes as long on the L40S as on the H100;
# and a window takes two small kernels more on both.
EXTEND = PrefillReading(rising=1.0, padded=1.0, serial=1.0, looked_at=3700.0, windowed=2.0)
EXTEND_BEFORE = EXTEND._replace(tiles=(Tile(128.0, 64.0, 128.0), Tile(ANY, 64.0, 64.0)))
# What its blocks of 128 queries spill is told by Hopper alone, and that with 16-bit keys they do so for tiles that they
# leave out. 8-bit ones become 16-bit ones in shared memory, as fast as FlashInfer's; with 8-bit queries values alone
# are turned, for which the same is taken.
EXTEND_ON_HOPPER = EXTEND._replace(
    tiles=(Tile(256.0, 128.0, 64.0), Tile(ANY, 32.0, 64.0)), spilled=25000.0, looked_at=14000.0
)
EXTEND_CONVERTING = EXTEND_ON_HOPPER._replace(spilled=10000.0, looked_at=3700.0, converting=0.125)
EXTEND_NARROW = EXTEND_ON_HOPPER._replace(looked_at=3700.0, converting=0.125 / 2.0)
# triton_unified_attention.py of vLLM: 16 rows of packed heads, 32 keys.
UNIFIED = PrefillReading((Tile(ANY, 16.0, 32.0),), resident=3.0, serial=1.0, packed=1.0, padded=1.0, strewn=1.0)


def prefill_reading(table: KernelTable, architecture: Text, narrow: np.ndarray) -> dict[str, np.ndarray]:
    """The fields of `PrefillReading` of every row [R].

    **Arguments:** `architecture` [R]: `DeviceSpec.architecture` of the rows' devices; `narrow` [R]: whether a kernel
    multiplies in 8 bits.
    """
    columns = (table.framework, table.version, table.kernel, table.cache, architecture)
    rows = zip(*(np.asarray(column).astype(str).tolist() for column in columns), narrow.tolist(), strict=True)
    found = [reading(*row).columns() for row in rows]
    return {name: np.array([each[name] for each in found], float) for name in ORDINARY.columns()}


def reading(framework: str, version: str, kernel: str, cache: str, architecture: str, narrow: bool) -> PrefillReading:
    """How one kernel goes through queries and keys, and what runs before it."""
    other = of_other_maker(architecture)
    found = ORDINARY if other else _reading(framework, version, kernel.lower(), cache in NARROW, architecture, narrow)
    return found._replace(
        padding=float(framework in PADDING),
        writing=float(framework in WRITING and not other),
        by_tokens=float(framework in BY_TOKENS),
        rewriting=float(framework in ROTATING or (framework in CASTING and narrow)),
    )


def _reading(
    framework: str, version: str, kernel: str, cached: bool, architecture: str, narrow: bool
) -> PrefillReading:
    """`cached`: whether the cache has 8 bits."""
    generation = architecture.partition("-")[0]
    hopper = generation in HOPPER
    if framework == "trtllm":
        return _tensorrt(architecture, hopper, narrow)
    if any(name in kernel for name in FLASH):
        return _flash(framework, version, generation, narrow)
    if "triton" in kernel:
        own = _extend(hopper, cached, narrow) if framework == "sglang" else UNIFIED
        alone = narrow or framework != "sglang"  # else shared memory holds what they were turned into
        return own._replace(itemsize=1.0 if cached and alone else own.itemsize)
    if "flashinfer" in kernel:
        if framework == "sglang":
            return FLASHINFER._replace(whole=1.0)
        own = FLASHINFER_CONVERTING if cached and not narrow else FLASHINFER
        return own._replace(captured=1.0, planned=PLANNED_GROUP if kernel in PLANNED else 0.0)
    return ORDINARY


def _flash(framework: str, version: str, generation: str, narrow: bool) -> PrefillReading:
    own, hopper = framework == "vllm", generation in HOPPER
    if own and not hopper:
        return FLASH_2
    return FLASH_3._replace(
        dividing=float(version not in UNDIVIDED),
        strewn=float(not hopper),
        transposed=float(narrow),
        twice=float(narrow and own and generation == TWICE_ON),
    )


def _extend(hopper: bool, cached: bool, narrow: bool) -> PrefillReading:
    if not hopper:
        return EXTEND_BEFORE
    if not cached:
        return EXTEND_ON_HOPPER
    return EXTEND_NARROW if narrow else EXTEND_CONVERTING


def _tensorrt(architecture: str, hopper: bool, narrow: bool) -> PrefillReading:
    if hopper:
        return TENSORRT_NARROW if narrow else TENSORRT
    if narrow:
        return TENSORRT_NARROW_BEFORE
    return TENSORRT_ON_GA100 if architecture == "ampere-ga100" else TENSORRT_BEFORE
