"""Logs of nccl-tests and rccl-tests (`all_reduce_perf` and its kin): their standard output as collectives."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from calibration.datasets.families import COLLECTIVES, FAMILY_OF
from calibration.datasets.files import read_text
from calibration.datasets.names import device_name, dtype_name
from calibration.datasets.schema import KernelTable, Problem, Read
from hwspecs.errors import InputError

_BINARY = re.compile(r"(?<![a-z])([a-z_]+?)_perf(?![a-z])")
_RANK = re.compile(r"#\s*Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s+(.+)")
_COUNTS = re.compile(r"#\s*nThread\s+(\d+)\s+nGpus\s+(\d+)")
_LIBRARY = re.compile(r"nccl-library=(\d+)")
_VERSION = re.compile(r"[NR]CCL version\s*:?\s*(\d+(?:\.\d+)+)")
_LAUNCHER = re.compile(  # what launchers and collectors of logs print in front of a line, one after the other
    r"(?:\s*(?:"
    r"\S*<stdout>:"  # mpirun --tag-output
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?(?=\s)"  # a date and time
    r"|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?:?(?=\s)"
    r"|[A-Z][a-z]{2}\s+\d+\s\d\d:\d\d:\d\d(?:\s\S+\s\S+:)?(?=\s)"  # syslog, journalctl
    r"|\[[^\]\s]+\]:?(?=\s)"  # kubectl logs --prefix
    r"|[\w.-]+(?::|\s*\|)(?=\s)"  # a host, a worker, srun --label; docker compose
    r"))*"
)
_ROUNDING = 0.02  # algbw is printed with two decimals, so compare only where that is at least 1 GB/s


@dataclass(frozen=True)
class NcclLog:
    """A log: its rows as `Read` (out-of-place times), and what it prints beside, for the same rows.

    `algorithm_bandwidth`, `bus_bandwidth` [R] [byte/s], out of place; `in_place` [R] [s], NaN where not measured.
    """

    read: Read
    algorithm_bandwidth: np.ndarray
    bus_bandwidth: np.ndarray
    in_place: np.ndarray


@dataclass
class _Run:
    """What the lines so far said about the run that the next results belong to."""

    op: str
    ranks: dict[int, tuple[str, str]] = field(default_factory=dict)  # rank: host, device
    threads_gpus: int = 0
    version: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Result:
    """One line of sizes and times, understood."""

    row: int
    run: _Run
    size: int
    num_gpus: int
    dtype: str
    time: float
    algorithm_bandwidth: float
    bus_bandwidth: float
    in_place: float


def read_nccl_log(path: str | Path, op: str | None = None, num_gpus: int | None = None) -> NcclLog:
    """The collectives of a log. Sizes are total buffers and bandwidths per rank, as nccl-tests defines both.

    **Arguments:** `op`: the collective, where neither the log nor the file's name has the binary's name
    (`all_reduce_perf`); `num_gpus`: ranks, where the log lists none.
    **Raises:** `InputError` where these are unknown, or no result is in the log. A bad line is a `Problem`.
    """
    run = _Run(op or _op(Path(path).name.lower()))
    results: list[_Result] = []
    problems: list[Problem] = []
    row = 0
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        line = _LAUNCHER.sub("", line, count=1).strip()
        if not (run.columns and re.match(r"\d+\s+\d+\s+\w+", line)):
            run = _follow(run, line, op)
            continue
        try:
            results.append(_result(row, run, line.split(), _ranks(run, num_gpus, path)))
        except _BadLineError as error:
            problems.append(Problem(row, "size", f"log line {number}: {error}", excluded=True))
        row += 1
    if row == 0:
        raise InputError(f"{path} is not a log of nccl-tests, or holds no result: no line of sizes and times.")
    read = Read((_table(results),) if results else (), tuple(problems), row, str(path))
    beside = (
        [r.algorithm_bandwidth for r in results],
        [r.bus_bandwidth for r in results],
        [r.in_place for r in results],
    )
    return NcclLog(read, *(np.array(column, np.float64) for column in beside))


class _BadLineError(Exception):
    """Why one line of results cannot be used."""


def is_nccl_log(lines: Iterable[str]) -> bool:
    """Whether one of the lines names the columns of results."""
    return any(map(_is_header, lines))


def _is_header(line: str) -> bool:
    return "#" in line and {"size", "type", "time", "algbw", "busbw"} <= set(line.split())


def _op(text: str) -> str:
    """The collective a text names by its benchmark's binary, or ""."""
    match = _BINARY.search(text)
    word = match[1].removesuffix("_bias").lower() if match else ""
    word = COLLECTIVES.get(word, word)
    return word if FAMILY_OF.get(word) == "collective" else ""


