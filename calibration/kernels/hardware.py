"""The facts of the devices of a table, one row of arrays per device: demands and features are computed from them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import hwspecs
from hwspecs import DeviceSpec
from hwspecs.changed import origin_of
from jaxperf.core.device import Device, device_from_spec
from jaxperf.core.numerics import as_float
from jaxperf.core.relative_energy import relative_energy, spendable_power

REFERENCE_CLOCK = 1.83e9  # matrix clock of the H100, against which other clocks are put [Hz]
REFERENCE_ENERGY = 0.131e-12  # of a 16-bit operation in the H100's process (`hwspecs.energy_of`) [J/FLOP]
REFERENCE_POWER = 0.82  # of the H100's process (`ProcessSpec.relative_power`) [1]
REFERENCE_BUDGET = 0.7075e-12  # 700 W over 989.4 TFLOP/s, what the H100 may draw at its peak [J/FLOP]
UNSTATED = 1.6  # a device whose process has no published energy counts as one of a 7 nm class
# What a GPU draws at its clock with nothing to do: some 27 W of a T4 and 40 W of a V100 PCIe, 0.05 W for each square
# millimetre of either's die (as recalled from their drivers' readings). An H200 drew three times as much, with its
# memory (`calibration/measured/power`). Where no area is stated, the share that 41 W are of an A100's 400 W.
STANDING_POWER = 5e4  # [W/m^2]
STANDING_SHARE = 0.1  # of the limit [1]
REFERENCE = {
    "standing_power": STANDING_POWER,
    "standing_share": STANDING_SHARE,
    "reference_clock": REFERENCE_CLOCK,
    "reference_energy": REFERENCE_ENERGY,
    "reference_power": REFERENCE_POWER,
    "reference_budget": REFERENCE_BUDGET,
    "unstated_energy": UNSTATED,
}
# Of Hopper's matrix peak that instructions of a warp (mma) reach, those of four warps together (wgmma) being the whole:
# recalled from arXiv:2402.13499; vLLM's pull request 7174 says three quarters at best.
WARP_SHARE = 0.63
# Threads whose instruction a core issues in a cycle: four schedulers of a warp of 32 on NVIDIA's since Maxwell except
# GP100, which has two (NVIDIA's whitepaper on the P100); four units of 16 lanes on AMD's CDNA and GCN (ROCm Compute
# Profiler, "Vector arithmetic logic unit"), two of 32 on RDNA.
ISSUED = 128.0
UNSTATED_RESIDENT = 2048.0  # threads that a core holds, where a file does not say: most of NVIDIA's and AMD's
UNSTATED_EXPONENTIALS = 16.0  # per cycle and core, where a file does not say: what nearly all of NVIDIA's have
ISSUED_BY = {"pascal-gp100": 64.0, "cdna": 64.0, "vega": 64.0, "rdna": 64.0}


class Hardware(eqx.Module):
    """`device`: stacked [D]; `clock`: matrix clock, `design_clock`: that of the device it was made from, whose energies
    its operations take: under its limit a chip runs at the clock it can pay [Hz]; `power`: what its limit leaves to
    operations [W]; `energy`: of an operation at one clock over the H100's on vector units, `matrix_energy`: on matrix
    units [1]; `issued`: threads whose instruction a core issues in a cycle [1]; `resident`: threads that a core holds
    at a time [1]; `exponentials`: of a core in a cycle [1]; `reads_shared`: 1 where matrix instructions read shared
    memory themselves, `pipelined`: 1 where they leave their results in a memory of their own, else 0
    (`ArchitectureSpec.operands_from_shared_memory`, `accumulators_in_tensor_memory`); `many_cores`: 1 for a GPU, whose
    cores each take small blocks and share a cache in which a repeated kernel finds its operands, 0 for the few large
    cores of others, whose last memory on chip software fills and empties; `gddr`: 1 where the memory is GDDR,
    `inline_ecc`: 1 where its check bits share its bus, else 0; all [D]."""

    device: Device
    clock: Float[Array | np.ndarray, " D"]
    design_clock: Float[Array | np.ndarray, " D"]
    power: Float[Array | np.ndarray, " D"]
    energy: Float[Array | np.ndarray, " D"]
    matrix_energy: Float[Array | np.ndarray, " D"]
    issued: Float[Array | np.ndarray, " D"]
    resident: Float[Array | np.ndarray, " D"]
    exponentials: Float[Array | np.ndarray, " D"]
    reads_shared: Float[Array | np.ndarray, " D"]
    pipelined: Float[Array | np.ndarray, " D"]
    many_cores: Float[Array | np.ndarray, " D"]
    gddr: Float[Array | np.ndarray, " D"]
    inline_ecc: Float[Array | np.ndarray, " D"]

    def rows(self, index: np.ndarray) -> Hardware:
        """One row per entry of `index`."""
        return jax.tree.map(lambda leaf: leaf[index], self)


def load_hardware(names: Sequence[str], directories: Sequence[str | Path] = ()) -> Hardware:
    """The facts of named devices, in the order given, on the host."""
    number = jnp.result_type(float)
    each = [_hardware(hwspecs.load(name, directories)) if directories else _shipped(name, number) for name in names]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *each)


@functools.cache
def _shipped(name: str, number: np.dtype) -> Hardware:
    """Of a device whose file no user changes; `number`: the type that the facts are in."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, number), _hardware(hwspecs.load(name)))


def _hardware(spec: DeviceSpec) -> Hardware:
    architecture = hwspecs.load_architecture(spec.architecture)
    exponentials, resident = architecture.special_functions_per_cycle, architecture.resident_threads
    gpu = spec.kind == "gpu" or exponentials is not None  # that of a Jetson has the cores of its generation
    return Hardware(
        device_from_spec(spec),
        clock=as_float(spec.clock_rate.si),
        design_clock=as_float((origin_of(spec) or spec).clock_rate.si),
        power=as_float(spendable_power(spec, REFERENCE)),
        energy=as_float(relative_energy(spec, REFERENCE, on_matrix_units=False)),
        matrix_energy=as_float(relative_energy(spec, REFERENCE, on_matrix_units=True)),
        issued=as_float(issued(spec.architecture)),
        resident=as_float(resident.si if resident else UNSTATED_RESIDENT),
        exponentials=as_float(exponentials.si if exponentials else UNSTATED_EXPONENTIALS),
        reads_shared=as_float(architecture.operands_from_shared_memory),
        pipelined=as_float(architecture.accumulators_in_tensor_memory),
        many_cores=as_float(gpu),
        gddr=as_float((spec.memory_type or "").startswith("gddr")),
        inline_ecc=as_float(spec.inline_ecc),
    )


def issued(architecture: str) -> float:
    """Threads whose instruction a core of an architecture issues in a cycle [1]."""
    return next((threads for name, threads in ISSUED_BY.items() if architecture.startswith(name)), ISSUED)
