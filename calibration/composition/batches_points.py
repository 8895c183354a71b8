"""From a fixed batch to the numbers that its step is computed of: device facts, kernel rates, the all-reduce's rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from calibration.composition.batches_links import Curve, lineage, link_rate
from calibration.composition.batches_rows import Batch
from calibration.composition.batches_step import Point
from calibration.datasets.schema import KernelTable
from calibration.kernels.formats import FORMATS
from calibration.kernels.parameters import Parameters
from calibration.kernels.predict import predict_table
from hwspecs import DeviceSpec
from jaxperf.core.device import Device, device_from_spec
from jaxperf.core.formats import number_format
from jaxperf.core.numerics import as_float
from jaxperf.models.config import ModelConfig

NORMAL_90 = 1.645  # half-width of a 90 % interval over the standard deviation
# Rows of large products in the kernel tables: 0.95-1.0 of the peak on cores of 512 FLOP a cycle (RTX 3090, RTX 4090),
# 0.8 at 1024 and 2048 (A6000, A100), 0.7-0.75 at 4096 (H100, H200).
FEW_FLOPS = 512.0
USUAL_SPREAD = 0.12  # standard deviation of its logarithm
LARGE = 8192.0  # columns and depth of the product that tells a device's rate


def points_of(
    batches: Sequence[Batch],
    models: Sequence[ModelConfig],
    specs: Mapping[str, DeviceSpec],
    kernels: Parameters,
    curves: Sequence[Curve],
    kinds: Sequence[str],
    directories: Sequence[str] = (),
    most_prompts: int = 1,
) -> list[Point]:
    """The points of batches, `models[i]` being that of `batches[i]`.

    **Arguments:** `curves`: measured all-reduces; `kinds`: those whose energy is fitted, "" in the place of one
    that is not to be known; `most_prompts`: room for as many prompts at least.
    """
    width = _padded(max(most_prompts, *(len(batch.prompts) for batch in batches)))
    matrix = matrix_efficiency(batches, specs, kernels, directories)
    devices = {name: device_from_spec(spec) for name, spec in specs.items()}
    return [
        _point(batch, model, specs[batch.device], devices[batch.device], share, curves, kinds, width)
        for batch, model, share in zip(batches, models, matrix, strict=True)
    ]


def _padded(length: int) -> int:
    """The next power of two: tables of similar batches share their compiled form."""
    return 1 << (length - 1).bit_length()


def _point(
    batch: Batch,
    model: ModelConfig,
    spec: DeviceSpec,
    device: Device,
    matrix: float,
    curves: Sequence[Curve],
    kinds: Sequence[str],
    width: int,
) -> Point:
    weights, activations = (number_format(name) for name in FORMATS[batch.dtype or "bf16"])
    prompts = np.zeros(width)
    prompts[: len(batch.prompts)] = batch.prompts
    token = model.hidden * float(activations.itemsize)  # bytes of the residual stream, which is what is reduced

    def link(tokens: int) -> float:
        return link_rate(curves, spec, batch.ranks, tokens * token)

    return Point(
        device=device,
        ranks=as_float(batch.ranks),
        weights=weights,
        activations=activations,
        prompts=as_float(prompts),
        present=as_float(prompts > 0),
        output=as_float(batch.output),
        matrix=as_float(matrix),
        hbm=as_float((spec.memory_type or "").startswith("hbm")),
        inline_ecc=as_float(spec.inline_ecc),
        prefill_link=as_float(link(sum(batch.prompts))),
        decode_link=as_float(link(len(batch.prompts))),
        kind=as_float(_shares(spec, kinds)),
    )


def kind_of(spec: DeviceSpec) -> str:
    """The boards that share an energy: those of a generation with GDDR memory; "" for others, which keep their rate.

    Of the batches measured, the A100's ran at the rate of short measurements; every board with GDDR fell short.
    """
    return lineage(spec) if (spec.memory_type or "").startswith("gddr") else ""


def _shares(spec: DeviceSpec, kinds: Sequence[str]) -> list[float]:
    """Weight of each kind's logarithm in the board's energy: its own alone; all known alike where that is not known."""
    own = kind_of(spec)
    if own in kinds or not own:
        return [float(each == own and each != "") for each in kinds]
    known = [float(each != "") for each in kinds]
    return [each / max(sum(known), 1.0) for each in known]


def matrix_efficiency(
    batches: Sequence[Batch],
    specs: Mapping[str, DeviceSpec],
    kernels: Parameters,
    directories: Sequence[str] = (),
) -> np.ndarray:
    """Share of the matrix peak that a large product of a batch's tokens reaches [rows].

    What the kernel parameters say, weighted by how sure they are of it (their interval), and what cores of that kind
    reach: the mean of the two logarithms by the inverse of their variances.
    """
    found = predict_table(large_products(batches, kernels), kernels, directories)
    share = np.log(np.asarray(found["roofline_us"] / found["predicted_us"], float))
    deviation = np.log(np.asarray(found["upper_us"] / found["predicted_us"], float)) / NORMAL_90
    known = (found["tier"] != "roofline") & np.isfinite(share) & (deviation > 0.0)
    trust = np.where(known, 1.0 / np.where(known, deviation, 1.0) ** 2, 0.0)
    asked = [(batch.device, batch.dtype or "bf16") for batch in batches]
    each = {pair: usual_efficiency(specs[pair[0]], pair[1]) for pair in set(asked)}
    usual = np.log([each[pair] for pair in asked])
    return np.exp((trust * np.where(known, share, 0.0) + usual / USUAL_SPREAD**2) / (trust + 1.0 / USUAL_SPREAD**2))


def usual_efficiency(spec: DeviceSpec, dtype: str) -> float:
    """Share of the matrix peak that large products reach on cores with that much arithmetic: 0.95 (x / 512)^-0.1 of x
    FLOP a cycle, because operands come from shared memory and L2 at a rate that differs little between cores [1]."""
    peak = device_from_spec(spec).peak_flops[int(number_format(FORMATS[dtype][0]).compute)]
    cycle = float(peak) / (spec.num_cores.si * spec.clock_rate.si)
    return 0.95 * (max(cycle, FEW_FLOPS) / FEW_FLOPS) ** -0.1


def large_products(batches: Sequence[Batch], kernels: Parameters) -> KernelTable:
    """One product a batch: its prompt tokens times a square weight."""
    rows = len(batches)
    tokens = np.array([float(sum(batch.prompts)) for batch in batches])
    dtypes = [batch.dtype or "bf16" for batch in batches]
    stacks = [_stack(kernels, batch.framework, dtype) for batch, dtype in zip(batches, dtypes, strict=True)]
    side = np.full(rows, LARGE)
    return KernelTable(
        family="gemm",
        row=np.arange(rows),
        device=_texts([batch.device for batch in batches]),
        framework=_texts([batch.framework for batch in batches]),
        version=_texts([version for version, _ in stacks]),
        kernel=_texts([kernel for _, kernel in stacks]),
        dtype=_texts(dtypes),
        cache=_texts([""] * rows),
        shape={"batch": np.ones(rows), "m": tokens, "n": side, "k": side},
        latency=None,
        flag=np.zeros(rows, np.int64),
        text={},
    )


def _stack(kernels: Parameters, framework: str, dtype: str) -> tuple[str, str]:
    """(version, kernel) of a framework's products in that format, of the version that the most devices have; "" where
    it has none."""
    fitted = kernels.families.get("gemm")
    if fitted is None:
        return "", ""
    known = fitted.names.known
    own = [name for name in known["stack"] if name.startswith(f"{framework}/") and name.split("/")[3] == dtype]
    stacks = [name for name in own if name.split("/")[1]]
    if not stacks:
        return "", ""
    devices = [sum(cell.endswith(f"/{name}") for cell in known["cell"]) for name in stacks]
    _, version, kernel, *_ = stacks[int(np.argmax(devices))].split("/")
    return version, kernel


def _texts(values: Sequence[str]) -> np.ndarray:
    return np.array(values, dtype=object)
