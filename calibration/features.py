"""Dimensionless features of a kernel on a device: what the learned correction of the physical fit sees.

Each is a logarithm or a flag, and all but the sizes of the shape itself are ratios of a demand to a limit, so that
they mean the same on a device never measured.
"""

from __future__ import annotations

import numpy as np

from calibration.datasets.schema import KernelTable
from calibration.demand import Demand
from calibration.hardware import Hardware

LAUNCH = 3e-6  # the scale against which a kernel is short [s]
CORE_BYTES_PER_CYCLE = 64.0  # what a core takes from L2 in one cycle; the same on every NVIDIA core since Volta
TILES = ((256.0, 128.0), (128.0, 128.0), (64.0, 64.0))
QUERY_BLOCK = 128.0
QUERY_ROWS = 16.0  # query heads of one key head that a decode block takes together


def features(
    table: KernelTable, demand: Demand, hardware: Hardware, index: np.ndarray
) -> tuple[tuple[str, ...], np.ndarray]:
    """Names [F] and values [R, F] of the features, float32; `index` [R] is the device of each row."""
    columns = _general(demand, hardware, index) | _sizes(table) | _family(table, hardware, index)
    return tuple(columns), np.stack(list(columns.values()), axis=1).astype(np.float32)


def waves(table: KernelTable, hardware: Hardware, index: np.ndarray) -> np.ndarray:
    """Blocks that the busiest core works through one after the other [1]; 0 for a kernel that is only a stream."""
    x, cores = table.shape, _of(hardware.device.num_cores, index)
    height, width = TILES[1]
    if table.family in ("gemm", "bmm", "convolution", "mla_pre", "mla_post"):
        m, batch, n, _ = _matrix(table)
        blocks = np.ceil(m / height) * np.ceil(n / width) * batch
    elif table.family == "moe":
        copies = x["tokens"] * x["topk"] / x["ep"]
        touched = np.minimum(x["experts"] / x["ep"], copies)
        blocks = (touched + copies / height) * np.ceil(2.0 * x["inter"] / x["tp"] / width)
    elif table.family in ("attention_prefill", "mla_prefill"):
        blocks = np.ceil(x["q_len"] / QUERY_BLOCK) * x["heads"] * x["batch"]
    elif table.family in ("attention_decode", "mla_decode"):
        kv_heads = x.get("kv_heads", np.ones(len(table)))
        blocks = x["batch"] * kv_heads * np.ceil(x["heads"] / kv_heads / QUERY_ROWS)
    elif table.family == "attention_mixed":
        blocks = np.ceil(x["prefill_q"] / QUERY_BLOCK) * x["heads"] + x["n_decode"] * x["kv_heads"]
    else:
        return np.zeros(len(table))
    return np.ceil(blocks / cores) * _of(hardware.many_cores, index)


def on_chip_time(demand: Demand, hardware: Hardware, index: np.ndarray) -> np.ndarray:
    """Time for all cores of a GPU together to take the kernel's bytes from L2 [s]; 0 on another kind of device."""
    cores, clock = _of(hardware.device.num_cores, index), _of(hardware.clock, index)
    return np.asarray(demand.moved) / (CORE_BYTES_PER_CYCLE * cores * clock) * _of(hardware.many_cores, index)


def _of(leaf: object, index: np.ndarray) -> np.ndarray:
    return np.asarray(leaf, np.float64)[index]


def _log2(x: np.ndarray) -> np.ndarray:
    return np.log2(np.maximum(np.asarray(x, np.float64), 1e-30))


def _general(demand: Demand, hardware: Hardware, index: np.ndarray) -> dict[str, np.ndarray]:
    compute, memory = np.asarray(demand.compute, np.float64), np.asarray(demand.memory, np.float64)
    moved, cache = np.asarray(demand.moved), _of(hardware.device.l2_capacity, index)
    return {
        "compute over memory": _log2(compute) - _log2(memory),
        "bytes over L2": _log2(moved) - _log2(cache),
        "duration over launch": _log2(np.maximum(compute, memory)) - _log2(np.full_like(memory, LAUNCH)),
        "power over compute": _log2(demand.power) - _log2(compute),
    }


