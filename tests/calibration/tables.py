"""Synthetic tables of kernels: a law known exactly, so that a fit can be judged."""

from __future__ import annotations

import numpy as np

from calibration.datasets.schema import KernelTable, Read

DEVICES = ("h100-sxm", "a100-sxm-80gb", "l40s")


def gemm_table(rows: int = 600, devices: tuple[str, ...] = DEVICES, seed: int = 0, slow: float = 1.3) -> KernelTable:
    """GEMMs whose time is `slow` times the roofline plus 4 us, on several devices in one framework."""
    from calibration.kernels.inputs import prepare

    generator = np.random.default_rng(seed)
    sizes = {name: 2.0 ** generator.integers(4, 13, rows) for name in ("m", "n", "k")}
    table = blank_table("gemm", sizes | {"batch": np.ones(rows)}, generator.choice(devices, rows).astype(object))
    time = slow * prepare(table).roofline + 4e-6
    return with_latency(table, time)


def blank_table(family: str, shape: dict[str, np.ndarray], device: np.ndarray, dtype: str = "bf16") -> KernelTable:
    """Rows of one framework and format without a latency."""
    rows = len(device)

    def text(value: str) -> np.ndarray:
        return np.full(rows, value, dtype=object)

    return KernelTable(
        family=family,
        row=np.arange(rows),
        device=device,
        framework=text("vllm"),
        version=text("1.0"),
        kernel=text("linear"),
        dtype=text(dtype),
        cache=text(""),
        shape={name: np.asarray(values, np.float64) for name, values in shape.items()},
        latency=None,
        flag=np.zeros(rows, np.int64),
        text={},
    )


def in_stack(table: KernelTable, framework: str, version: str, kernel: str) -> KernelTable:
    """The same rows as kernels of one framework and version."""
    fields = {name: getattr(table, name) for name in table.__dataclass_fields__}
    rows = len(table)
    text = {"framework": framework, "version": version, "kernel": kernel}
    return KernelTable(**fields | {name: np.full(rows, value, dtype=object) for name, value in text.items()})


def with_latency(table: KernelTable, latency: np.ndarray) -> KernelTable:
    """The same rows, measured."""
    fields = {name: getattr(table, name) for name in table.__dataclass_fields__}
    return KernelTable(**fields | {"latency": np.asarray(latency, np.float64)})


def as_read(*tables: KernelTable) -> Read:
    """Tables as if read from one file, one after the other."""
    start, placed = 0, []
    for table in tables:
        fields = {name: getattr(table, name) for name in table.__dataclass_fields__}
        placed.append(KernelTable(**fields | {"row": np.arange(start, start + len(table))}))
        start += len(table)
    return Read(tuple(placed), (), start, __file__)
