"""For which layers of experts an engine ships tiles that were tuned on a device; others get its default tiles.

Both engines look for a file by the experts of a rank E, the width of an expert N (its share of the intermediate size)
and the device's name. These are the names of such files in the releases whose layers were measured, of 16-bit weights
(fused_moe/configs of vLLM's package; configs beside SGLang's fused_moe.py, those of all versions of Triton, as it takes
another's where it has none). What they say of tiles is not used.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from calibration.datasets.schema import KernelTable
from calibration.datasets.text import as_text

Widths = Mapping[int, tuple[int, ...]]  # of the experts on a rank: widths of an expert that have a file
MIXTRAL = {8: (1792, 2048, 3584, 4096, 7168)}
L40S: Widths = {8: (3584,), 128: (928, 1856)}
A100: Widths = MIXTRAL | {
    **{1: (1792, 3584, 7168, 14336), 64: (640, 1280)},
    **{16: (1344, 1792, 2688, 3584, 7168, 14336)},
}
H100: Widths = MIXTRAL | {
    **{1: (3072,), 16: (1024, 1344, 1856, 2048, 2688), 20: (2048,), 24: (1024,), 32: (928, 1856)},
    **{64: (320, 464, 640, 928, 1280, 1856, 2688), 128: (192, 232, 384, 464, 512, 768, 928, 1344, 1856, 2688)},
    **{144: (512,), 256: (672, 1344, 2688), 512: (64, 128, 336, 672, 1344, 2688)},
}
H200: Widths = {
    **{8: (*MIXTRAL[8], 14336), 16: (1024,), 20: (1536,), 64: (320, 640, 1280, 2560), 128: (192, 384, 768)},
    **{161: (192,), 512: (64, 128, 256)},
}


def _joined(first: Widths, second: Widths) -> Widths:
    return {experts: (*first.get(experts, ()), *second.get(experts, ())) for experts in {*first, *second}}


SGLANG: Mapping[str, Widths] = {
    "a100-sxm-80gb": _joined(A100, {257: (64,)}),
    **{"h100-sxm": H100, "h200-sxm": H200, "l40s": L40S},
}
SGLANG_LATER: Mapping[str, Widths] = SGLANG | {
    "h100-sxm": _joined(
        H100,
        {32: (224, 448, 896, 1792), 64: (192, 384, 768, 1536), 65: (1536,), 128: (352, 704)},
    ),
    "h200-sxm": _joined(H200, {128: (704,), 129: (384,)}),
}
VLLM: Mapping[str, Widths] = {
    "a100-sxm-80gb": _joined(A100, {128: (192,), 512: (64, 128)}),
    "h100-sxm": MIXTRAL
    | {
        **{1: (3072,), 16: (1344, 1792, 2688), 62: (256, 512), 64: (320, 640, 1280), 72: (384, 768)},
        **{128: (192, 512, 928, 1856), 256: (512,), 512: (128, 256, 512)},
    },
    "h200-sxm": {
        **{8: (*MIXTRAL[8], 14336), 16: (1024, 2048), 64: (320, 640, 1280, 2560)},
        **{128: (192, 384, 768, 1024), 512: (64, 128, 256, 512)},
    },
    "l40s": L40S,
}
RELEASES: Mapping[tuple[str, str], Mapping[str, Widths]] = {
    ("sglang", "0.5.10"): SGLANG,
    ("sglang", "0.5.14"): SGLANG_LATER,
    ("vllm", "0.14.0"): VLLM,
}
OF_16_BITS = ("bf16", "fp16")
WIDEST = 2**15  # experts and width make one number; float32 holds even ones of up to a thousand experts exactly
PLACES = {
    (*release, device): place
    for place, (release, device) in enumerate(
        ((release, device) for release, devices in RELEASES.items() for device in devices), start=1
    )
}


def listed(table: KernelTable) -> np.ndarray:
    """Which row of `files` lists the tuned layers of each row's software and device [R]; 0, the empty one, for none."""
    columns = (table.framework, table.version, table.device, table.dtype)
    rows = zip(*(as_text(column).values[as_text(column).codes] for column in columns), strict=True)
    return np.array([PLACES.get(tuple(names[:3]), 0) if names[3] in OF_16_BITS else 0 for names in rows], float)


def files() -> np.ndarray:
    """E WIDEST + N of all files, a row for each list, filled with -1 [lists, most]."""
    lists = [[], *(RELEASES[name[:2]][name[2]] for name in PLACES)]
    codes = [[experts * WIDEST + each for experts in one for each in one[experts]] for one in lists]
    most = max(map(len, codes))
    return np.array([[*one, *[-1] * (most - len(one))] for one in codes], float)
