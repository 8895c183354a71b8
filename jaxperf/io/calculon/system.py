"""Calculon's system file in SI units; the units stand in its keys (GiB = 2^30 byte, GBps = 10^9 byte/s)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.calculon.fields import count_of, number_of, object_of
from jaxperf.io.training_configuration import NetworkNumbers, Share, SystemNumbers
from jaxperf.models.checks import show

_TERA, _GIGA, _MEGA, _GIBI = 1e12, 1e9, 1e6, 2.0**30


def read_system(data: Mapping[str, Any], source: str) -> SystemNumbers:
    """The system of a file. Raises `InputError` naming file and key for numbers out of range."""
    matrix_flops, matrix_efficiency = _processor(data, "matrix", source)
    vector_flops, vector_efficiency = _processor(data, "vector", source)
    memory_capacity, memory_bandwidth, memory_efficiency = _memory(data, "mem1", source)
    offload_capacity, offload_bandwidth, offload_efficiency = _memory(data, "mem2", source)
    networks = data.get("networks")
    if not isinstance(networks, list) or not networks:
        raise InputError(f"{source}: networks is {show(networks)}; it must be a list of networks.")
    return SystemNumbers(
        matrix_flops=matrix_flops,
        vector_flops=vector_flops,
        memory_capacity=memory_capacity,
        memory_bandwidth=memory_bandwidth,
        offload_capacity=offload_capacity,
        offload_bandwidth=offload_bandwidth,
        matrix_efficiency=matrix_efficiency,
        vector_efficiency=vector_efficiency,
        memory_efficiency=memory_efficiency,
        offload_efficiency=offload_efficiency,
        networks=tuple(_network(each, f"{source}: network {index}") for index, each in enumerate(networks)),
    )


def _memory(data: Mapping[str, Any], key: str, source: str) -> tuple[float, float, tuple[Share, ...]]:
    """(capacity, bandwidth, shares by bytes) of a memory."""
    found, where = object_of(data, key, source), f"{source}: {key}"
    return (
        number_of(found, "GiB", where) * _GIBI,
        number_of(found, "GBps", where) * _GIGA,
        _shares(found, "MB_efficiency", _MEGA, where),
    )


def _processor(data: Mapping[str, Any], key: str, source: str) -> tuple[float, tuple[Share, ...]]:
    """(peak, shares by FLOP) of a processor; newer files nest both under a number format, of which float16 counts."""
    found = object_of(data, key, source)
    nested = found.get("float16", found)
    nested = nested if isinstance(nested, Mapping) else found
    table = nested.get("gflops_efficiency", {})
    table = table.get("float16", []) if isinstance(table, Mapping) else table
    peak = number_of(nested, "tflops", f"{source}: {key}") * _TERA
    return peak, _shares({"gflops_efficiency": table}, "gflops_efficiency", _GIGA, f"{source}: {key}")


def _network(data: Any, where: str) -> NetworkNumbers:
    if not isinstance(data, Mapping):
        raise InputError(f"{where} is {show(data)}; it must be an object.")
    newer = {"bw": "bandwidth", "eff": "efficiency"}
    named = {newer.get(str(key), str(key)): value for key, value in data.items()}
    latency = named.get("latency", 0.0)
    if isinstance(latency, bool) or not isinstance(latency, int | float) or not 0.0 <= latency < 1.0:
        raise InputError(f"{where}: latency is {show(latency)}; it must be seconds from 0 to 1.")
    efficiency = number_of(named, "efficiency", where)
    if efficiency > 1.0:
        raise InputError(f"{where}: efficiency is {efficiency}; it must be at most 1.")
    return NetworkNumbers(
        number_of(named, "bandwidth", where) * _GIGA, float(latency), count_of(named, "size", where), efficiency
    )


def _shares(data: Mapping[str, Any], key: str, unit: float, source: str) -> tuple[Share, ...]:
    """(least size in SI, share) pairs of a table of [size, share]."""
    table = data.get(key, [])
    if not isinstance(table, list) or any(not _is_pair(pair) for pair in table):
        raise InputError(f"{source}: {key} must be a list of [size, share] with shares in (0, 1].")
    return tuple((float(size) * unit, float(share)) for size, share in table)


def _is_pair(pair: Any) -> bool:
    if not isinstance(pair, list) or len(pair) != 2 or not all(type(each) in (int, float) for each in pair):
        return False
    return pair[0] >= 0 and 0 < pair[1] <= 1
