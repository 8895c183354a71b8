"""What is not known about the kernel of a row: bits that add up, and the sentence that each stands for."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import hwspecs
from calibration.datasets.schema import KernelTable
from calibration.kernels.formats import FORMATS
from calibration.kernels.point import Kind
from jaxperf.core.device import unscaled

# In the order in which they are told.
REMARKS = (
    "no known number format (dtype): bf16 assumed",
    "shape outside what was measured",
    "this kernel and version never measured",
    "framework never measured: generic",
    "format never measured: generic",
    "device never measured",
    "cached prefix: extrapolated",
    "the device has no units for this format: multiplied in another",
    "not the device of this name that was measured: its facts were changed",
    "kernel not stated: the only one measured of this release",
    "this kernel and version never measured on this device",
    "this software does not run on this device: a generic kernel in its place",
    "no known number format of the cache: that of the activations assumed",
    "no matrix units for the scales of this format: counted at the rate without them",
    "not a GPU of the kinds that the law was made for",
    "this release never measured on this device: what was learned of the nearest one",
    "measured on a relative of this device: what was learned there",
)
_BITS = tuple(1 << bit for bit in range(len(REMARKS)))
NO_FORMAT, FAR, STACK, FRAMEWORK, FORMAT, DEVICE, PREFIX, STAND_IN = _BITS[:8]
CHANGED, KERNEL, HERE, FOREIGN, NO_CACHE, UNSCALED, NO_GPU, RELEASE, RELATIVE = _BITS[8:]
REMARKED = np.uint32  # holds every sum of them, and the codes after these
UNUSABLE = 1 << len(REMARKS)  # of a row without a prediction: this or the next, no sum of bits
OVERFLOWING = UNUSABLE + 1
_ATTENTION = ("attention_prefill", "attention_decode", "attention_mixed")
_LATENT = ("mla_prefill", "mla_decode", "mla_pre", "mla_post")
# Families whose kernels multiply in the format of their row; of attention, that of its queries.
_MULTIPLYING = ("gemm", "bmm", "moe", "convolution", *_ATTENTION, *_LATENT)


@functools.cache
def told(code: int) -> str:
    """The remarks that a sum of bits stands for, as one text."""
    return "; ".join(text for bit, text in enumerate(REMARKS) if code >> bit & 1)


def of_device(table: KernelTable, kinds: Kind, estimated: np.ndarray, directories: Sequence[str | Path]) -> np.ndarray:
    """What the devices of groups lack, whose formats or kind of cores the law knows less of [G].

    **Arguments:** `table`: a row of each group; `kinds`: of the groups; `estimated`: whether the answer is of the law
    and no kernel of the device was measured.
    """
    found = NO_GPU * (estimated & (np.asarray(kinds.hardware.many_cores) == 0.0))
    if table.family not in _MULTIPLYING:
        return found
    pairs = zip(table.device, table.dtype, strict=True)
    alone = [dtype in FORMATS and unscaled(hwspecs.load(name, directories), FORMATS[dtype][0]) for name, dtype in pairs]
    return found + STAND_IN * _replaced(kinds) + UNSCALED * np.array(alone, int)


def _replaced(kinds: Kind) -> np.ndarray:
    """1 for the groups whose device lacks the format of their weights and multiplies in a stand-in, else 0 [G]."""
    compute = np.asarray(kinds.formats.weights.compute)
    native = np.asarray(kinds.hardware.device.native)[np.arange(len(compute)), compute]
    return (native == 0.0).astype(int)
