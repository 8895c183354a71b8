"""Which measured kernels tell what a serving engine sustains on a device, and what each of them asks of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import hwspecs
from calibration.datasets.schema import KernelTable
from calibration.kernels.demand import demand
from calibration.kernels.fit import sample
from calibration.kernels.formats import FORMATS
from calibration.kernels.hardware import REFERENCE_CLOCK, load_hardware
from calibration.kernels.held_out import generations
from calibration.kernels.ways import ways_of
from jaxperf.core.formats import FORMATS as NUMBER_FORMATS
from jaxperf.core.sustained import CLASSES, format_class
from jaxperf.core.sustained_file import KIND

# Families of the composed step -> families of the tables.
SOURCES: Mapping[str, tuple[str, ...]] = {
    "gemm": ("gemm", "gemm_vector"),
    "attention_prefill": ("attention_prefill",),
    "attention_decode": ("attention_decode",),
    "mla_decode": ("mla_decode",),
    "moe": ("moe",),
    "elementwise": ("norm", "elementwise", "rope"),
}
# Engines timed under graph replay, and Vidur's device times by the profiler where a device has none of these. Eager
# tables are left out: their floors are the host's.
ENGINES = ("trtllm", "vllm", "sglang", "vidur")
BY_HOST = ("torch", "hf_torch", "jax")
# A scale for a block of elements, or small weights widened on the way, makes another kernel of it; experts in 8 bits,
# though, are mostly stored and multiplied in blocks.
PLAIN = ("bf16", "fp16", "fp8", "int8", "sq", "nvfp4")
IN_BLOCKS = {"moe": ("fp8_block",)}
WIDE = ("fp32", "tf32")  # which one's own table may be in; no engine serves in them
UNGATED = "nongated"  # in the name of a kernel: two projections where the demand of `moe` counts three
DECODES = ("attention_decode", "mla_decode")
LEAST_TOKENS = 256.0  # of a prompt or a context: a shorter one is nearly all launch, and rare in serving
ROWS_PER_CELL = 1500
CLOCK_POWER = 2.0  # of the clock in the energy of a FLOP, as `core.sustained_file` has it
LAUNCHES = {"moe": 3.0}  # launches of one row: two grouped GEMMs and what lies between; a step counts them singly


@dataclass(frozen=True)
class Rows:
    """Rows of one family and format class: logarithms of the demands and of the measured time [log s], of the launches
    [log 1]; who they are of, and `stack`, the software; `step`: kernels that one step of a model would run together
    have the same; all [R]."""

    compute: np.ndarray
    power: np.ndarray
    memory: np.ndarray
    launches: np.ndarray
    footprint: np.ndarray
    time: np.ndarray
    source: np.ndarray
    device: np.ndarray
    generation: np.ndarray
    stack: np.ndarray
    cell: np.ndarray
    shape: np.ndarray
    step: np.ndarray

    def take(self, rows: np.ndarray) -> Rows:
        """The rows that an index or a mask selects."""
        return Rows(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})


@dataclass(frozen=True)
class Wanted:
    """Which rows count: those of devices of a `kind`; of `ENGINES` alone, or also of `any_software` where a device has
    none of theirs. `least`: a device with fewer rows of a class counts as not measured in it; `directories`: of the
    user's own devices."""

    kind: str = KIND
    any_software: bool = False
    least: int = 40
    directories: Sequence[str] = ()

    def software(self, names: Sequence[str]) -> list[str]:
        """Those that count of the frameworks of one device."""
        engines = [name for name in names if name in ENGINES]
        if engines or not self.any_software:
            return engines
        return [name for name in names if name not in BY_HOST or self.kind != KIND]


SERVING = Wanted()


def serving_rows(tables: Mapping[str, KernelTable], family: str, wanted: Wanted = SERVING) -> dict[str, Rows]:
    """The rows of a family of the composed step, by format class; a class without rows is left out."""
    chosen = {name: _chosen(tables[name], wanted) for name in SOURCES[family] if name in tables}
    parts = [_rows(family, name, table, wanted.directories) for name, table in chosen.items()]
    whole = [part for part in parts if part is not None]
    found = {}
    for form in CLASSES:
        mine = [rows.take(np.flatnonzero(classes == form)) for rows, classes in whole]
        if sum(len(rows.time) for rows in mine):
            joined = {
                name: np.concatenate([getattr(rows, name) for rows in mine]) for name in Rows.__dataclass_fields__
            }
            found[form] = Rows(**joined)
    return found


def _chosen(table: KernelTable, wanted: Wanted) -> KernelTable:
    """Of each device: the engines, each in its newest version, in plain formats and lengths that are served."""
    gated = np.char.find(table.kernel.astype(str), UNGATED) < 0
    formats = PLAIN + IN_BLOCKS.get(table.family, ()) + (WIDE if wanted.any_software else ())
    keep = np.isin(table.dtype.astype(str), formats) & _served(table) & gated
    table = table.take(np.flatnonzero(keep & _of_kind(table, wanted)))
    table = table.take(np.flatnonzero(_decoding(table, wanted)))
    device, framework = table.device.astype(str), table.framework.astype(str)
    keep = np.zeros(len(table), bool)
    for name in np.unique(device):
        here = device == name
        engines = wanted.software(np.unique(framework[here]).tolist())
        measured = [each for each in engines if each != "vidur"] or engines
        for engine in measured if table.family in SOURCES["gemm"] else engines:
            at = here & (framework == engine)
            keep |= at & (table.version.astype(str) == newest(np.unique(table.version[at].astype(str))))
    table = table.take(np.flatnonzero(keep))
    return table.take(sample(_cells(table), ROWS_PER_CELL, 0)) if len(table) else table


