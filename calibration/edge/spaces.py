"""The families of networks whose latencies are known, by name: how one is written, and what its latency depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from calibration.edge import fbnet, nas_bench_201
from hwspecs.errors import InputError


class Space(NamedTuple):
    """`parse` a network's string; `features` [N, F] and `work` [N, 3] (multiply-accumulates, values read and written,
    kernels) of parsed ones [N, P]."""

    parse: Callable[[str], tuple[int, ...]]
    features: Callable[[np.ndarray], np.ndarray]
    work: Callable[[np.ndarray], np.ndarray]


SPACES: Mapping[str, Space] = MappingProxyType(
    {
        "nasbench201": Space(nas_bench_201.parse, nas_bench_201.features, nas_bench_201.work),
        "fbnet": Space(fbnet.parse, fbnet.features, fbnet.work),
    }
)


def space_of(text: str) -> str:
    """The name of the family that a string is of: NAS-Bench-201 marks where its edges come from by ~.

    **Raises:** `InputError` for an empty string, and one that neither family would write.
    """
    text = text.strip()
    if "~" in text:
        return "nasbench201"
    if "|" in text or text.isdigit():
        return "fbnet"
    raise InputError(
        f"'{text}' is no network: of NAS-Bench-201 one is written {nas_bench_201.EXAMPLE}, of FBNet as {fbnet.WRITTEN}."
    )