def _follow(run: _Run, line: str, op: str | None) -> _Run:
    """The run after a line that is no result; a line with thread counts begins a new one."""
    if counts := _COUNTS.search(line):
        # The binary's name comes just before; ranks and columns come after.
        return _Run(run.op, {}, int(counts[1]) * int(counts[2]), run.version)
    if rank := _RANK.search(line):
        run.ranks[int(rank[1])] = (rank[2], rank[3].strip())
    elif _is_header(line):
        run.columns = tuple(line.lstrip("#").split())
    elif library := _LIBRARY.search(line):
        code = int(library[1])  # 22502 is 2.25.2
        run.version = f"{code // 10000}.{code // 100 % 100}.{code % 100}"
    elif version := _VERSION.search(line):
        run.version = version[1]
    elif op is None and (named := _op(line)):
        run = _Run(named, run.ranks, run.threads_gpus, run.version, run.columns)
    return run


def _ranks(run: _Run, num_gpus: int | None, path: str | Path) -> int:
    if not run.op:
        raise InputError(
            f"{path}: which collective this is cannot be told: no line names its binary; name the file after the "
            "test, such as all_reduce_perf.log (in Python: op='all_reduce')."
        )
    # Without MPI, "nThread 1 nGpus 8" is all there is; with it, that counts one process only, but ranks are listed.
    ranks = num_gpus or len(run.ranks) or run.threads_gpus
    if ranks < 2:
        raise InputError(
            f"{path}: how many ranks took part cannot be told: fewer than 2 are listed; keep the log's lines "
            "'# Rank ...' (in Python: num_gpus=8)."
        )
    return ranks


def _result(row: int, run: _Run, fields: list[str], ranks: int) -> _Result:
    if len(fields) != len(run.columns):
        raise _BadLineError(f"{len(fields)} values where the header has {len(run.columns)} columns.")
    by_name: dict[str, list[str]] = {}
    for name, value in zip(run.columns, fields, strict=True):
        by_name.setdefault(name, []).append(value)
    size, (time, *in_place) = int(fields[0]), (_number(text) * 1e-6 for text in by_name["time"])
    algorithm, bus = (_number(by_name[name][0]) * 1e9 for name in ("algbw", "busbw"))
    if size <= 0 or not time > 0.0:
        raise _BadLineError(f"{size} bytes in {time:g} s is no measurement.")
    errors = by_name.get("#wrong", by_name.get("wrong", ["0"]))[0]
    if errors.isdigit() and int(errors) > 0:
        raise _BadLineError(f"the benchmark found {errors} wrong results.")
    if algorithm >= 1e9 and abs(size / time - algorithm) > _ROUNDING * algorithm:
        raise _BadLineError(f"{size} bytes in {time:g} s are not the {algorithm / 1e9:g} GB/s that it states.")
    dtype = dtype_name(by_name["type"][0])[0]
    return _Result(row, run, size, ranks, dtype, time, algorithm, bus, in_place[0] if in_place else math.nan)


def _number(text: str) -> float:
    try:
        return math.nan if text.upper() == "N/A" else float(text)
    except ValueError:
        raise _BadLineError(f"{text!r} is not a number.") from None


def _table(results: list[_Result]) -> KernelTable:
    def texts(values: Iterable[str]) -> np.ndarray:
        return np.array(list(values), object)

    def numbers(values: Iterable[float]) -> np.ndarray:
        return np.array(list(values), np.float64)

    count = len(results)
    runs = {id(result.run): result.run for result in results}
    devices = {key: _device(run) for key, run in runs.items()}
    per_node = {key: _per_node(run) for key, run in runs.items()}
    return KernelTable(
        family="collective",
        row=np.array([result.row for result in results], np.int64),
        device=texts(devices[id(result.run)] for result in results),
        framework=texts(["nccl"] * count),
        version=texts(result.run.version for result in results),
        kernel=texts(["nccl"] * count),
        dtype=texts(result.dtype for result in results),
        cache=texts([""] * count),
        shape={
            "bytes": numbers(result.size for result in results),
            "num_gpus": numbers(result.num_gpus for result in results),
            "gpus_per_node": numbers(per_node[id(result.run)] for result in results),
            **{name: np.zeros(count) for name in ("tokens", "hidden", "topk", "experts", "sms")},
        },
        latency=numbers(result.time for result in results),
        flag=np.zeros(count, np.int64),
        text={"op": texts(result.run.op for result in results)},
    )


def _device(run: _Run) -> str:
    found = {device_name(name)[0] for _, name in run.ranks.values()}
    return found.pop() if len(found) == 1 else ""


def _per_node(run: _Run) -> float:
    """Ranks of the fullest host, NaN where the log lists none."""
    hosts = [host for host, _ in run.ranks.values()]
    return float(max(map(hosts.count, hosts))) if hosts else math.nan