def _sizes(table: KernelTable) -> dict[str, np.ndarray]:
    """Every column of the shape that varies."""
    return {f"log2 {name}": _log2(values + (values == 0)) for name, values in table.shape.items()}


def _family(table: KernelTable, hardware: Hardware, index: np.ndarray) -> dict[str, np.ndarray]:
    x, cores = table.shape, _of(hardware.device.num_cores, index)
    cache = _of(hardware.device.l2_capacity, index)
    if table.family in ("gemm", "bmm", "convolution", "mla_pre", "mla_post"):
        rows, batch, columns, depth = _matrix(table)
        return _tiles(rows, batch, columns, depth, cores, cache)
    if table.family == "moe":
        rows = np.maximum(x["tokens"] * x["topk"] / x["experts"], 1.0)
        wave = _tiles(rows, x["experts"] / x["ep"], 2.0 * x["inter"] / x["tp"], x["hidden"], cores, cache)
        skew = np.char.find(table.text.get("distribution", np.full(len(table), "")).astype(str), "power") >= 0
        return wave | {"rows per expert": _log2(rows), "skewed": skew.astype(float)}
    if table.family in ("attention_prefill", "mla_prefill"):
        blocks = np.ceil(x["q_len"] / QUERY_BLOCK) * x["heads"] * x.get("batch", 1.0)
        return _per_core("query blocks", blocks, cores) | {
            "queries per key head": _log2(x["heads"] / x.get("kv_heads", x["heads"]))
        }
    if table.family in ("attention_decode", "mla_decode"):
        groups = x["batch"] * x.get("kv_heads", 1.0)
        return _per_core("key groups", groups, cores) | {
            "queries per key head": _log2(x["heads"] / x.get("kv_heads", 1.0)),
            "windowed": (x.get("window", np.zeros(len(table))) > 0).astype(float),
        }
    return {}


def _matrix(table: KernelTable) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """rows, batch, columns, depth of the product."""
    x = table.shape
    if table.family == "convolution":
        side = np.floor((x["input_size"] + 2 * x["padding"] - x["kernel_size"]) / x["stride"] + 1e-6) + 1
        rows = x["batch"] * side**2
        return rows, np.ones_like(rows), x["output_channels"], x["input_channels"] * x["kernel_size"] ** 2
    if "heads" in x:
        rows = x["batch"] * np.maximum(x["q_len"], 1)
        return rows, x["heads"], np.full_like(rows, 512.0), np.full_like(rows, 128.0)
    if table.family == "gemm":  # the batch shares its right-hand side
        return x["batch"] * x["m"], np.ones_like(x["m"]), x["n"], x["k"]
    return x["m"], x["batch"], x["n"], x["k"]


def _tiles(
    m: np.ndarray, batch: np.ndarray, n: np.ndarray, k: np.ndarray, cores: np.ndarray, cache: np.ndarray
) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for height, width in TILES:
        rows = np.minimum(height, np.maximum(16.0, 2.0 ** np.ceil(_log2(m))))
        tiles = np.ceil(m / rows) * np.ceil(n / width) * batch
        found |= _per_core(f"tiles {height:.0f}x{width:.0f}", tiles, cores)
    return found | {
        "left over L2": _log2(m * k) - _log2(cache),
        "right over L2": _log2(n * k * batch) - _log2(cache),
        "rows not of 8": (m % 8 != 0).astype(float),
        "rows not of 64": (m % 64 != 0).astype(float),
        "few rows": (m <= 16).astype(float),
    }


def _per_core(name: str, blocks: np.ndarray, cores: np.ndarray) -> dict[str, np.ndarray]:
    each = blocks / cores
    return {f"{name} per core": _log2(each), f"{name} last wave": np.log(np.ceil(each) / each).clip(0.0, 5.0)}