def _of_kind(table: KernelTable, wanted: Wanted) -> np.ndarray:
    """Rows of the wanted kind of device: the scalars are transferred among devices of one kind."""
    names, which = np.unique(table.device.astype(str), return_inverse=True)
    return np.array([hwspecs.load(name, wanted.directories).kind == wanted.kind for name in names], bool)[which]


def _decoding(table: KernelTable, wanted: Wanted) -> np.ndarray:
    """All rows but those of latent attention by a kernel for prefill, which no composed step launches for decode."""
    return ways_of(table, wanted.directories).get("undivided", np.zeros(len(table))) == 0.0


def newest(versions: np.ndarray) -> str:
    """The last of some version numbers: 1.10 comes after 1.9."""
    return str(max(versions, key=lambda text: ([int(part) for part in re.findall(r"\d{1,18}", text)], text)))


def _served(table: KernelTable) -> np.ndarray:
    """Attention over whole prompts and contexts; every other kernel."""
    length = table.shape.get("kv_len" if table.family in DECODES else "q_len")
    if length is None:
        return np.ones(len(table), bool)
    return (length >= LEAST_TOKENS) & (table.shape.get("window", np.zeros(len(table))) == 0)


def _join(*columns: Iterable[object]) -> np.ndarray:
    return np.array(["/".join(map(str, each)) for each in zip(*columns, strict=True)], dtype=str)


def _cells(table: KernelTable) -> np.ndarray:
    return _join(table.device, _stacks(table))


def _stacks(table: KernelTable) -> np.ndarray:
    op = table.text.get("op", np.full(len(table), "", dtype=object))
    return _join(table.framework, table.kernel, table.dtype, table.cache, op)


def _rows(family: str, source: str, table: KernelTable, directories: Sequence[str]) -> tuple[Rows, np.ndarray] | None:
    """The rows of a table and the format class of each, without those whose demand is no number."""
    if not len(table):
        return None
    devices, index = np.unique(table.device.astype(str), return_inverse=True)
    hardware = load_hardware(list(devices), directories)
    asked = demand(table, hardware, index)
    log: Callable[[np.ndarray], np.ndarray] = lambda x: np.log(np.maximum(np.asarray(x, np.float64), 1e-30))  # noqa: E731
    shape = np.stack([np.asarray(table.shape[name], np.float64) for name in sorted(table.shape)])
    rows = Rows(
        compute=log(asked.compute),
        power=log(asked.power) + CLOCK_POWER * log(np.asarray(hardware.clock)[index] / REFERENCE_CLOCK),
        memory=log(asked.memory),
        launches=np.full(len(table), np.log(LAUNCHES.get(family, 1.0))),
        footprint=log(asked.moved) - log(np.asarray(hardware.device.l2_capacity)[index]),
        time=log(table.measured),
        source=np.full(len(table), source),
        device=table.device.astype(str),
        generation=generations(table, directories),
        stack=_stacks(table),
        cell=_cells(table),
        shape=_join(*shape.astype(int)),
        step=_join(_cells(table), table.shape["m"] if family == "gemm" else np.arange(len(table))),
    )
    names = [NUMBER_FORMATS[FORMATS[dtype][0]].compute for dtype in table.dtype.astype(str)]
    classes = np.array([format_class(name) for name in names])
    usable = np.flatnonzero(np.isfinite(asked.compute) & np.isfinite(asked.memory) & (asked.compute + asked.memory > 0))
    if not len(usable):
        return None
    rows, classes, framework = rows.take(usable), classes[usable], table.framework.astype(str)[usable]
    keep = np.flatnonzero(_fastest(rows, classes, framework))
    return rows.take(keep), classes[keep]


def _fastest(rows: Rows, classes: np.ndarray, framework: np.ndarray) -> np.ndarray:
    """Which rows are of the kernel that an engine would choose: on each device the one nearest to its roofline.

    Operations that are different work, such as norms and rotary embeddings, do not compete.
    """
    operation = np.array([text.rsplit("/", 1)[-1] for text in rows.stack])
    contest = _join(rows.device, framework, classes, operation)
    keep = np.zeros(len(contest), bool)
    for name in np.unique(contest):
        inside = np.flatnonzero(contest == name)
        best = _nearest_to_roofline(rows.take(inside))
        keep[inside[rows.stack[inside] == best]] = True
    return keep


def _nearest_to_roofline(rows: Rows) -> str:
    """The stack with the least mean of log (time / roofline), taken over the half decades of size that all stacks have,
    each weighing the same: a stack measured on larger shapes only would look better than it is."""
    ideal = np.maximum(rows.compute, rows.memory)
    size = np.floor(2.0 * ideal / np.log(10.0)).astype(int)
    stacks = np.unique(rows.stack)
    sizes = set.intersection(*(set(size[rows.stack == stack].tolist()) for stack in stacks)) or set(size.tolist())

    def excess(stack: str) -> float:
        means = [np.mean((rows.time - ideal)[(rows.stack == stack) & (size == each)]) for each in sorted(sizes)]
        return float(np.nanmean(means))

    return str(min(stacks, key=excess))
