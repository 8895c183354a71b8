"""Where the fit of training steps starts from: shares of the peak that measurements of single kernels show.

They know nothing of any training run; so software and devices without a measured step still have their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from calibration.composition.batches_links import lineage
from calibration.composition.kernel_times import kernel_times
from calibration.kernels.parameters import Parameters
from calibration.training.points import Known
from calibration.training.scalars import WIDE
from calibration.training.stacks import ALL, FLASH_1, Stack
from jaxperf.core.sustained import CLASSES
from jaxperf.models.graph import Op
from jaxperf.training.host import host_rates

SIDE = 4096.0  # of a square product that fills any device
DTYPES = {"32-bit": "fp32", "16-bit": "bf16", "8-bit": "fp8", "4-bit": "nvfp4"}
FRAMEWORK = ""
LEAST, MOST = 0.1, 1.0  # a share beyond these is an extrapolation
# FlashAttention-1 reaches 25 to 40 % of an A100's peak and half of what version 2 does, which uses nothing that Hopper
# added and reaches 35 % of its peak (arXiv:2307.08691 and 2407.08608, abstracts). Elsewhere the assumed share stands.
FLASH_1_SHARE = {"ampere": 0.325, "hopper": 0.175}
COMPILED_OVERLAP = 0.9  # of tensor-parallel collectives where a compiler cuts them: the fast end of the assumed


def starts_of(
    known: Known, kernels: Parameters, assumed: Mapping[str, float], directories: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Field of `TrainingEfficiencies` -> where its fit starts: by run [rows] where that is known, else as `assumed`."""
    devices = [run.device for run in known.runs]
    attention = _attention_shares(known, assumed["attention"])
    wide = [WIDE.get(kind, kind) for kind in known.classes]
    gemm = _gemm_shares(devices, kernels, directories)
    hosts = [{**assumed, **host_rates(known.specs[device])} for device in devices]
    return {name: np.asarray(value) for name, value in assumed.items()} | {
        "gemm": np.array([gemm[pair] for pair in zip(devices, known.classes, strict=True)]),
        "plain_gemm": np.array([gemm[pair] for pair in zip(devices, wide, strict=True)]),
        "attention": attention,
        "attention_backward": attention,
        **{name: np.array([host[name] for host in hosts]) for name in ("host_bandwidth", "host_memory_bandwidth")},
        "overlap_tensor": np.array([_tensor_overlap(stack, assumed["overlap_tensor"]) for stack in known.stacks]),
    }


def _gemm_shares(
    devices: Sequence[str], kernels: Parameters, directories: Sequence[str]
) -> Mapping[tuple[str, str], float]:
    """Share of the peak that large products reach, by device and format class [1]."""
    names = sorted(set(devices))
    ops = [Op("gemm", {"m": SIDE, "n": SIDE, "k": SIDE}, dtype=DTYPES[name]) for name in CLASSES]
    times = kernel_times(ops, names, kernels, FRAMEWORK, directories)
    share = np.clip(np.nan_to_num(times.roofline / times.predicted, nan=MOST), LEAST, MOST)
    return {(name, kind): share[row, column] for row, name in enumerate(names) for column, kind in enumerate(CLASSES)}


def _attention_shares(known: Known, assumed: float) -> np.ndarray:
    generations = [lineage(known.specs[run.device]) for run in known.runs]
    return np.array(
        [
            FLASH_1_SHARE.get(generation, assumed) if stack.attention == FLASH_1 else assumed
            for stack, generation in zip(known.stacks, generations, strict=True)
        ]
    )


def _tensor_overlap(stack: Stack, assumed: float) -> float:
    return COMPILED_OVERLAP if stack.tensor_overlap == ALL else assumed
