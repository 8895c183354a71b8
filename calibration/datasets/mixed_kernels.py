"""How one kernel goes through the chunk and the decodes of a mixed step, as far as framework and device tell it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibration.datasets import decode_kernels, prefill_kernels
from calibration.datasets.decode_kernels import HOPPER, Reading
from calibration.datasets.instructions import BY_WARP_GROUPS
from calibration.datasets.prefill_kernels import ANY, PrefillReading, Tile
from calibration.datasets.runnable import runs_on
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text

OF_DECODE = "decode_"  # what the columns of a `Reading` are called beside those of a `PrefillReading`


class MixedReading(NamedTuple):
    """`blocks`: of queries and tiles of keys; every decode has a block of its own, for each query head where heads are
    not packed. `decode`: the kernel of a step without a chunk, where `apart` is 1.

    1 where a kernel does so, else 0: `whole_pairs`: lets every query of the chunk see all keys; `launched`: starts a
    block for as many queries of each decode as the chunk has; `by_warps`: leaves the faster instructions of its device
    unused. `kernels`: how many run one after the other [1].
    """

    blocks: PrefillReading = prefill_kernels.ORDINARY._replace(packed=1.0)
    decode: Reading = decode_kernels.ORDINARY
    apart: float = 0.0
    whole_pairs: float = 0.0
    launched: float = 0.0
    by_warps: float = 0.0
    kernels: float = 1.0

    def columns(self) -> dict[str, float]:
        """The fields by name, those of `decode` after `OF_DECODE`."""
        of_decode = {OF_DECODE + name: float(value) for name, value in self.decode._asdict().items()}
        own = {name: value for name, value in self._asdict().items() if name not in ("blocks", "decode")}
        return self.blocks.columns() | of_decode | own


# vLLM's attention layer: the kernel that writes new keys and values to their pages, then FlashAttention, whose version
# 2 divides keys and packs heads in steps without a chunk alone (`decode_kernels.FLASH_2`), and whose grid is the
# longest sequence's for all of them (flash_fwd_launch_template.h, `run_flash_splitkv_fwd`).
LAYER = 2.0
VLLM = MixedReading(
    prefill_kernels.FLASH_2._replace(swapped=0.0), decode_kernels.FLASH_2, apart=1.0, launched=1.0, kernels=LAYER
)
VLLM_ON_HOPPER = MixedReading(prefill_kernels.FLASH_3, decode_kernels.FLASH_3, apart=1.0, kernels=LAYER)
# LLMServingSim's first profiler (llm_profile/profiler/attention/attention_profiler.py) calls `flash_attn_varlen_func`
# on keys that lie one after the other, with True in the place of the scale: no mask. As its rows show on H100 and
# A6000, neither are heads packed nor keys divided where there is one query. Tiles without a mask by
# flash_fwd_launch_template.h (`run_mha_fwd_hdim64` to `run_mha_fwd_hdim256`), narrower on all of Ampere and Ada but
# GA100 (`is_sm8x`).
PLAIN = MixedReading(
    PrefillReading((Tile(64.0, 128.0, 128.0), Tile(192.0, 128.0, 64.0), Tile(ANY, 128.0, 64.0))), whole_pairs=1.0
)
PLAIN_ON_SM8X = PLAIN._replace(
    blocks=PrefillReading((Tile(64.0, 128.0, 128.0), Tile(128.0, 128.0, 32.0), Tile(ANY, 64.0, 64.0)))
)
SM8X = ("ampere-ga102", "ampere-ga10b", "ada")
FIRST_PROFILER = "v0"
# Where FlashAttention does not run, an engine has some kernel of decode attention for steps without a chunk.
ELSEWHERE = MixedReading(apart=1.0)


def mixed_reading(table: KernelTable, architecture: Text, shared: np.ndarray) -> dict[str, np.ndarray]:
    """The fields of `MixedReading` of every row [R].

    **Arguments:** `architecture` [R]: `DeviceSpec.architecture` of the rows' devices; `shared` [R]: shared memory of
    one of their cores [byte].
    """
    rows = zip(
        np.asarray(table.framework).astype(str).tolist(), np.asarray(architecture).astype(str).tolist(), strict=True
    )
    found = [reading(*row).columns() for row in rows]
    columns = {name: np.array([each[name] for each in found], float) for name in MixedReading().columns()}
    return columns | {OF_DECODE + "shared": shared, "shared": shared}


def reading(framework: str, architecture: str) -> MixedReading:
    """How one kernel goes through a mixed step."""
    hopper = architecture.partition("-")[0] in HOPPER
    if not runs_on("attention_mixed", framework, "", architecture):
        return ELSEWHERE
    if framework == "vllm":
        return VLLM_ON_HOPPER if hopper else VLLM
    if framework == FIRST_PROFILER:
        own = PLAIN_ON_SM8X if architecture.startswith(SM8X) else PLAIN
        return own._replace(by_warps=float(architecture.startswith(BY_WARP_GROUPS)))
    return MixedReading()
